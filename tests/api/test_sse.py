"""stream_format=sse, in OpenAI's events, read with the official client."""

from __future__ import annotations

import base64
import io
import json

import httpx
import pytest
import soundfile

from studio.backends.fake import Raise, Say
from studio.errors import SpeechLMError
from tests.api.test_speech import SAMPLES, WORDS, body, sdk


def events(text: str) -> list[dict]:
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line]


def sound(told: list[dict]) -> bytes:
    return b"".join(base64.b64decode(e["audio"]) for e in told if e["type"] == "speech.audio.delta")


@pytest.mark.parametrize("audio_format", ["pcm", "wav", "mp3", "flac", "opus", "aac"])
def test_sse_gives_the_whole_speech_in_deltas_then_what_was_used(service, audio_format: str) -> None:
    with sdk(service).audio.speech.with_streaming_response.create(
        model="", voice="Ada", input=WORDS, response_format=audio_format, stream_format="sse"
    ) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        told = events("\n".join(reply.iter_lines()))
    assert {e["type"] for e in told[:-1]} == {"speech.audio.delta"}
    usage = {"input_tokens": 4, "output_tokens": 20, "total_tokens": 24}
    assert told[-1] == {"type": "speech.audio.done", "usage": usage}
    data = sound(told)
    if audio_format == "pcm":
        assert len(data) == 2 * SAMPLES
    elif audio_format != "aac":
        assert abs(len(soundfile.read(io.BytesIO(data))[0]) / 24000 - SAMPLES / 24000) < 1.0
    else:
        assert data[:1] == b"\xff"


def test_sse_tells_a_failure_in_the_middle_as_its_last_event(service) -> None:
    service.lm.enqueue(Say(60), Raise(SpeechLMError("speech.lm_failed", reason="scripted")))
    reply = httpx.post(f"{service.url}/v1/audio/speech", json=body(stream_format="sse"))
    told = events(reply.text)
    assert told[0]["type"] == "speech.audio.delta"
    assert told[-1]["type"] == "error" and told[-1]["error"]["code"] == "speech_lm_failed"


def test_sse_refuses_before_it_begins_as_every_request(service) -> None:
    reply = httpx.post(f"{service.url}/v1/audio/speech", json=body(stream_format="sse", input=""))
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "input")
