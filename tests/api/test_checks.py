"""Checked takes over HTTP: findings with places, what is left without a recogniser, and the best of several."""

from __future__ import annotations

import httpx
import numpy as np
import pytest

from studio.api import checks
from studio.backends.fake import Raise, Say
from studio.errors import QueueFull, SpeechLMError
from studio.speech import SPEAKER_DIM
from tests.api.conftest import Service

TEXT = "the cat sat on the mat"
RIGHT = TEXT


@pytest.fixture
def client(service: Service) -> httpx.Client:
    """One person, whose takes are their own."""
    with httpx.Client(base_url=service.url, timeout=120) as one:
        yield one


def speak(client: httpx.Client, text: str = TEXT) -> str:
    """The id of a take."""
    reply = client.post("/v1/audio/speech", json={"input": text, "voice": "Ada", "response_format": "wav"})
    assert reply.status_code == 200 and reply.content
    return reply.headers["x-request-id"]


def check(client: httpx.Client, take: str, language: str = "en") -> dict:
    reply = client.post(f"/v1/audio/takes/{take}/check", headers={"Accept-Language": language})
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_take_that_says_its_text_has_nothing_to_mark(service: Service, client: httpx.Client) -> None:
    take = speak(client)
    service.ears.enqueue(RIGHT)
    found = check(client, take)
    assert (found["word_error_ratio"], found["likeness"], found["marks"]) == (0, 1, [])
    assert found["heard"] == RIGHT and "all words right" in found["summary"]


@pytest.mark.parametrize(
    ("heard", "kind"),
    [
        ("the cat sat sat on the mat", "repeated"),
        ("the cat on the mat", "dropped"),
        ("the dog sat on the mat", "other"),
        ("hello there the cat sat on the mat", "leak"),  # what is said in Ada's clip
        ("the cat sat quietly on the mat", "added"),
    ],
)
def test_each_kind_of_mistake_is_marked_where_it_is(
    service: Service, client: httpx.Client, heard: str, kind: str
) -> None:
    take = speak(client)
    service.ears.enqueue(heard, heard)
    (mark,) = check(client, take)["marks"]
    assert mark["kind"] == kind and 0 <= mark["start_s"] <= mark["end_s"]
    assert check(client, take, "zh")["marks"][0]["message"] != mark["message"]


def test_voice_unlike_its_clip_is_told(service: Service, client: httpx.Client) -> None:
    take = speak(client)
    service.ears.enqueue(RIGHT)
    service.ears.voices = np.eye(2, SPEAKER_DIM, dtype=np.float32)
    found = check(client, take)
    assert found["likeness"] == 0 and "unlike the clip" in found["reasons"][0]


def test_without_a_recogniser_the_checks_that_need_none_still_run(service: Service, client: httpx.Client) -> None:
    take = speak(client)
    service.ears.recogniser = ""
    found = check(client, take)
    assert found["word_error_ratio"] is None and found["likeness"] == 1 and found["lufs"] < 0
    assert "no recogniser" in found["summary"]


def test_take_of_somebody_else_cannot_be_checked(service: Service, client: httpx.Client) -> None:
    take = speak(client)
    with httpx.Client(base_url=service.url, timeout=120) as other:
        other.get("/")  # which makes a session of its own
        assert other.post(f"/v1/audio/takes/{take}/check").status_code == 404


def test_take_of_a_deleted_voice_is_checked_without_likeness(service: Service, client: httpx.Client) -> None:
    take = speak(client)
    service.store.delete("Ada")
    found = check(client, take)
    assert found["likeness"] is None and found["word_error_ratio"] == 1  # nothing was heard


def test_best_of_several_takes_is_kept_with_reasons(service: Service, client: httpx.Client) -> None:
    service.ears.enqueue("the cat on the mat", RIGHT, "the dog dog sat on the mat")
    reply = client.post("/v1/audio/speech/best", json={"input": TEXT, "voice": "Ada", "takes": 3, "seed": 7}).json()
    assert [take["seed"] for take in reply["takes"]] == [7, 8, 9]
    assert reply["best"] == reply["takes"][1]["id"]
    assert "missing" in reply["takes"][0]["reasons"][0] and reply["takes"][1]["reasons"] == ["Nothing wrong was found."]
    assert client.get(f"/v1/audio/takes/{reply['best']}/audio").content
    service.until(service.is_idle)


def test_take_is_compared_with_more_of_its_kind(service: Service, client: httpx.Client) -> None:
    take = speak(client)
    service.ears.enqueue("the cat", "the cat on the mat", RIGHT)  # of the first, then of the two new ones
    reply = client.post(f"/v1/audio/takes/{take}/best", json={"takes": 2}).json()
    assert len({one["seed"] for one in reply["takes"]}) == 3 and reply["takes"][0]["id"] == take
    assert reply["best"] == reply["takes"][2]["id"]
    texts = {one["text"] for one in client.get("/v1/audio/takes").json()["data"][:3]}
    assert texts == {TEXT}


def test_take_that_fails_loses_no_other(service: Service, client: httpx.Client) -> None:
    service.lm.enqueue(Say(2), Raise(SpeechLMError("speech.lm_failed", reason="broken")))
    service.ears.enqueue(RIGHT)
    reply = client.post("/v1/audio/speech/best", json={"input": TEXT, "voice": "Ada", "takes": 2}).json()
    failed, made = sorted(reply["takes"], key=lambda take: take["id"] is not None)
    assert failed["error"] and failed["id"] is None and reply["best"] == made["id"]


def test_take_whose_check_fails_loses_no_other(
    service: Service, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed, failures = service.ears.embed, [QueueFull("queue.full", waiting=9, seconds=1)]

    async def busy_once(sounds: list) -> np.ndarray:
        if failures:
            raise failures.pop()
        return await embed(sounds)

    monkeypatch.setattr(service.ears, "embed", busy_once)
    reply = client.post("/v1/audio/speech/best", json={"input": TEXT, "voice": "Ada", "takes": 2}).json()
    unchecked, checked = reply["takes"]
    assert "places are taken" in unchecked["reasons"][0] and unchecked["error"] == unchecked["reasons"][0]
    assert reply["best"] == checked["id"] and client.get(f"/v1/audio/takes/{unchecked['id']}").status_code == 200


def test_takes_too_long_to_be_checked_are_not_made(
    service: Service, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = speak(client)
    service.until(service.is_idle)
    made = len(service.lm.prompts)
    monkeypatch.setattr(checks, "MOST_S", 0.1)
    by_text = client.post("/v1/audio/speech/best", json={"input": TEXT, "voice": "Ada", "takes": 2})
    assert by_text.status_code == 400 and by_text.json()["error"]["param"] == "input"
    by_take = client.post(f"/v1/audio/takes/{take}/best", json={"takes": 2})
    assert by_take.status_code == 400 and by_take.json()["error"]["param"] == "take"
    assert len(service.lm.prompts) == made


@pytest.mark.parametrize(
    ("takes", "voice", "param"), [(1, "Ada", "takes"), (9, "Ada", "takes"), (2, "nobody", "voice")]
)
def test_request_for_the_best_is_refused_before_any_work(
    service: Service, client: httpx.Client, takes: int, voice: str, param: str
) -> None:
    reply = client.post("/v1/audio/speech/best", json={"input": TEXT, "voice": voice, "takes": takes})
    assert reply.status_code in (400, 404) and reply.json()["error"]["param"] == param
    assert service.lm.prompts == []


def test_where_no_takes_are_kept_the_best_of_them_cannot_be(start_service) -> None:
    service = start_service("--takes-max-mb", "0")
    service.store.add(np.zeros(24000, np.float32) + 0.1, 24000, "hello there", name="Ada")
    reply = httpx.post(f"{service.url}/v1/audio/speech/best", json={"input": TEXT, "voice": "Ada"})
    assert reply.status_code == 400 and "takes_max_mb" in reply.json()["error"]["message"]
