"""Rows of token2wav on torch: flow and vocoder step all ready rows in one batch, each row's state its own.

It loads no files, starts no thread and knows no process; `torch_token2wav.py` does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from studio.backends.torch_fetch import fetch, reserve
from studio.backends.torch_ladder import Ladder, Runs, out_of_memory
from studio.backends.torch_pages import PageTurns
from studio.backends.torch_row import TorchRow
from studio.backends.torch_seams import StreamFlow, StreamVocoder
from studio.backends.torch_spans import Spans
from studio.backends.torch_voices import FlowKey, TorchVoices
from studio.models.flow.paged import PagedFlow
from studio.models.flow.sizes import BLOCK_FRAMES
from studio.models.hift.window import WindowedHift, WindowState
from studio.models.weights import WeightsError
from studio.protocols import Clock, RowStep, StepResult, Token2WavStats
from studio.speech import (
    BLOCK_TOKENS,
    FIRST_BLOCK_TOKENS,
    LOOKAHEAD_TOKENS,
    MEL_BINS,
    MEL_HOP_SAMPLES,
    SAMPLE_RATE_HZ,
    SPEAKER_DIM,
    VoicePrompt,
)

TURN_BLOCKS = 1
"""Blocks of a voice's prompt in one turn while rows are open: as long as a step, so that streams go on."""
TURN_BLOCKS_ALONE = 2
"""The same with no row open: a fifth less a block on a CPU; four cost no less, and a newcomer would wait longer."""
TURN_BLOCKS_IN_PAGES = 32
"""On a GPU the blocks of a prompt lie in one pack and cost little more than one: nearly every prompt is one turn."""

WARM_UP_TOKENS = 2 * BLOCK_TOKENS

T = TypeVar("T")


class TorchToken2Wav:
    """Rows by id over one flow and one vocoder. Owner: the one thread that calls it; never blocks on I/O."""

    def __init__(
        self,
        flow: StreamFlow,
        hift: StreamVocoder,
        *,
        voice_cache: int = 16,
        voice_cache_bytes: int = 0,
        pool_bytes: int = 0,
        storage: torch.dtype = torch.float32,
        first_block_tokens: int = FIRST_BLOCK_TOKENS,
        clock: Clock = time.monotonic,
    ) -> None:
        """flow, hift: on their device, ready for inference. pool_bytes: of the caches of rows and voices, 0 for no
        bound; beyond it caches are computed again. storage: in which keys and values of the flow are kept. A paged flow
        has both of its own. first_block_tokens: see TorchVoices."""
        if hift.config.sample_rate_hz != SAMPLE_RATE_HZ or hift.config.samples_per_frame != MEL_HOP_SAMPLES:
            found = hift.config.samples_per_frame
            raise WeightsError(f"hift: ups makes {found} samples a mel frame, not {MEL_HOP_SAMPLES}")
        self._flow = flow
        self._hift = hift
        self._clock = clock
        self._voices = TorchVoices(self._flow, voice_cache, voice_cache_bytes, storage, first_block_tokens)
        self._pool_bytes = pool_bytes
        self._rows: dict[str, TorchRow] = {}
        self._ladder = Ladder()
        self._turns: PageTurns | None = None
        if isinstance(flow, PagedFlow):
            self._turns = PageTurns(flow, self._rows, self._rewind, self._evict_voices, clock)
        fitting = list if self._turns is None else self._turns.fitting
        joint = Runs(self._ladder, lambda row: self._rows[row.row_id].joint, self._relieve)
        self._vocoder_runs, self._flow_runs = joint, replace(joint, fitting=fitting)
        self._steps = self._rows_stepped = 0
        self._step_seconds = self._audio_seconds = 0.0
        self._frame_bytes = 0  # that the flow keeps, of a prompt or spoken; known after `warm_up`

    @property
    def speech_codes(self) -> int:
        """Speech tokens that the flow knows; the speech LM must know as many."""
        return self._flow.config.speech_tokens

    def key_of(self, voice: VoicePrompt, guidance: float | None = None) -> FlowKey:
        """The same for all who wait for one prompt in the flow. guidance: see `open`."""
        return self._voices.of(voice, guidance).key

    def prepare(self, voice: VoicePrompt, guidance: float | None = None) -> bool:
        """Compute a few blocks of a voice's prompt ahead of `open`; gives whether the voice is ready now.

        One that there is no memory for counts as ready: its rows are computed without its cache. guidance: see `open`.
        """
        in_flow = self._voices.of(voice, guidance)
        blocks = TURN_BLOCKS if self._rows else TURN_BLOCKS_ALONE
        if isinstance(self._flow, PagedFlow) and self._flow.device.type == "cuda":
            blocks = TURN_BLOCKS_IN_PAGES
        try:
            return self._with_room(lambda: self._voices.prepare(in_flow, blocks))
        except torch.OutOfMemoryError:
            pass
        self._voices.give_up(in_flow.key)
        return True

    def give_up(self, voice: VoicePrompt, guidance: float | None = None) -> None:
        """Forget what is prepared of a voice that is not ready: nobody waits for it any more."""
        self._voices.give_up(self.key_of(voice, guidance))

    def open(self, row_id: str, voice: VoicePrompt, seed: int, guidance: float | None = None) -> int:
        """Begin a row; gives the tokens that its first block needs.

        guidance: of its solve, to its end and whatever rows beside it have; None for the flow's own.
        """
        state, in_flow = None, self._voices.of(voice, guidance)
        try:
            state = self._with_room(lambda: self._flow.open(self._voices.get(in_flow)), in_flow.key)
        except torch.OutOfMemoryError:
            self._ladder.take("recompute")
            self._voices.give_up(in_flow.key)
        hift, tail = self._hift.open(seed), self._voices.tail_tokens
        self._rows[row_id] = row = TorchRow(in_flow, state, hift, tail, stepped_s=self._clock())
        return row.first_block_tokens

    def drop(self, row_id: str) -> None:
        """Forget a row; unknown ids are ignored."""
        if (row := self._rows.pop(row_id, None)) is None:
            return
        row.release()
        if isinstance(self._hift, WindowedHift) and isinstance(row.hift, WindowState):
            self._hift.release(row.hift)

    @torch.inference_mode()
    def step(self, rows: Sequence[RowStep]) -> list[StepResult]:
        """Voice every row's new speech tokens and advance its state; see protocols.Token2Wav.step.

        A row that is unknown, too long or not finite ends with an error of its own; the others go on. Where memory is
        full, `_relieve` makes room as long as it can. Raises OutOfMemory after that.
        """
        began_s = time.monotonic()
        errors: dict[str, str] = {row.row_id: "no such row" for row in rows if row.row_id not in self._rows}
        self._keep_within_pool()
        known = [row for row in rows if row.row_id not in errors]
        going = self._going(known)
        spans = Spans(self._flow.device)
        mels = self._flow_runs.computed(going, self._solve, "flow", errors)
        spans.mark()
        heard = [row for row in going if row.row_id in mels]
        waves = self._vocoder_runs.computed(heard, lambda run: self._vocode(run, mels), "vocoder", errors)
        spans.mark()
        # The host waits for the device here alone: a row that is not finite harms no other on its way.
        samples, bad = fetch(mels, waves)
        errors |= bad
        for row_id in {row.row_id for row in known} - {row.row_id for row in going}:
            samples[row_id] = np.zeros(0, np.float32)
        results = [StepResult(row.row_id, samples.get(row.row_id), errors.get(row.row_id)) for row in rows]
        for row in rows:
            if row.final or row.row_id in errors:
                self.drop(row.row_id)
        self._count(results, time.monotonic() - began_s)
        if not results:
            return []
        flow_s, vocoder_s = spans.seconds()
        told = replace(results[0], given_up=self._ladder.told(), flow_s=flow_s, vocoder_s=vocoder_s)
        return [told, *results[1:]]

    def stats(self) -> Token2WavStats:
        rows = list(self._rows.values())  # whoever looks at figures does so from another thread
        return Token2WavStats(
            rows_open=len(rows),
            steps=self._steps,
            rows_stepped=self._rows_stepped,
            step_seconds_total=self._step_seconds,
            audio_seconds_total=self._audio_seconds,
            state_bytes=sum(row.bytes for row in rows) + self._voices.bytes,
            voices_cached=len(self._voices),
            rows_uncached=sum(row.flow is None for row in rows),
            **self._pages(),
        )

    def _pages(self) -> dict[str, int]:
        if not isinstance(self._flow, PagedFlow):
            return {}
        found = self._flow.pool.figures()
        return {
            "flow_pages": found.pages, "flow_pages_free": found.free, "flow_pages_shared": found.shared,
            "flow_page_bytes": found.page_bytes,
        }  # fmt: skip

    def warm_up(self, progress: Callable[[float], None] = lambda done: None) -> None:
        """Capture the graphs of all shapes and run short rows, so that the first listener does not pay for kernels
        being chosen and memory taken. progress: told what part is done, 0..1."""
        if isinstance(self._flow, PagedFlow):
            self._flow.warm_up(lambda done: progress(0.6 * done))
        if isinstance(self._hift, WindowedHift):
            self._hift.warm_up()
        reserve(self._flow.device)
        progress(0.9)
        voice = VoicePrompt(
            "warm-up", "", np.zeros(WARM_UP_TOKENS, np.int32), np.full((2 * WARM_UP_TOKENS, MEL_BINS), -6, np.float32),
            np.ones(SPEAKER_DIM, np.float32),
        )  # fmt: skip
        for rows in (1, 3) if self._flow.device.type == "cuda" else (1,):
            ids = [f"warm-up {number}" for number in range(rows)]
            first = max(self.open(row_id, voice, 0) for row_id in ids)
            begin = np.zeros(first, np.int32), np.zeros(LOOKAHEAD_TOKENS, np.int32)
            rest = np.zeros(BLOCK_TOKENS, np.int32), np.zeros(0, np.int32)
            self.step([RowStep(row_id, *begin, False) for row_id in ids])
            self.step([RowStep(row_id, *rest, True) for row_id in ids])
        in_flow = self._voices.of(voice)
        cached = self._voices.get(in_flow)
        self._frame_bytes = cached.bytes // max(1, cached.frames)
        self._voices.forget(in_flow.key)
        self._steps = self._rows_stepped = 0
        self._step_seconds = self._audio_seconds = 0.0

    def facts(self) -> dict[str, Any]:
        """What planner and page read of it, once it is warm."""
        found: dict[str, Any] = {
            "flow_steps": self._flow.steps, "flow_frame_bytes": self._frame_bytes,
            "first_block_tokens": BLOCK_TOKENS - self._voices.tail_tokens,
        }  # fmt: skip
        if not isinstance(self._flow, PagedFlow):
            return found | {"flow_cache": "grown"}
        types = {
            "flow_precision": self._flow.pool.stores[-1].keys_values.dtype,
            "flow_dtype": self._flow.compute,
        }
        if isinstance(self._hift, WindowedHift):
            found["vocoder_precision"] = self._hift.precision
        return found | {
            "flow_cache": "pages", **{name: str(of).removeprefix("torch.") for name, of in types.items()},
            **self._pages(), "flow_graphs": len(self._flow.graphs),
        }  # fmt: skip

    def _relieve(self, run: Sequence[RowStep]) -> None:
        """Give up the next thing for the sake of memory, the cheapest first. Raises OutOfMemory if none is left."""
        row = self._rows[run[0].row_id]
        if len(run) > 1:
            self._ladder.halve(len(run))
        elif self._evict_voices():
            pass
        elif row.flow is not None and not row.small_hops:
            row.small_hops = True
            self._ladder.take("smaller_hop")
        elif not self._forget_largest():
            raise out_of_memory()

    def _going(self, steps: Sequence[RowStep]) -> Sequence[RowStep]:
        """The steps but for those that wait for pages, whose tokens their rows keep."""
        put_off = self._turns.waiting(steps) if self._turns else []
        if not put_off:
            return steps
        self._ladder.take("smaller_batch")
        for step in put_off:
            self._rows[step.row_id].waits(step)
        waiting = {step.row_id for step in put_off}
        return [step for step in steps if step.row_id not in waiting]

    def _rewind(self, row: TorchRow) -> None:
        """Give a row's pages back; the flow computes its frames again when there are pages once more."""
        self._ladder.take("recompute")
        row.release()
        try:
            prompt = self._voices.get(row.voice)
        except torch.OutOfMemoryError:
            self._voices.give_up(row.voice.key)  # from now on it is computed without a cache
            return
        row.rewind(self._flow.open(prompt))

    def _evict_voices(self, *used: FlowKey) -> bool:
        """Forget the voices that no row uses, but for some; whether there were any."""
        evicted = self._voices.evict({*used, *self._voices_in_use()})
        if evicted:
            self._ladder.take("forget_voices")
        return evicted

    def _voices_in_use(self) -> set[FlowKey]:
        return {row.voice.key for row in self._rows.values() if row.flow is not None}

    def _forget_largest(self) -> bool:
        """Let the row with the largest cache be computed without one from now on; whether there was one."""
        cached = [row for row in self._rows.values() if row.flow is not None]
        if not cached:
            return False
        max(cached, key=lambda row: row.bytes).release()
        self._ladder.take("recompute")
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        return True

    def _keep_within_pool(self) -> None:
        """Before a step: caches of rows and voices within their pool, if there is one."""
        while self._pool_bytes and self.stats().state_bytes > self._pool_bytes:
            if not self._evict_voices() and not self._forget_largest():
                return

    def _with_room(self, compute: Callable[[], T], *used: FlowKey) -> T:
        """Compute; where memory is full, once more without the voices that no row uses, and with the pages of rows.

        used: voices besides. compute leaves all as it was when it fails.
        """
        try:
            return compute()
        except torch.OutOfMemoryError:
            pass
        # Out of the handler, whose error holds on to the tensors of the failed try.
        self._evict_voices(*used)
        for row in self._turns.others() if self._turns else ():
            try:
                return compute()
            except torch.OutOfMemoryError:
                pass
            self._rewind(row)
        return compute()

    def _solve(self, run: Sequence[RowStep]) -> list[Tensor]:
        """New mel frames [80, F] of each row."""
        rows = [self._rows[step.row_id] for step in run]
        if not rows[0].joint:
            mels = [rows[0].solve_alone(self._flow, run[0])]
            rows[0].took(run[0])
            return mels
        states = [row.flow for row in rows if row.flow is not None]
        new = [row.new_tokens(step) for row, step in zip(rows, run, strict=True)]
        given = self._flow.step(states, new, [step.final for step in run])
        mels = [row.gave(mel) for row, mel in zip(rows, given, strict=True)]
        for row, step in zip(rows, run, strict=True):
            row.took(step)
        return mels

    def _vocode(self, run: Sequence[RowStep], mels: Mapping[str, Tensor]) -> list[Tensor]:
        """Samples [S] of each row."""
        rows = [self._rows[step.row_id] for step in run]
        states = [row.hift.copy() for row in rows]
        given = [mels[step.row_id] for step in run]
        if rows[0].joint or isinstance(self._hift, WindowedHift):
            # Windows are parted by themselves; a step for each part would write over the state it began from.
            waves = self._hift.step(states, given, [step.final for step in run])
        else:
            pieces = given[0].split(BLOCK_FRAMES, dim=1)
            finals = [run[0].final and number == len(pieces) for number in range(1, len(pieces) + 1)]
            parts = [self._hift.step(states, [p], [f])[0] for p, f in zip(pieces, finals, strict=True)]
            waves = [torch.cat(parts)]
        for row, state in zip(rows, states, strict=True):
            row.hift = state
        return waves

    def _count(self, results: Sequence[StepResult], seconds: float) -> None:
        self._steps += 1
        self._rows_stepped += len(results)
        self._step_seconds += seconds
        samples = sum(len(result.samples) for result in results if result.samples is not None)
        self._audio_seconds += samples / SAMPLE_RATE_HZ
