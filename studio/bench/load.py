"""A load of requests and how they came back, over HTTP or however else they are spoken. `figures.py` judges them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import cycle

import httpx

from studio.bench.figures import Play
from studio.bench.playback import Arrival
from studio.bench.texts import BY_SECONDS
from studio.errors import NoSpeech, StudioError
from studio.protocols import Clock
from studio.speech import SAMPLE_RATE_HZ

ANSWER_TIMEOUT_S = 300.0
PAUSE_S = 0.1
PATH = "/v1/audio/speech"
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


Speak = Callable[[Line], Awaitable[Play]]
"""Speaks one line and listens to its end. Raises httpx.HTTPError or StudioError for one that was not heard out."""


class _Heard:
    """What comes of one load, from now on."""

    def __init__(self, speak: Speak) -> None:
        self._speak, self._start_s = speak, time.monotonic()
        self._plays: list[Play] = []
        self._failures: list[str] = []

    async def out(self, line: Line) -> bool:
        """Speak a line and hear it out; whether that went well."""
        try:
            self._plays.append(await self._speak(line))
        except (httpx.HTTPError, StudioError) as error:
            self._failures.append(f"{type(error).__name__}: {error}")
            return False
        return True

    def load(self) -> Load:
        return Load(tuple(self._plays), tuple(self._failures), time.monotonic() - self._start_s)


async def closed_loop(speak: Speak, lines: Iterable[Line], streams: int) -> Load:
    """Speak all lines, so many at a time, the next one as soon as one has ended. Never retries.

    After a failure a listener pauses: a studio that refuses at once would otherwise be asked without end.
    """
    waiting = iter(lines)
    heard = _Heard(speak)

    async def listener() -> None:
        for line in waiting:
            if not await heard.out(line):
                await asyncio.sleep(PAUSE_S)

    async with asyncio.TaskGroup() as group:  # which ends all of them with whoever is cancelled
        for _ in range(streams):
            group.create_task(listener())
    return heard.load()


async def open_loop(speak: Speak, lines: Iterable[Line], per_s: float, seed: int = 1) -> Load:
    """Speak lines at random times, so many a second on average, however many are still being spoken. Never retries.

    What people do: they do not wait for each other, so a studio that falls behind falls ever further behind.
    """
    gaps = random.Random(seed)
    heard = _Heard(speak)
    async with asyncio.TaskGroup() as group:
        for line in lines:
            group.create_task(heard.out(line))
            await asyncio.sleep(gaps.expovariate(per_s))
    return heard.load()


def for_seconds(seconds: float, lines: Iterable[Line], clock: Clock = time.monotonic) -> Iterator[Line]:
    """Lines until so many seconds have passed from now; at least one, however slow the machine."""
    end_s = clock() + seconds
    for line in lines:
        yield line
        if clock() >= end_s:
            return


def lines_of(voice: str, seconds: int, first_seed: int = 1) -> Iterator[Line]:
    """Requests without end, of texts of about this length; seeds differ, so no two are the same."""
    texts = cycle(BY_SECONDS[seconds])
    return (Line(text, voice, seed) for seed, text in enumerate(texts, first_seed))


def body_of(line: Line) -> dict[str, object]:
    """The JSON that POST /v1/audio/speech takes."""
    return {"input": line.text, "voice": line.voice, "seed": line.seed, "response_format": "pcm"}


async def speak(client: httpx.AsyncClient, line: Line) -> Play:
    """One request over HTTP, listened to as it comes.

    Raises: httpx.HTTPError if it is refused or breaks off, NoSpeech if it says nothing.
    """
    sent_s = time.monotonic()
    async with client.stream("POST", PATH, json=body_of(line)) as reply:
        if reply.is_error:
            await reply.aread()
            raise httpx.HTTPStatusError(
                f"{reply.status_code} {reply.text[:300]}", request=reply.request, response=reply
            )
        lengths_s = (len(part) / BYTES_PER_SECOND async for part in reply.aiter_raw())
        return await listened(lengths_s, sent_s, float(reply.headers.get("X-Prebuffer-Ms", 0)) / 1000)


async def listened(lengths_s: AsyncIterator[float], sent_s: float, prebuffer_s: float) -> Play:
    """Hear sound out, noting when each chunk came. lengths_s: of the chunks; sent_s: monotonic. Raises NoSpeech."""
    arrivals = [Arrival(time.monotonic() - sent_s, audio_s) async for audio_s in lengths_s]
    if not arrivals:
        raise NoSpeech("speech.none")
    return Play(tuple(arrivals), time.monotonic() - sent_s, prebuffer_s)
