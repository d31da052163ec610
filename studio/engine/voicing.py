"""The token2wav loop: rows of all requests, batched by the scheduler, stepped one batch after the other.

It is driven by events: it sleeps until tokens come, a listener reads or a row closes. It knows rows, not requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from studio.engine.scheduler import Playback, RowScheduler, VoicedStep
from studio.errors import CapacityError, EngineDead, OutOfMemory, StudioError, Token2WavError
from studio.protocols import Clock, RowStep, Rung, StepResult, Token2Wav
from studio.speech import FIRST_BLOCK_TOKENS, Float32, VoicePrompt

logger = logging.getLogger(__name__)

OnStep = Callable[[Sequence[RowStep], float, float, float], None]
"""Told of each step that went well: how many seconds it took, and the flow and the vocoder of them, 0 if not told."""


class Row:
    """One segment of a request on its way through token2wav. Owner: its request."""

    def __init__(self, voicing: Voicing, row_id: str, playback: Playback) -> None:
        self.row_id = row_id
        self.playback = playback
        self.tokens = 0
        self._voicing = voicing
        self._early: list[int] = []
        self._early_final = False
        self._open = False
        self._on_samples: Callable[[Float32], None] | None = None
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def offer(self, tokens: Sequence[int], final: bool) -> None:
        """More speech tokens; kept here until the row is opened, for the LM may run ahead of the voice."""
        self.tokens += len(tokens)
        if self._open:
            self._voicing.offer(self.row_id, tokens, final)
        else:
            self._early.extend(tokens)
            self._early_final = self._early_final or final

    async def voice(
        self,
        voice: VoicePrompt,
        seed: int,
        on_samples: Callable[[Float32], None],
        guidance: float | None = None,
    ) -> None:
        """Open the row and hand its sound to on_samples until its final step; frees it however this ends.

        guidance: see protocols.Token2Wav.open.
        Raises: Token2WavError for this row; EngineDead or EngineNotReady for token2wav as a whole.
        """
        self._on_samples = on_samples
        try:
            await self._voicing.open(self, voice, seed, guidance)
            self._open = True
            self._voicing.offer(self.row_id, self._early, self._early_final)
            await self._ended
        finally:
            await self._voicing.close_row(self)

    def take(self, result: StepResult, final: bool) -> None:
        """The loop's side: a step's sound, or the error that ends the row."""
        if result.error is not None or result.samples is None:
            self.fail(Token2WavError("speech.token2wav_failed", reason=result.error or "no samples"))
            return
        if self._on_samples is not None and len(result.samples):
            self._on_samples(result.samples)
        if final and not self._ended.done():
            self._ended.set_result(None)

    def fail(self, error: StudioError) -> None:
        """The loop's side: the row cannot go on."""
        if not self._ended.done():
            self._ended.set_exception(error)
            self._ended.exception()  # seen, even if the request left before it could look

    @property
    def ended_well(self) -> bool:
        return self._ended.done() and not self._ended.cancelled() and self._ended.exception() is None


class Voicing:
    """All open rows and the loop that steps them. Owner: the engine's event loop."""

    def __init__(
        self,
        token2wav: Token2Wav,
        scheduler: RowScheduler,
        clock: Clock,
        on_step: OnStep,
        on_given_up: Callable[[Rung], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """on_given_up: told of each thing that is given up for memory."""
        self._token2wav = token2wav
        self.scheduler = scheduler
        self._clock = clock
        self._on_step = on_step
        self._on_given_up = on_given_up
        self._sleep = sleep
        self.batch_wait_s = 0.0
        """How long a step waits for more rows, while nobody would run dry."""
        self.guidance: float | None = None
        """Of requests that begin now; None for what token2wav was started with."""
        self.first_block_tokens = FIRST_BLOCK_TOKENS
        """What token2wav says of a row after a prompt of a second or more; for who asks before there is one."""
        self._rows: dict[str, Row] = {}
        self._wake = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None

    @property
    def rows_open(self) -> int:
        return len(self._rows)

    @property
    def first_sound_tokens(self) -> int:
        """Speech tokens, look-ahead included, that a request's first sound waits for now."""
        return self.scheduler.hops.first_sound_tokens(self.first_block_tokens)

    async def open(self, row: Row, voice: VoicePrompt, seed: int, guidance: float | None = None) -> None:
        """Begin a row in token2wav and let the scheduler see it."""
        arrived_s = self._clock()
        self._rows[row.row_id] = row
        first_block_tokens = await self._token2wav.open(row.row_id, voice, seed, guidance)
        self.scheduler.admit(row.row_id, first_block_tokens, arrived_s, row.playback)

    def offer(self, row_id: str, tokens: Sequence[int], final: bool) -> None:
        self.scheduler.offer(row_id, tokens, final)
        self._wake.set()

    def wake(self) -> None:
        """Something that readiness depends on has changed: a listener read."""
        self._wake.set()

    async def close_row(self, row: Row) -> None:
        """Forget a row here and, when it did not end by itself, in token2wav."""
        self._rows.pop(row.row_id, None)
        self.scheduler.drop(row.row_id)
        if not row.ended_well:
            with contextlib.suppress(StudioError):  # a worker that is gone holds no rows
                await self._token2wav.drop(row.row_id)

    def start(self, on_broken: Callable[[], None]) -> None:
        """Step batches until `close`. A loop that breaks, which is a bug, is told and started again."""
        self._loop = asyncio.create_task(self._run(), name="token2wav loop")
        self._loop.add_done_callback(partial(self._loop_ended, on_broken))

    async def close(self) -> None:
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)

    def _loop_ended(self, on_broken: Callable[[], None], loop: asyncio.Task[None]) -> None:
        if loop.cancelled():
            return
        logger.critical("the token2wav loop broke; this is a bug", exc_info=loop.exception())
        on_broken()
        self.start(on_broken)

    async def _run(self) -> None:
        """Step batches for ever; an error ends the rows it is about, never the loop."""
        while True:
            if self.batch_wait_s and self.scheduler.may_wait(self._clock(), self.batch_wait_s):
                await self._sleep(self.batch_wait_s)
            steps = self.scheduler.next_batch(self._clock())
            if not steps:
                self._wake.clear()
                await self._wake.wait()
                continue
            began_s = self._clock()
            try:
                results = await self._token2wav.step(steps)
            except Exception as error:
                self._fail(steps, error)
                continue
            ended_s = self._clock()
            flow_s, vocoder_s, worker_s = (
                sum(getattr(result, name) for result in results)
                for name in ("flow_s", "vocoder_s", "worker_s")
            )
            self._on_step(steps, ended_s - began_s, flow_s, vocoder_s)
            self._note_first(steps, (began_s, ended_s), (flow_s, vocoder_s, worker_s))
            self._deliver(steps, results)

    def _note_first(
        self, steps: Sequence[RowStep], span_s: tuple[float, float], told_s: tuple[float, float, float]
    ) -> None:
        """For each request whose first step this was, how it went. told_s: of flow, vocoder and worker."""
        for step in steps:
            if (row := self._rows.get(step.row_id)) and row.playback.first_step is None:
                tokens = len(step.tokens) + len(step.lookahead)
                row.playback.first_step = VoicedStep(*span_s, tokens, len(steps), *told_s)

    def _deliver(self, steps: Sequence[RowStep], results: Sequence[StepResult]) -> None:
        for rung in (rung for result in results for rung in result.given_up):
            self._on_given_up(rung)
        by_id = {result.row_id: result for result in results}
        for step in steps:
            if row := self._rows.get(step.row_id):
                missing = StepResult(step.row_id, None, "token2wav gave no result")
                row.take(by_id.get(step.row_id, missing), step.final)

    def _fail(self, steps: Sequence[RowStep], error: Exception) -> None:
        """A worker that died, or is a new one already, has lost every row; other errors are about this batch."""
        if not isinstance(error, StudioError):
            logger.error("a token2wav step failed", exc_info=error)
            error = Token2WavError("speech.token2wav_failed", reason=str(error))
        if isinstance(error, OutOfMemory):
            self._on_given_up("restart")
        all_lost = isinstance(error, EngineDead | CapacityError)
        lost = list(self._rows) if all_lost else [step.row_id for step in steps]
        for row_id in lost:
            if row := self._rows.get(row_id):
                row.fail(error)
