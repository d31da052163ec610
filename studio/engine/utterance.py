"""One request from its ticket to its last sample: every state that belongs to it, and nothing that does not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from studio.audio.retime import Retime
from studio.engine.admission import Ticket
from studio.engine.generation import IsPlausible, speak_segment
from studio.engine.quality import EFFORTS, Choice
from studio.engine.rates import least_prebuffer_s
from studio.engine.scheduler import Playback
from studio.engine.stats import RequestSummary
from studio.engine.stream import SpeechStream
from studio.engine.voicing import Row, Voicing
from studio.errors import RequestAborted, StudioError, SynthesisError
from studio.protocols import Clock, LmPrompt, SpeechLM
from studio.speech import SAMPLE_RATE_HZ, Float32, Segment, SynthesisRequest

logger = logging.getLogger(__name__)

SEGMENT_PAUSE_S = 0.15
ARRIVAL_JITTER_S = 0.1
"""How much later than it was handed over a chunk may reach a player: the socket and the page's own turn."""
SEGMENTS_AHEAD = 1
"""Segments whose tokens may be made before the one being heard has ended."""


def silence_of(seconds: float) -> Float32:
    return np.zeros(round(seconds * SAMPLE_RATE_HZ), np.float32)


@dataclass(frozen=True, slots=True)
class EngineParts:
    """What all utterances use in common."""

    lm: SpeechLM
    voicing: Voicing
    clock: Clock
    sleep: Callable[[float], Awaitable[None]]
    max_ahead_s: float
    listener_timeout_s: float
    is_plausible: IsPlausible = lambda text_ids, audio_s: True


class Utterance:
    """A request being served. Owner: its own task; `stream` is its consumer's end."""

    def __init__(
        self,
        parts: EngineParts,
        request_id: str,
        request: SynthesisRequest,
        prompt_ids: Sequence[int],
        segments: Sequence[Segment],
        ticket: Ticket,
        choice: Choice,
    ) -> None:
        self.request_id = request_id
        self.ticket = ticket
        self.text_ids = sum(len(segment.token_ids) for segment in segments)
        self._parts = parts
        self._request = request
        self._prompt_ids = tuple(prompt_ids)
        self._segments = segments
        self._playback = Playback()
        self._arrived_s = parts.clock()
        self._began_s: float | None = None
        self._last_chunk_s: float | None = None
        self._handed: list[tuple[float, float]] = []
        self._first_audio_s = 0.0
        self.tokens = 0
        self.promised_s = 0.0
        """Seconds to the first sound that it was promised when it came."""
        self._effort = EFFORTS[choice.quality]
        self._error: StudioError | None = None
        self._reason = RequestAborted.code
        self._held_up = False
        self._full = asyncio.Event()
        self._room = asyncio.Event()
        self.stream = SpeechStream(request_id, self._on_read, self._abort)
        self.stream.spoken = [[] for _ in segments]
        self.stream.choice = choice
        self._task = asyncio.create_task(self._run(), name=f"utterance {request_id}")

    @property
    def has_sound(self) -> bool:
        return self._playback.first_chunk_s is not None

    def on_end(self, observer: Callable[[RequestSummary], None]) -> None:
        """Call the observer once when the request has ended and freed what it held, however it ended."""

        def ended(_: asyncio.Task[None]) -> None:
            self.ticket.leave()
            observer(self._summary())

        # A task that is cancelled before its first step never reaches a `finally`; its callbacks run even so.
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
            self._began_s = self._parts.clock()
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
        rows = [
            Row(self._parts.voicing, f"{self.request_id}.{n}", self._playback) for n in range(len(self._segments))
        ]
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

    async def _make_tokens(self, rows: Sequence[Row], ahead: asyncio.Semaphore) -> None:
        for number, (row, segment) in enumerate(zip(rows, self._segments, strict=True)):
            await ahead.acquire()
            await self._generate(number, row, segment)

    async def _generate(self, number: int, row: Row, segment: Segment) -> None:
        """One segment's tokens, offered to its row."""
        if self._request.spoken:
            self._spoken(number, row, self._request.spoken[number], final=True)
            return
        voice = self._request.voice
        heard = voice.speech_tokens if self._request.mode == "zero_shot" else voice.speech_tokens[:0]
        await speak_segment(
            self._parts.lm,
            LmPrompt(self._prompt_ids, tuple(segment.token_ids), heard),
            replace(self._request.sampling, seed=self._seed(number)),
            row.row_id,
            self._effort,
            self._parts.is_plausible,
            lambda tokens, final: self._spoken(number, row, tokens, final),
        )

    def _spoken(self, number: int, row: Row, tokens: Sequence[int], final: bool) -> None:
        self.tokens += len(tokens)
        self.stream.spoken[number].extend(tokens)
        row.offer(tokens, final)

    async def _voice(self, rows: Sequence[Row], ahead: asyncio.Semaphore) -> None:
        for number, (row, segment) in enumerate(zip(rows, self._segments, strict=True)):
            retime = Retime(self._request.speed, self._request.pitch)
            usual_s = SEGMENT_PAUSE_S if number else 0.0
            silence = silence_of(usual_s if segment.pause_s is None else segment.pause_s)

            def on_samples(samples: Float32, retime: Retime = retime) -> None:
                nonlocal silence
                self._hand_over(silence)
                silence = silence[:0]
                self._hand_over(retime.push(samples))

            await row.voice(self._request.voice, self._seed(number), on_samples)
            self._hand_over(retime.finish())
            self._hand_over(silence_of(segment.pause_after_s))
            ahead.release()

    def _hand_over(self, samples: Float32) -> None:
        if not len(samples):
            return
        now_s = self._parts.clock()
        if self._playback.first_chunk_s is None:
            self._playback.first_chunk_s = now_s
            self._first_audio_s = len(samples) / SAMPLE_RATE_HZ
        self._last_chunk_s = now_s
        self._handed.append((now_s, len(samples) / SAMPLE_RATE_HZ))
        self._playback.audio_s += len(samples) / SAMPLE_RATE_HZ
        self.stream.push(samples)
        if self.stream.waiting_s > self._parts.max_ahead_s:
            self._playback.paused = self._held_up = True
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
                if not self._room.is_set():
                    raise RequestAborted("speech.listener_slow", seconds=self._parts.listener_timeout_s)
                self._room.clear()
            finally:
                limit.cancel()
                reading.cancel()

    def _seed(self, number: int) -> int:
        return (self._request.sampling.seed + number) % (1 << 32)

    def _rate(self) -> float | None:
        first_s, last_s = self._playback.first_chunk_s, self._last_chunk_s
        if first_s is None or last_s is None or last_s <= first_s or self._held_up:
            return None
        return (self._playback.audio_s - self._first_audio_s) / (last_s - first_s)

    def _summary(self) -> RequestSummary:
        now_s = self._parts.clock()
        began_s, first_s, last_s = self._began_s, self._playback.first_chunk_s, self._last_chunk_s
        audio_s = self._playback.audio_s
        return RequestSummary(
            request_id=self.request_id,
            voice_key=self._request.voice.key,
            client=self._request.client,
            characters=len(self._request.text),
            segments=len(self._segments),
            tokens=self.tokens,
            audio_s=audio_s,
            queue_s=(now_s if began_s is None else began_s) - self._arrived_s,
            ttfa_s=None if first_s is None else first_s - self._arrived_s,
            rtf=None if began_s is None or last_s is None or not audio_s else (last_s - began_s) / audio_s,
            rate=self._rate(),
            ended_s=now_s,
            reason=self._error.code if self._error else self._reason,
            needed_s=0.0 if self._held_up else least_prebuffer_s(self._handed, ARRIVAL_JITTER_S),
            promised_s=self.promised_s,
            speed=self._request.speed,
        )
