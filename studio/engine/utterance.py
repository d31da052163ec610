"""One request from its ticket to its last sample: every state that belongs to it, and nothing that does not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

import numpy as np

from studio.audio.retime import Retime
from studio.engine.admission import Ticket
from studio.engine.silence import Silences
from studio.engine.sources import SEEDS, ToSpeak
from studio.engine.stats import RequestSummary
from studio.engine.stream import SpeechStream
from studio.engine.timeline import Timeline
from studio.engine.voicing import Row, Voicing
from studio.errors import RequestAborted, StudioError, SynthesisError
from studio.protocols import Clock
from studio.speech import SAMPLE_RATE_HZ, Float32, Segment, SpokenRow, SynthesisRequest, VoicingRequest

logger = logging.getLogger(__name__)

SEGMENT_PAUSE_S = 0.15
SEGMENTS_AHEAD = 1
"""Segments whose tokens may be made before the one being heard has ended."""

_Rows = asyncio.Queue[tuple[Row, SpokenRow] | None]
"""Rows in the order they are heard, None after the last."""


def pause_before_s(segment: Segment, number: int) -> float:
    """Silence before a request's segment of that number."""
    usual_s = SEGMENT_PAUSE_S if number else 0.0
    return usual_s if segment.pause_s is None else segment.pause_s


def silence_of(seconds: float) -> Float32:
    return np.zeros(round(seconds * SAMPLE_RATE_HZ), np.float32)


@dataclass(frozen=True, slots=True)
class EngineParts:
    """What all utterances use in common."""

    voicing: Voicing
    clock: Clock
    sleep: Callable[[float], Awaitable[None]]
    max_ahead_s: float
    listener_timeout_s: float
    silent_tokens: Collection[int] = ()


class Utterance:
    """A request being served. Owner: its own task; `stream` is its consumer's end."""

    def __init__(
        self,
        parts: EngineParts,
        request: SynthesisRequest | VoicingRequest,
        to_speak: ToSpeak,
        ticket: Ticket,
    ) -> None:
        self.request_id = ticket.request_id
        self.ticket = ticket
        self.text_ids = to_speak.text_ids or 0
        self._text_is_whole = to_speak.text_ids is not None
        self._parts = parts
        self._request = request
        self._sources = to_speak.sources
        self.times = Timeline(parts.clock, self.request_id, request)
        self._playback = self.times.playback
        self._error: StudioError | None = None
        self._reason = RequestAborted.code
        self._full = asyncio.Event()
        self._room = asyncio.Event()
        self.stream = SpeechStream(self.request_id, self._on_read, self._abort)
        self.stream.choice = to_speak.choice
        self.stream.text_ids = self.text_ids
        self._task = asyncio.create_task(self._run(), name=f"utterance {self.request_id}")
        # A task that is cancelled before its first step never reaches a `finally`; its callbacks run even so.
        self._task.add_done_callback(self._leave)

    def _leave(self, _: asyncio.Task[None]) -> None:
        self.ticket.leave()
        self.stream.let_go()

    def on_end(self, observer: Callable[[RequestSummary], None]) -> None:
        """Call the observer once when the request has ended and freed what it held, however it ended."""

        def ended(_: asyncio.Task[None]) -> None:
            reason = self._error.code if self._error else self._reason
            observer(self.times.summary(reason, len(self.stream.spoken)))

        self._task.add_done_callback(ended)

    async def _abort(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def fail(self, error: StudioError) -> None:
        """End the request now and tell its listener this error."""
        self._error = error
        self.stream.fail(error)
        self._task.cancel()

    async def ended(self) -> None:
        """Wait for the end, whatever it is."""
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            await self.ticket.turn()
            self.times.begin()
            await self._speak()
            self._reason = "stop"
            self.stream.finish()
        except StudioError as error:
            self._reason = error.code
            self.stream.fail(error)
        except Exception:
            logger.exception("request %s failed", self.request_id)
            self._reason = SynthesisError.code
            self.stream.fail(SynthesisError("internal"))

    async def _speak(self) -> None:
        rows: _Rows = asyncio.Queue()
        ahead = asyncio.Semaphore(1 + SEGMENTS_AHEAD)
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._watch_listener())
                group.create_task(self._make_tokens(rows, ahead))
                group.create_task(self._voice(rows, ahead)).add_done_callback(lambda _: watching.cancel())
        except* StudioError as errors:
            first: BaseException = errors
            while isinstance(first, BaseExceptionGroup):
                first = first.exceptions[0]
            error = first
        else:
            return
        raise error

    async def _make_tokens(self, rows: _Rows, ahead: asyncio.Semaphore) -> None:
        async with aclosing(self._sources):  # type: ignore[type-var]
            async for source in self._sources:
                await ahead.acquire()
                row, spoken = self._new_row(source.segment)
                rows.put_nowait((row, spoken))
                silences = Silences(self._parts.silent_tokens)
                await source.speak(row.row_id, partial(self._spoken, row, spoken, silences))
        rows.put_nowait(None)

    def _new_row(self, segment: Segment) -> tuple[Row, SpokenRow]:
        number = len(self.stream.spoken)
        row = Row(self._parts.voicing, f"{self.request_id}.{number}", self._playback)
        spoken = SpokenRow([], pause_before_s(segment, number), segment.pause_after_s)
        self.stream.spoken.append(spoken)
        self.times.characters += len(segment.text)
        if not self._text_is_whole:
            self.text_ids += len(segment.token_ids)
            self.stream.text_ids = self.text_ids
        return row, spoken

    def _spoken(
        self, row: Row, spoken: SpokenRow, silences: Silences, tokens: Sequence[int], final: bool
    ) -> None:
        tokens = silences.shortened(tokens)
        self.times.add_tokens(len(tokens))
        spoken.tokens.extend(tokens)
        row.offer(tokens, final)

    async def _voice(self, rows: _Rows, ahead: asyncio.Semaphore) -> None:
        # One guidance to the end, so that a change meanwhile leaves no take half and half.
        number, guidance = 0, self._parts.voicing.guidance
        while (voiced := await rows.get()) is not None:
            row, spoken = voiced
            retime = Retime(self._request.speed, self._request.pitch)
            silence = silence_of(spoken.pause_s)

            def on_samples(samples: Float32, retime: Retime = retime) -> None:
                nonlocal silence
                # In one piece, so that the first chunk is all that a player has until the next step: no pause alone.
                if len(made := retime.push(samples)):
                    self._hand_over(np.concatenate([silence, made]))
                    silence = silence[:0]

            await row.voice(self._request.voice, (self._request.seed + number) % SEEDS, on_samples, guidance)
            self._hand_over(np.concatenate([silence, retime.finish()]))
            self._hand_over(silence_of(spoken.pause_after_s))
            ahead.release()
            number += 1

    def _hand_over(self, samples: Float32) -> None:
        if not len(samples):
            return
        self.times.add_sound(len(samples))
        self.stream.push(samples)
        if self.stream.waiting_s > self._parts.max_ahead_s:
            self._playback.paused = self.times.held_up = True
            self._room.clear()
            self._full.set()

    def _on_read(self) -> None:
        if self._playback.paused:
            self._room.set()  # any reading shows that the listener is there
            if self.stream.waiting_s <= self._parts.max_ahead_s / 2:
                self._playback.paused = False
                self._full.clear()
                self._parts.voicing.wake()

    async def _watch_listener(self) -> None:
        """End the request of a listener who reads nothing for too long while sound waits for it."""
        while True:
            await self._full.wait()
            limit = asyncio.ensure_future(self._parts.sleep(self._parts.listener_timeout_s))
            reading = asyncio.create_task(self._room.wait())
            try:
                await asyncio.wait({limit, reading}, return_when=asyncio.FIRST_COMPLETED)
                if (
                    not reading.done()
                ):  # and not whether there is room: a step may have filled it again by now
                    raise RequestAborted("speech.listener_slow", seconds=self._parts.listener_timeout_s)
                self._room.clear()
            finally:
                limit.cancel()
                reading.cancel()
