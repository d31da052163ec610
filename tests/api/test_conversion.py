"""A clip's speech in another voice, over HTTP on the fakes."""

from __future__ import annotations

import io
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile

from studio.speech import SAMPLES_PER_TOKEN
from tests.api.conftest import Service, clip_bytes


def convert(service: Service, clip: bytes | None = None, **fields: Any) -> httpx.Response:
    data = {"voice": "Ada", **fields}
    files = {"audio_sample": clip_bytes(3.0) if clip is None else clip}
    return httpx.post(f"{service.url}/v1/audio/conversions", data=data, files=files, timeout=60)


def test_clip_is_said_by_the_voice_and_no_lm_is_asked(service: Service) -> None:
    reply = convert(service, response_format="pcm")
    assert reply.status_code == 200 and reply.headers["X-Seed"].isdecimal()
    samples = np.frombuffer(reply.content, "<i2")
    assert len(samples) % SAMPLES_PER_TOKEN == 0 and 2.5 < len(samples) / 24000 <= 3.0
    assert not service.lm.prompts
    service.until(service.is_idle)


def test_file_comes_whole_in_other_formats(service: Service) -> None:
    sound, rate_hz = soundfile.read(io.BytesIO(convert(service, response_format="flac").content))
    assert rate_hz == 24000 and len(sound) % SAMPLES_PER_TOKEN == 0


def test_speed_shortens_what_is_said(service: Service) -> None:
    usual, fast = (convert(service, response_format="pcm", speed=speed).content for speed in (1.0, 2.0))
    assert len(fast) == pytest.approx(len(usual) / 2, rel=0.02)


@pytest.mark.parametrize(
    ("clip", "fields", "status", "param"),
    [
        (None, {"voice": ""}, 400, "voice"),
        (None, {"voice": "Nobody"}, 404, "voice"),
        (None, {"response_format": "mid"}, 400, "response_format"),
        (None, {"seed": -1}, 400, "seed"),
        (None, {"speed": 9}, 400, "speed"),
        (b"no sound", {}, 422, "audio_sample"),
        (clip_bytes(0.3), {}, 422, "audio_sample"),
    ],
)
def test_bad_input_is_told_at_its_field_before_any_work(
    service: Service, clip: bytes | None, fields: dict[str, Any], status: int, param: str
) -> None:
    reply = convert(service, clip, **fields)
    assert (reply.status_code, reply.json()["error"]["param"]) == (status, param)
    assert not service.token2wav._rows


def test_missing_clip_is_told(service: Service) -> None:
    reply = httpx.post(f"{service.url}/v1/audio/conversions", data={"voice": "Ada"})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "audio_sample")


def test_models_says_what_is_honoured(service: Service) -> None:
    (model,) = httpx.get(f"{service.url}/v1/models").json()["data"]
    assert {"zero_shot", "instruct", "conversion"} <= set(model["modes"])
    assert "[laughter]" in model["sound_tags"] and model["interleaved_text"] is True
