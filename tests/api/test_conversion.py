"""A clip's speech in another voice, over HTTP on the fakes."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile

from studio.api.guard import SESSION_COOKIE, new_session
from studio.engine.engine import EngineLimits
from studio.speech import SAMPLES_PER_TOKEN
from tests.api.conftest import Service, Start, clip_bytes

SESSIONS = {name: new_session("") for name in ("one", "two", "three")}


def convert(service: Service, clip: bytes | None = None, **fields: Any) -> httpx.Response:
    data = {"voice": "Ada", **fields}
    files = {"audio_sample": clip_bytes(3.0) if clip is None else clip}
    return httpx.post(f"{service.url}/v1/audio/conversions", data=data, files=files, timeout=120)


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


@pytest.fixture
def held(start_service: Start) -> Iterator[Service]:
    """A service with one place to wait, whose encoder holds back what it is given."""
    service = start_service(limits=EngineLimits(queue_size=1, max_per_client=2))
    service.in_loop(service.forget)
    service.in_loop(service.encoder.gate.clear)
    yield service
    service.in_loop(service.encoder.gate.set)


async def asked(service: Service, client: str) -> httpx.Response:
    """A conversion for the browser of that name."""
    files, cookies = {"audio_sample": clip_bytes(3.0)}, {SESSION_COOKIE: SESSIONS[client]}
    async with httpx.AsyncClient(base_url=service.url, timeout=60, cookies=cookies) as http:
        return await http.post("/v1/audio/conversions", data={"voice": "Ada"}, files=files)


async def until_waiting(service: Service, running: int, waiting: int) -> None:
    line = service.engine._encoding
    await asyncio.to_thread(service.until, lambda: (line.running, line.waiting) == (running, waiting))


async def test_conversions_that_find_no_place_at_the_encoder_are_refused_with_when_to_come_back(held: Service) -> None:
    first = asyncio.create_task(asked(held, "one"))
    await until_waiting(held, 1, 0)
    second = asyncio.create_task(asked(held, "two"))
    await until_waiting(held, 1, 1)
    refused = await asked(held, "three")
    assert refused.status_code == 429 and int(refused.headers["Retry-After"]) >= 1
    error = refused.json()["error"]
    assert (error["type"], error["code"]) == ("rate_limit_error", "queue_full")
    assert error["message"].startswith("All places are taken (1 waiting). Try again in about")
    held.in_loop(held.encoder.gate.set)
    assert [(await reply).status_code for reply in (first, second)] == [200, 200]
    assert (await asked(held, "three")).status_code == 200


async def test_one_client_takes_not_all_places_at_the_encoder(start_service: Start) -> None:
    service = start_service(limits=EngineLimits(queue_size=10, max_per_client=2))
    service.in_loop(service.forget)
    service.in_loop(service.encoder.gate.clear)
    mine = [asyncio.create_task(asked(service, "one")) for _ in range(2)]
    await until_waiting(service, 1, 1)
    refused = await asked(service, "one")
    assert refused.status_code == 429 and "You have 2 requests" in refused.json()["error"]["message"]
    other = asyncio.create_task(asked(service, "two"))
    await until_waiting(service, 1, 2)
    service.in_loop(service.encoder.gate.set)
    assert {(await reply).status_code for reply in (*mine, other)} == {200}


async def test_who_leaves_the_line_at_the_encoder_gives_the_place_back(held: Service) -> None:
    first = asyncio.create_task(asked(held, "one"))
    await until_waiting(held, 1, 0)
    second = asyncio.create_task(asked(held, "two"))
    await until_waiting(held, 1, 1)
    second.cancel()
    await until_waiting(held, 1, 0)
    held.in_loop(held.encoder.gate.set)
    assert (await first).status_code == 200
