"""The self-test: the studio is started as a user starts it, and one sentence is spoken over HTTP."""

from __future__ import annotations

import time
from collections.abc import Sequence

import httpx
import numpy as np

from studio.bench.service import started
from studio.doctor.finding import Finding
from studio.speech import SAMPLE_RATE_HZ

SENTENCE = "The doctor says that everything is well."
LIMIT_S = 300.0


async def speech_findings(flags: Sequence[str]) -> list[Finding]:
    """flags: those of app.py. The studio runs on a free port with a library of its own."""
    try:
        async with started([*flags, "--page", "false"]) as service:
            detail = f"answers after {service.page_s:.0f} s, engine after {service.ready_s:.0f} s"
            async with httpx.AsyncClient(base_url=service.url, timeout=LIMIT_S) as client:
                return [Finding("ok", "start", detail), await spoken(client)]
    except (RuntimeError, httpx.HTTPError) as error:
        return [Finding("FAULT", "start", f"{error}. Its own lines are above")]


async def spoken(client: httpx.AsyncClient) -> Finding:
    voices = (await client.get("/v1/audio/voices")).raise_for_status().json()["voices"]
    began_s = time.monotonic()
    body = {"input": SENTENCE, "voice": voices[0], "seed": 1, "response_format": "pcm"}
    reply = await client.post("/v1/audio/speech", json=body)
    took_s = time.monotonic() - began_s
    if reply.is_error:
        return Finding("FAULT", "speech", f"{reply.status_code}: {reply.text[:300]}")
    return judged(np.frombuffer(reply.content, np.int16), took_s)


def judged(samples: np.ndarray, took_s: float) -> Finding:
    """Whether there is sound at all. samples: int16 at 24 kHz."""
    seconds = len(samples) / SAMPLE_RATE_HZ
    level = float(np.sqrt(np.square(samples / 32768).mean())) if len(samples) else 0.0
    detail = f"{seconds:.1f} s of sound in {took_s:.1f} s"
    if seconds < 0.3 or level < 1e-4:
        return Finding("FAULT", "speech", f"{detail}, silent: the checkpoint may be damaged. Fetch it again")
    return Finding("ok", "speech", f"{detail}, level {20 * np.log10(level):.0f} dB")
