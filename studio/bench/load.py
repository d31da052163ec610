"""Requests over HTTP as the page sends them, and how they came back. It judges nothing; `figures.py` does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

import httpx

from studio.bench.figures import Play
from studio.bench.playback import Arrival
from studio.speech import SAMPLE_RATE_HZ

ANSWER_TIMEOUT_S = 300.0
BYTES_PER_SECOND = 2 * SAMPLE_RATE_HZ


@dataclass(frozen=True, slots=True)
class Line:
    """What one request says."""

    text: str
    voice: str
    seed: int


@dataclass(frozen=True, slots=True)
class Load:
    """What came of a load: plays heard to the end, and a sentence for each that was not."""

    plays: tuple[Play, ...]
    failures: tuple[str, ...]
    wall_s: float


async def closed_loop(client: httpx.AsyncClient, lines: Sequence[Line], streams: int) -> Load:
    """Speak all lines, so many at a time, the next one as soon as one has ended. Never retries."""
    waiting = list(reversed(lines))
    plays: list[Play] = []
    failures: list[str] = []
    start_s = time.monotonic()

    async def listener() -> None:
        while waiting:
            try:
                plays.append(await speak(client, waiting.pop(), start_s))
            except httpx.HTTPError as error:
                failures.append(f"{type(error).__name__}: {error}")

    await asyncio.gather(*(listener() for _ in range(streams)))
    return Load(tuple(plays), tuple(failures), time.monotonic() - start_s)


async def speak(client: httpx.AsyncClient, line: Line, start_s: float) -> Play:
    """One request, listened to as it comes.

    Raises: httpx.HTTPError if it is refused, breaks off or says nothing.
    """
    body = {"input": line.text, "voice": line.voice, "seed": line.seed, "response_format": "pcm"}
    arrivals: list[Arrival] = []
    sent_s = time.monotonic()
    async with client.stream("POST", "/v1/audio/speech", json=body) as reply:
        if reply.is_error:
            await reply.aread()
            raise httpx.HTTPStatusError(
                f"{reply.status_code} {reply.text[:300]}", request=reply.request, response=reply
            )
        async for part in reply.aiter_raw():
            arrivals.append(Arrival(time.monotonic() - sent_s, len(part) / BYTES_PER_SECOND))
    if not arrivals:
        raise httpx.RemoteProtocolError("the reply holds no sound")
    prebuffer_s = float(reply.headers.get("X-Prebuffer-Ms", 0)) / 1000
    return Play(sent_s - start_s, tuple(arrivals), time.monotonic() - sent_s, prebuffer_s)
