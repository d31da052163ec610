"""/v1/audio/voice-designs: blends and moved voices, spoken as drafts and kept under a name."""

from __future__ import annotations

import httpx
import numpy as np
import pytest

from tests.api.conftest import clip_samples


def design(service, **body: object) -> httpx.Response:
    return httpx.post(f"{service.url}/v1/audio/voice-designs", json=body)


@pytest.fixture
def two_voices(service):
    service.store.add(clip_samples(3.0), 24000, "bob speaks", name="Bob")
    return service


def test_blend_is_spoken_as_a_draft_then_kept(two_voices) -> None:
    service, both = two_voices, [{"voice": "Ada", "weight": 1}, {"voice": "Bob", "weight": 3}]
    draft = design(service, voices=both, defaults={"seed": 9, "top_k": 4})
    assert draft.status_code == 200 and draft.json()["name"] is None
    assert draft.json()["blend"] == [{"name": "Ada", "weight": 0.25}, {"name": "Bob", "weight": 0.75}]
    assert (draft.json()["ref_text"], draft.json()["defaults"]) == ("bob speaks", {"seed": 9, "top_k": 4})
    spoken = {"input": "hi you", "voice": draft.json()["id"], "response_format": "pcm"}
    reply = httpx.post(f"{service.url}/v1/audio/speech", json=spoken)
    assert (reply.status_code, reply.headers["X-Seed"]) == (200, "9")
    kept = {"name": "Mix", "consent": "both agree"}
    httpx.post(f"{service.url}/v1/audio/voices/{draft.json()['id']}/name", data=kept)
    assert "Mix" in httpx.get(f"{service.url}/v1/audio/voices").json()["voices"]
    assert httpx.delete(f"{service.url}/v1/audio/voices/Bob").json()["still_in"] == ["Mix"]


def test_prompt_comes_from_the_voice_that_is_named(two_voices) -> None:
    both = [{"voice": "Ada", "weight": 1}, {"voice": "Bob", "weight": 3}]
    assert design(two_voices, voices=both, prompt="Ada").json()["ref_text"] == "hello there"


def test_design_with_a_name_asks_for_consent_and_is_kept_at_once(two_voices) -> None:
    body = {"voices": [{"voice": "Ada"}], "defaults": {"pitch": -2}, "name": "Deep Ada"}
    refused = design(two_voices, **body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "consent")
    assert design(two_voices, **body, consent="agreed").json()["name"] == "Deep Ada"


BAD = {
    "no voice": ({"voices": []}, 400, "voices"),
    "five voices": ({"voices": [{"voice": "Ada"}] * 5}, 400, "voices"),
    "unknown voice": ({"voices": [{"voice": "Eve"}]}, 404, "voice"),
    "no share": ({"voices": [{"voice": "Ada", "weight": 0}]}, 400, "voices"),
    "foreign prompt": ({"voices": [{"voice": "Ada"}], "prompt": "Bob"}, 400, "prompt"),
    "pitch": ({"voices": [{"voice": "Ada"}], "defaults": {"pitch": 7}}, 400, "defaults.pitch"),
    "speed": ({"voices": [{"voice": "Ada"}], "defaults": {"speed": 5}}, 400, "defaults.speed"),
    "unknown field": ({"voices": [{"voice": "Ada"}], "formant": 1}, 400, "formant"),
}


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.replace(" ", "_"))
def test_impossible_design_is_told_at_its_field(two_voices, case: str) -> None:
    body, status, param = BAD[case]
    reply = design(two_voices, **body)
    assert (reply.status_code, reply.json()["error"]["param"]) == (status, param), reply.text


def hertz(service, **fields: object) -> tuple[int, float]:
    """Samples of a sentence on the fakes, and the pitch of their sine."""
    spoken = {"input": "one two three four five six", "voice": "Ada", "response_format": "pcm", **fields}
    reply = httpx.post(f"{service.url}/v1/audio/speech", json=spoken)
    samples = np.frombuffer(reply.content, "<i2").astype(np.float64)
    middle = samples[4800:-4800] * np.hanning(len(samples) - 9600)
    return len(samples), float(np.argmax(np.abs(np.fft.rfft(middle, 1 << 18))) * 24000 / (1 << 18))


def test_pitch_and_pace_of_a_voice_are_heard_each_without_the_other(service) -> None:
    samples, plain = hertz(service)
    for pitch, speed in ((3, 1.0), (-4, 1.0), (0, 1.25), (2, 0.8)):
        httpx.patch(f"{service.url}/v1/audio/voices/Ada", json={"defaults": {"pitch": pitch, "speed": speed}})
        moved_samples, moved = hertz(service)
        assert 12 * np.log2(moved / plain) == pytest.approx(pitch, abs=0.1)
        assert moved_samples == pytest.approx(samples / speed, abs=5)
    assert hertz(service, pitch=0, speed=1) == (samples, plain)
