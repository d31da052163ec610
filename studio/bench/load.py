"""A load of requests and how they came back, over HTTP or however else they are spoken. `figures.py` judges them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import cycle

import httpx
import numpy as np

from studio.bench.figures import Play
from studio.bench.playback import Arrival
from studio.bench.texts import BY_SECONDS
from studio.errors import NoSpeech, StudioError
from studio.protocols import Clock
from studio.speech import SAMPLE_RATE_HZ, Float32

ANSWER_TIMEOUT_S = 300.0
LOUD = 10 ** (-50 / 20)
"""From here on a sample is heard: -50 dBFS."""
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

    def cut_off(self, after_s: float) -> None:
        """Whoever still speaks is not waited for."""
        self._failures.append(f"cut off after {after_s:g} s")

    def load(self) -> Load:
        return Load(tuple(self._plays), tuple(self._failures), time.monotonic() - self._start_s)


async def closed_loop(
    speak: Speak, lines: Iterable[Line], streams: int, limit_s: float | None = None
) -> Load:
    """Speak all lines, so many at a time, the next one as soon as one has ended. Never retries.

    After a failure a listener pauses: a studio that refuses at once would otherwise be asked without end. limit_s: what
    is still spoken then is cut off, which counts as one failure.
    """
    waiting = iter(lines)
    heard = _Heard(speak)

    async def listener() -> None:
        for line in waiting:
            if not await heard.out(line):
                await asyncio.sleep(PAUSE_S)

    try:
        # The group ends all of them with whoever is cancelled.
        async with asyncio.timeout(limit_s), asyncio.TaskGroup() as group:
            for _ in range(streams):
                group.create_task(listener())
    except TimeoutError:
        if limit_s is None:
            raise
        heard.cut_off(limit_s)
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
        sound = _samples(reply.aiter_raw())
        return await listened(sound, sent_s, float(reply.headers.get("X-Prebuffer-Ms", 0)) / 1000)


async def _samples(parts: AsyncIterator[bytes]) -> AsyncIterator[Float32]:
    """16 bit PCM, cut anywhere, as float32 [n] in [-1, 1]."""
    left = b""
    async for part in parts:
        data = left + part
        whole = len(data) // 2 * 2
        left = data[whole:]
        if whole:
            yield np.frombuffer(data[:whole], "<i2").astype(np.float32) / np.float32(32768)


async def listened(sound: AsyncIterator[Float32], sent_s: float, prebuffer_s: float) -> Play:
    """Hear sound out, noting when each chunk came. sound: chunks of [n] samples; sent_s: monotonic. Raises NoSpeech."""
    arrivals: list[Arrival] = []
    loud_s: float | None = None
    audio_s = 0.0
    async for samples in sound:
        at_s = time.monotonic() - sent_s
        arrivals.append(Arrival(at_s, len(samples) / SAMPLE_RATE_HZ))
        if loud_s is None and (loud := np.flatnonzero(np.abs(samples) > LOUD)).size:
            into_s = int(loud[0]) / SAMPLE_RATE_HZ
            loud_s = max(arrivals[0].at_s + audio_s, at_s) + into_s
        audio_s += arrivals[-1].audio_s
    if not arrivals:
        raise NoSpeech("speech.none")
    return Play(tuple(arrivals), time.monotonic() - sent_s, prebuffer_s, loud_s)
