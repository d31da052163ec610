"""Rows of token2wav on torch: flow and vocoder step all ready rows in one batch, each row's state its own.

It loads no files, starts no thread and knows no process; `torch_token2wav.py` does.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from studio.backends.torch_device import raise_if_lost
from studio.backends.torch_voices import TorchVoices
from studio.models.flow import Flow, FlowState
from studio.models.hift import CausalHift, Hift
from studio.models.hift.causal import CausalState
from studio.models.hift.streaming import HiftState
from studio.models.weights import WeightsError
from studio.protocols import RowStep, StepResult, Token2WavStats
from studio.speech import (
    BLOCK_TOKENS,
    LOOKAHEAD_TOKENS,
    MEL_BINS,
    MEL_HOP_SAMPLES,
    SAMPLE_RATE_HZ,
    SPEAKER_DIM,
    Float32,
    VoicePrompt,
)

logger = logging.getLogger(__name__)

TURN_BLOCKS = 1
"""Blocks of a voice's prompt in one turn while rows are open: as long as a step, so that streams go on."""
TURN_BLOCKS_ALONE = 2
"""The same with no row open: a fifth less a block on a CPU; four cost no less, and a newcomer would wait longer."""

WARM_UP_TOKENS = 2 * BLOCK_TOKENS

T = TypeVar("T")


@dataclass(slots=True)
class _Row:
    """One segment's states. voice: its key.

    ahead_tokens: tokens that the flow was shown already and the engine will give again.
    """

    voice: str
    flow: FlowState
    hift: HiftState | CausalState
    ahead_tokens: int = 0


class TorchToken2Wav:
    """Rows by id over one flow and one vocoder. Owner: the one thread that calls it; never blocks on I/O."""

    def __init__(
        self,
        flow: Flow,
        hift: Hift | CausalHift,
        *,
        device: str = "cpu",
        voice_cache: int = 16,
        voice_cache_bytes: int = 0,
    ) -> None:
        if hift.config.sample_rate_hz != SAMPLE_RATE_HZ or hift.config.samples_per_frame != MEL_HOP_SAMPLES:
            found = hift.config.samples_per_frame
            raise WeightsError(f"hift: ups makes {found} samples a mel frame, not {MEL_HOP_SAMPLES}")
        self._device = torch.device(device)
        self._flow = flow.to(self._device).eval()
        self._hift = hift.to(self._device).eval().fold_weight_norm()
        self._voices = TorchVoices(self._flow, voice_cache, voice_cache_bytes)
        self._rows: dict[str, _Row] = {}
        self._steps = self._rows_stepped = 0
        self._step_seconds = self._audio_seconds = 0.0

    @property
    def speech_codes(self) -> int:
        """Speech tokens that the flow knows; the speech LM must know as many."""
        return self._flow.config.speech_tokens

    @property
    def flow_steps(self) -> int:
        """Euler steps of a solve."""
        return self._flow.steps

    def prepare(self, voice: VoicePrompt) -> bool:
        """Compute a few blocks of a voice's prompt ahead of `open`; gives whether the voice is ready now."""
        blocks = TURN_BLOCKS if self._rows else TURN_BLOCKS_ALONE
        return self._with_room(lambda: self._voices.prepare(voice, blocks))

    def open(self, row_id: str, voice: VoicePrompt, seed: int) -> int:
        """Begin a row; gives the tokens that its first block needs."""
        state = self._with_room(lambda: self._flow.open(self._voices.get(voice)), voice.key)
        self._rows[row_id] = _Row(voice.key, state, self._hift.open(seed))
        return state.first_block_tokens

    def drop(self, row_id: str) -> None:
        """Forget a row; unknown ids are ignored."""
        self._rows.pop(row_id, None)

    @torch.inference_mode()
    def step(self, rows: Sequence[RowStep]) -> list[StepResult]:
        """Voice every row's new speech tokens and advance its state; see protocols.Token2Wav.step.

        A row that is unknown, too long or not finite ends with an error of its own; the others go on.
        """
        began_s = time.monotonic()
        errors: dict[str, str] = {row.row_id: "no such row" for row in rows if row.row_id not in self._rows}
        mels = self._solve([row for row in rows if row.row_id not in errors], errors)
        waves = self._vocode([row for row in rows if row.row_id in mels], mels, errors)
        results = [StepResult(row.row_id, waves.get(row.row_id), errors.get(row.row_id)) for row in rows]
        for row in rows:
            if row.final or row.row_id in errors:
                self.drop(row.row_id)
        self._count(results, time.monotonic() - began_s)
        return results

    def stats(self) -> Token2WavStats:
        return Token2WavStats(
            rows_open=len(self._rows),
            steps=self._steps,
            rows_stepped=self._rows_stepped,
            step_seconds_total=self._step_seconds,
            audio_seconds_total=self._audio_seconds,
            state_bytes=sum(row.flow.bytes + row.hift.bytes() for row in self._rows.values())
            + self._voices.bytes,
            voices_cached=len(self._voices),
        )

    def warm_up(self) -> None:
        """Run one short row, so that the first listener does not pay for kernels being chosen and memory taken."""
        voice = VoicePrompt(
            "warm-up", "", np.zeros(WARM_UP_TOKENS, np.int32), np.full((2 * WARM_UP_TOKENS, MEL_BINS), -6, np.float32),
            np.ones(SPEAKER_DIM, np.float32),
        )  # fmt: skip
        first = self.open("warm-up", voice, 0)
        tokens = np.zeros(first, np.int32)
        self.step([RowStep("warm-up", tokens, np.zeros(LOOKAHEAD_TOKENS, np.int32), False)])
        self.step([RowStep("warm-up", np.zeros(BLOCK_TOKENS, np.int32), np.zeros(0, np.int32), True)])
        self._voices.forget(voice.key)
        self._steps = self._rows_stepped = 0
        self._step_seconds = self._audio_seconds = 0.0

    def _solve(self, rows: Sequence[RowStep], errors: dict[str, str]) -> dict[str, Tensor]:
        """New mel frames [80, F] of each row that went well."""
        new = {row.row_id: self._new_tokens(row) for row in rows}

        def solve(batch: Sequence[RowStep]) -> list[Tensor]:
            states = [self._rows[row.row_id].flow for row in batch]
            tokens, finals = [new[row.row_id] for row in batch], [row.final for row in batch]
            return self._with_room(lambda: self._flow.step(states, tokens, finals))

        mels = _batched(rows, solve, errors)
        for row in rows:
            self._rows[row.row_id].ahead_tokens = len(row.lookahead)
        return _finite(mels, "the mel is not finite", errors)

    def _with_room(self, compute: Callable[[], T], *used: str) -> T:
        """Compute; where a GPU's memory is full, once more without the voices that no row uses.

        used: voices besides. compute leaves all as it was when it fails.
        """
        try:
            return compute()
        except torch.OutOfMemoryError:
            logger.warning("the GPU's memory is full: voices that are not in use are forgotten")
        # Out of the handler, whose error holds on to the tensors of the failed try.
        self._voices.evict({*used, *(row.voice for row in self._rows.values())})
        return compute()

    def _new_tokens(self, row: RowStep) -> Tensor:
        """What the flow has not seen yet: the row's tokens and look-ahead, less the look-ahead of last time."""
        seen = self._rows[row.row_id].ahead_tokens
        return torch.from_numpy(np.concatenate([row.tokens, row.lookahead])[seen:].astype(np.int64))

    def _vocode(
        self, rows: Sequence[RowStep], mels: dict[str, Tensor], errors: dict[str, str]
    ) -> dict[str, Float32]:
        """Samples of each row that went well. The vocoder takes the mel before it can fail, so no second try."""
        if not rows:
            return {}
        try:
            waves = self._hift.step(
                [self._rows[row.row_id].hift for row in rows],
                [mels[row.row_id] for row in rows],
                [row.final for row in rows],
            )
        except Exception as error:
            raise_if_lost(error)
            logger.exception("the vocoder failed")
            errors.update({row.row_id: f"vocoder: {error}" for row in rows})
            return {}
        found = dict(zip([row.row_id for row in rows], waves, strict=True))
        finite = _finite(found, "the sound is not finite", errors)
        return {row_id: wave.float().cpu().numpy() for row_id, wave in finite.items()}

    def _count(self, results: Sequence[StepResult], seconds: float) -> None:
        self._steps += 1
        self._rows_stepped += len(results)
        self._step_seconds += seconds
        samples = sum(len(result.samples) for result in results if result.samples is not None)
        self._audio_seconds += samples / SAMPLE_RATE_HZ


def _batched(
    rows: Sequence[RowStep], solve: Callable[[Sequence[RowStep]], list[Tensor]], errors: dict[str, str]
) -> dict[str, Tensor]:
    """All rows in one batch; if that fails, each alone, so that only the row at fault ends.

    The flow leaves every state as it was when it fails.
    """
    if not rows:
        return {}
    try:
        return {row.row_id: mel for row, mel in zip(rows, solve(rows), strict=True)}
    except Exception as error:
        raise_if_lost(error)
        if len(rows) == 1:
            logger.exception("the flow failed")
            errors[rows[0].row_id] = f"flow: {error}"
            return {}
    found: dict[str, Tensor] = {}
    for row in rows:
        found |= _batched([row], solve, errors)
    return found


def _finite(tensors: dict[str, Tensor], problem: str, errors: dict[str, str]) -> dict[str, Tensor]:
    """Those without NaN and infinity; the others get an error."""
    bad = {row_id for row_id, tensor in tensors.items() if not bool(torch.isfinite(tensor).all())}
    errors.update(dict.fromkeys(bad, problem))
    return {row_id: tensor for row_id, tensor in tensors.items() if row_id not in bad}
