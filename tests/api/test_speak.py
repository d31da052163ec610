"""The Speak bullet by API: preview with changes and estimate, pauses, pronunciations, speed, quality."""

from __future__ import annotations

from dataclasses import asdict

import httpx
import numpy as np
import pytest

from studio.audio.stretch import stretched_samples
from studio.engine.quality import BUSY_RATIO, EFFORTS, HELD_S
from tests.api.test_speech import SAMPLES, body


def speak(service, **changes: object) -> httpx.Response:
    reply = httpx.post(f"{service.url}/v1/audio/speech", json=body(**changes))
    assert reply.status_code == 200, reply.text
    return reply


def pcm(service, **changes: object) -> np.ndarray:
    return np.frombuffer(speak(service, **changes).content, "<i2")


def preview(service, text: str, **more: object) -> httpx.Response:
    return httpx.post(f"{service.url}/v1/audio/speech/preview", json={"input": text} | more)


@pytest.fixture
def list_of_words(service):
    """Empty before and after."""
    url = f"{service.url}/v1/audio/pronunciations"

    def clear() -> None:
        for entry in httpx.get(url).json()["data"]:
            httpx.delete(f"{url}/{entry['id']}")

    clear()
    yield url
    clear()


def test_pause_in_the_text_is_exact_in_samples(service) -> None:
    sound = pcm(service, input="one two [pause 0.5s] three four")
    half = SAMPLES // 2
    assert len(sound) == SAMPLES + 12_000 and not sound[half : half + 12_000].any()


@pytest.mark.parametrize("speed", [0.8, 1.25, 2.0])
def test_speed_gives_the_exact_length_while_it_streams(service, speed: float) -> None:
    assert len(pcm(service, speed=speed)) == stretched_samples(SAMPLES, speed)


def test_preview_says_what_is_said_how_long_and_where_it_pauses(service) -> None:
    found = preview(service, "one two [pause 2s] three four").json()
    assert found["characters"] == 29 and 2.0 < found["seconds"] < 60
    assert [segment["pause_s"] for segment in found["segments"]] == [None, 2.0]
    assert [span["typed"] for segment in found["segments"] for span in segment["spans"]] == [None, None]
    slow = preview(service, "one two [pause 2s] three four", speed=0.5).json()
    assert slow["seconds"] > found["seconds"]


def test_preview_needs_no_engine_and_refuses_as_speaking_does(service) -> None:
    service.in_loop(lambda: service.worker.to("starting", "stage.weights"))
    assert preview(service, "one two").status_code == 200
    refused = preview(service, "one [pause forever] two")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "input")


def said(reply: httpx.Response) -> str:
    assert reply.status_code == 200, reply.text
    return "".join(span["said"] for segment in reply.json()["segments"] for span in segment["spans"])


def test_language_of_the_text_is_named_or_the_voices_own(service) -> None:
    assert said(preview(service, "buy 3", voice="Ada")) == "buy 3"
    assert said(preview(service, "buy 3", voice="Ada", language="zh")) == "buy 三"
    assert service.store.edit("Ada", defaults={"language": "zh"}).defaults == {"language": "zh"}
    assert said(preview(service, "buy 3", voice="Ada")) == "buy 三"
    assert said(preview(service, "buy 3", voice="Ada", language="en")) == "buy three"
    assert said(preview(service, "buy 3", voice="Ada", language="auto")) == "buy 3"
    assert said(preview(service, "buy 3", voice="gone")) == "buy 3"
    for named, kept in ({}, "zh"), ({"language": "auto"}, ""), ({"language": "ko"}, "ko"):
        take = speak(service, input="buy 3", **named).headers["X-Request-Id"]
        card = httpx.get(f"{service.url}/v1/audio/takes/{take}/settings").json()
        assert card["request"]["language"] == kept


@pytest.mark.parametrize("path", ["speech", "speech/preview"])
def test_language_that_the_model_does_not_speak_is_refused_at_its_field(service, path: str) -> None:
    asked = {"input": "one", "voice": "Ada", "language": "tlh"}
    reply = httpx.post(f"{service.url}/v1/audio/{path}", json=asked)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "language")
    assert "en, zh, ja, ko" in reply.json()["error"]["message"]
    service.store.edit("Ada", defaults={"language": "tlh"})  # of another checkpoint: left out, not refused
    assert httpx.post(f"{service.url}/v1/audio/{path}", json={"input": "one", "voice": "Ada"}).status_code == 200


def test_pronunciation_is_said_previewed_and_gone_when_deleted(service, list_of_words: str) -> None:
    made = httpx.post(list_of_words, json={"word": "two", "said": "too too too"})
    assert made.status_code == 201 and made.json()["voice"] is None
    assert len(pcm(service)) == SAMPLES + 2 * 5 * 960  # two more words
    (segment,) = preview(service, "one two").json()["segments"]
    assert [(s["typed"], s["said"].strip()) for s in segment["spans"]] == [
        (None, "one"),
        ("two", "too too too"),
    ]
    httpx.delete(f"{list_of_words}/{made.json()['id']}")
    assert len(pcm(service)) == SAMPLES


def test_pronunciation_of_one_voice_is_not_that_of_others(service, list_of_words: str) -> None:
    service.store.add(np.ones(48000, np.float32) / 2, 24000, "hello", name="Bob")
    made = httpx.post(list_of_words, json={"word": "two", "said": "too too too", "voice": "Bob"}).json()
    assert made["voice"]["name"] == "Bob"
    assert len(pcm(service)) == SAMPLES < len(pcm(service, voice="Bob"))
    refused = httpx.post(list_of_words, json={"word": "?", "said": "x"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "word")


@pytest.mark.parametrize("quality", ["fast", "balanced", "best"])
def test_quality_that_is_asked_for_is_given_and_told(service, quality: str) -> None:
    reply = speak(service, quality=quality)
    assert reply.headers["x-quality"] == quality and len(reply.content) == 2 * SAMPLES


def test_fast_and_balanced_sound_the_same_sample_by_sample(service) -> None:
    assert np.array_equal(pcm(service, quality="fast", seed=3), pcm(service, quality="balanced", seed=3))


def test_automatic_quality_says_what_it_chose(service) -> None:
    reply = speak(service, quality="auto")
    assert reply.headers["x-quality"] in ("fast", "balanced", "best") and reply.headers["x-quality-reason"]


def test_text_is_judged_by_its_length_before_it_is_respelled(service, list_of_words: str) -> None:
    httpx.post(list_of_words, json={"word": "two", "said": "too too too"})
    text = "two " * 20_000
    for refused in (
        preview(service, text),
        httpx.post(f"{service.url}/v1/audio/speech", json=body(input=text)),
        httpx.post(f"{service.url}/v1/jobs", json=body(input=text)),
    ):
        error = refused.json()["error"]
        assert (refused.status_code, error["param"]) == (400, "input") and "80000 characters" in error["message"]


def test_models_say_what_each_quality_stands_for(service) -> None:
    """The same table that the engine works by; hints of the page are filled from it."""
    model = httpx.get(f"{service.url}/v1/models").json()["data"][0]
    assert model["qualities"] == list(model["quality_settings"]) == ["auto", "fast", "balanced", "best"]
    for quality, effort in EFFORTS.items():
        assert model["quality_settings"][quality] == {"first_chunk_tokens": 25, **asdict(effort)}
    rule = {"fast_from_places_ratio": BUSY_RATIO, "best_up_to_s": HELD_S, "holds": True}
    assert model["quality_settings"]["auto"] == rule
