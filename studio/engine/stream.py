"""The listener's end of a request: an async iterator of sound that ends the request when it is closed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType

import numpy as np

from studio.engine.quality import Choice
from studio.errors import RequestAborted, StudioError
from studio.speech import SAMPLE_RATE_HZ, AudioChunk, Float32, SpokenRow


def _nothing() -> None:
    return None


async def _nothing_left() -> None:
    return None


class SpeechStream:
    """Sound as it is made. Use it in `async with`, or call `aclose` in a `finally`: nothing else frees a request.

    Iterating raises the request's error as soon as it is known, even when sound is left, and ends only when all
    sound was handed out. Owner: one consumer in the engine's event loop.
    """

    def __init__(
        self, request_id: str, on_read: Callable[[], None], abort: Callable[[], Awaitable[None]]
    ) -> None:
        self.request_id = request_id
        self.hold: Callable[[float | None], float] = lambda first_chunk_s: 0.0
        """Seconds of sound that a player should hold before it starts, by how many the first chunk has; None: it is not
        there yet."""
        self._prebuffer_s: float | None = None
        self.spoken: list[SpokenRow] = []
        """What was spoken so far, row by row; with the same voice, seed and settings it sounds the same again."""
        self.text_ids = 0
        """Ids of the text that the speech LM reads."""
        self.choice = Choice("balanced", "quality.asked")
        """What is spent on it, and why."""
        self._on_read = on_read
        self._when_read: Callable[[Float32], Awaitable[None]] | None = None
        self._read: list[Float32] = []
        self._abort = abort
        self._chunks: deque[AudioChunk] = deque()
        self._pushed = 0
        self._waiting_samples = 0
        self._ended = False
        self._error: StudioError | None = None
        self._changed = asyncio.Event()

    @property
    def prebuffer_s(self) -> float:
        """What its player should hold: settled with the first chunk, by what runs then and how long that is."""
        return self.hold(None) if self._prebuffer_s is None else self._prebuffer_s

    @property
    def waiting_s(self) -> float:
        """Seconds of sound made and not yet read."""
        return self._waiting_samples / SAMPLE_RATE_HZ

    def when_read(self, observer: Callable[[Float32], Awaitable[None]]) -> None:
        """Gather the sound while it is read, and hand all of it to the observer once, before the stream ends."""
        self._when_read = observer

    async def _all_read(self) -> None:
        if self._when_read is not None and self._read:
            observer, self._when_read = self._when_read, None
            await observer(np.concatenate(self._read))

    def push(self, samples: Float32) -> None:
        """Hand over sound. The engine's side."""
        if self._prebuffer_s is None:
            self._prebuffer_s = self.hold(len(samples) / SAMPLE_RATE_HZ)
        self._chunks.append(AudioChunk(samples, self._pushed))
        self._pushed += 1
        self._waiting_samples += len(samples)
        self._changed.set()

    def finish(self) -> None:
        """All sound was pushed. The engine's side."""
        self._ended = True
        self._changed.set()

    def let_go(self) -> None:
        """The request has freed all that it held: know it no more. The engine's side.

        Stream and request know each other, and with them a request's sound would stay until the collector comes by.
        """
        self._on_read, self._abort = _nothing, _nothing_left

    def fail(self, error: StudioError) -> None:
        """The request broke. The engine's side; the first error counts."""
        self._error = self._error or error
        self._changed.set()

    def __aiter__(self) -> SpeechStream:
        return self

    async def __anext__(self) -> AudioChunk:
        while True:
            if self._error is not None:
                self._drop_sound()
                raise self._error
            if self._chunks:
                chunk = self._chunks.popleft()
                self._waiting_samples -= len(chunk.samples)
                self._on_read()
                if self._when_read is not None:
                    self._read.append(chunk.samples)
                return chunk
            if self._ended:
                await self._all_read()
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()

    async def aclose(self) -> None:
        """End the request if it still runs and wait until all that it held is free; may be called again."""
        if not self._ended:
            self.fail(RequestAborted("speech.aborted"))
        self._drop_sound()
        await self._abort()

    async def __aenter__(self) -> SpeechStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _drop_sound(self) -> None:
        self._chunks.clear()
        self._waiting_samples = 0
