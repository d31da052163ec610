"""Text that is written while it is spoken, over a WebSocket on the fakes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from studio.protocols import LmTurn
from studio.speech import SAMPLES_PER_TOKEN
from tests.api.conftest import Service, Start

SENTENCES = ("This sentence is whole and long enough to be said. ", "And so is the next one, at the end of the text.")


@contextmanager
def session(service: Service, cookie: str = "", **config: Any) -> Iterator[ClientConnection]:
    url = service.url.replace("http", "ws") + "/v1/audio/speech/stream"
    with connected(url, additional_headers={"Cookie": cookie} if cookie else None) as socket:
        send(socket, {"type": "session.config", "voice": "Ada", **config})
        yield socket


def connected(url: str, **how: Any) -> ClientConnection:
    """However long the machine takes over it."""
    return connect(url, open_timeout=120, ping_interval=None, **how)


def send(socket: ClientConnection, message: Any) -> None:
    """What the service said before it closed is there to be read, also where it closes before all was sent."""
    with suppress(ConnectionClosed):
        socket.send(message if isinstance(message, str) else json.dumps(message))


def write(socket: ClientConnection, text: str | None) -> None:
    send(socket, {"type": "input.done"} if text is None else {"type": "input.text", "text": text})


def told(socket: ClientConnection) -> Any:
    """The next message: sound as bytes, all else as what it holds."""
    message = socket.recv(120)
    return message if isinstance(message, bytes) else json.loads(message)


def heard(socket: ClientConnection) -> tuple[list[Any], int]:
    """All until the session is done, and how many samples came."""
    messages: list[Any] = []
    while not messages or messages[-1] != {"type": "session.done"}:
        messages.append(told(socket))
        assert not (isinstance(messages[-1], dict) and messages[-1]["type"] == "error"), messages[-1]
    return messages, sum(len(m) // 2 for m in messages if isinstance(m, bytes))


def test_first_sentence_is_heard_before_the_second_is_written(service: Service) -> None:
    with session(service, seed=5) as socket:
        write(socket, SENTENCES[0])
        write(socket, "And")
        start = told(socket)
        assert (start["type"], start["sample_rate"], start["seed"]) == ("audio.start", 24000, 5)
        assert isinstance(told(socket), bytes)
        write(socket, SENTENCES[1][3:])
        write(socket, None)
        messages, _ = heard(socket)
    assert messages[-2:] == [{"type": "audio.done"}, {"type": "session.done"}]
    assert len(service.lm.prompts) == 2
    service.until(service.is_idle)


def test_interleaved_text_is_one_row_in_turns(service: Service) -> None:
    with session(service, interleaved=True) as socket:
        for word in ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]:
            write(socket, word + " ")
        write(socket, None)
        _, samples = heard(socket)
    assert all(isinstance(turn, LmTurn) for turn in service.lm.prompts) and service.lm.prompts[-1].whole
    assert samples and samples % SAMPLES_PER_TOKEN == 0


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        (["nonsense"], "type"),
        ([{"type": "input.text", "text": "hello"}], "type"),
        ([{"type": "session.config"}], "voice"),
        ([{"type": "session.config", "voice": "Ada", "colour": "red"}], "colour"),
        ([{"type": "session.config", "voice": "Ada", "response_format": "mp3"}], "response_format"),
        ([{"type": "session.config", "voice": "Nobody"}, {"type": "input.text", "text": "hi"}], "voice"),
        ([{"type": "session.config", "voice": "Ada"}, {"type": "input.text", "text": 3}], "type"),
        ([{"type": "session.config", "voice": "Ada"}, {"type": "input.text", "text": "a" * 5000}], "text"),
        ([{"type": "session.config", "voice": "Ada"}, {"type": "input.done"}], "input"),
        ([{"type": "session.config", "voice": "Ada", "mode": "preset"}, {"type": "input.done"}], "voice"),
    ],
)
def test_what_is_wrong_is_told_in_openai_s_shape_and_ends_the_session(
    service: Service, messages: list[Any], param: str
) -> None:
    with connected(service.url.replace("http", "ws") + "/v1/audio/speech/stream") as socket:
        for message in messages:
            send(socket, message)
        found = told(socket)
    assert found["type"] == "error" and found["error"]["param"] == param and found["error"]["message"]
    service.until(service.is_idle)


def test_who_leaves_in_the_middle_frees_everything(service: Service) -> None:
    with session(service) as socket:
        write(socket, SENTENCES[0] + "And")
        assert told(socket)["type"] == "audio.start"
    service.until(service.is_idle)


def test_who_opens_a_session_and_says_nothing_takes_no_place_and_is_told(start_service: Start) -> None:
    service = start_service("--listener-timeout-s", "1")
    service.in_loop(service.forget)
    with session(service) as socket:
        assert service.engine.state().running == 0
        assert "1 s" in told(socket)["error"]["message"]


@pytest.mark.parametrize("interleaved", [False, True])
def test_who_has_a_place_and_writes_next_to_nothing_is_told_and_frees_it(
    service: Service, monkeypatch: pytest.MonkeyPatch, interleaved: bool
) -> None:
    monkeypatch.setattr("studio.api.arriving.PATIENCE_S", 0.2)
    with session(service, interleaved=interleaved) as socket:
        for text in ("Hello", " ", " "):
            write(socket, text)
        found = told(socket)
    assert found["type"] == "error" and "Too little text" in found["error"]["message"]
    service.until(service.is_idle)


def test_session_s_text_is_as_long_as_a_request_s_at_most(start_service: Start) -> None:
    service = start_service("--max-text-chars", "100")
    service.in_loop(service.forget)
    with session(service) as socket:
        for _ in range(3):
            write(socket, SENTENCES[0])
        while isinstance(found := told(socket), bytes) or found["type"] == "audio.start":
            pass
    assert "at most 100 are allowed" in found["error"]["message"]
    service.until(service.is_idle)


def test_sound_is_that_of_the_same_text_given_whole(service: Service) -> None:
    text = "".join(SENTENCES)
    body = {"input": text, "voice": "Ada", "response_format": "pcm", "seed": 2}
    with session(service, seed=2) as socket:
        for start in range(0, len(text), 9):
            write(socket, text[start : start + 9])
        write(socket, None)
        messages, _ = heard(socket)
    prompts = [prompt.text_ids for prompt in service.lm.prompts]
    sound = np.frombuffer(b"".join(m for m in messages if isinstance(m, bytes)), "<i2")
    service.lm.prompts.clear()
    httpx.post(f"{service.url}/v1/audio/speech", json=body, timeout=120)
    # The fake front end cuts nothing, so whole text is one prompt of as many words.
    assert sum(map(len, prompts)) == len(service.lm.prompts[0].text_ids)
    assert len(sound)
