"""Rows of token2wav as upstream streams them, faults included, behind the same seam: for comparing by ear.

Every row is stepped by itself, and its whole prefix is flowed again at each hop; `torch_rows.py` is what the studio
speaks with.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from studio.backends.torch_voices import FlowKey
from studio.models.flow import Flow
from studio.models.hift import Hift
from studio.models.upstream import Hop, UpstreamStream, with_upstream_phase
from studio.protocols import RowStep, StepResult, Token2WavStats
from studio.speech import SAMPLE_RATE_HZ, VoicePrompt

logger = logging.getLogger(__name__)


class UpstreamToken2Wav:
    """Rows by id; one hop for all of them, as upstream has it. Owner: the one thread that calls it."""

    def __init__(self, flow: Flow, hift: Hift, *, device: str = "cpu") -> None:
        self._device = torch.device(device)
        self._flow = flow.to(self._device).eval()
        self._hift = with_upstream_phase(hift.to(self._device))
        self._hop = Hop()
        self._rows: dict[str, tuple[UpstreamStream, int]] = {}  # with the look-ahead tokens shown already
        self._steps = self._rows_stepped = 0
        self._step_seconds = self._audio_seconds = 0.0

    @property
    def speech_codes(self) -> int:
        """Speech tokens that the flow knows."""
        return self._flow.config.speech_tokens

    def facts(self) -> dict[str, Any]:
        """What planner and page read; it keeps nothing of a frame."""
        return {"flow_steps": self._flow.steps, "flow_frame_bytes": 0}

    def warm_up(self, progress: Callable[[float], None]) -> None:
        """Nothing: there is no one to hurry for."""

    def key_of(self, voice: VoicePrompt, guidance: float | None = None) -> FlowKey:
        """See `TorchToken2Wav.key_of`."""
        return voice.key, self._flow.guidance if guidance is None else guidance

    def prepare(self, voice: VoicePrompt, guidance: float | None = None) -> bool:
        """Ready at once, since upstream keeps nothing of a voice."""
        return True

    def give_up(self, voice: VoicePrompt, guidance: float | None = None) -> None:
        """There is nothing of a voice."""

    def open(self, row_id: str, voice: VoicePrompt, seed: int, guidance: float | None = None) -> int:
        """Begin a row; gives the tokens of its first chunk, prompt alignment included. guidance: None: the flow's."""
        prompt = (
            torch.from_numpy(voice.speech_tokens.astype(np.int64)).to(self._device),
            torch.from_numpy(voice.mel).to(self._device),
            torch.from_numpy(voice.speaker_embedding).to(self._device),
        )
        noise = partial(self._hift.draw_noise, seed=seed)
        stream = UpstreamStream(self._flow, self._hift, self._hop, prompt, noise, guidance)
        self._rows[row_id] = (stream, 0)
        return stream.next_chunk_tokens

    def drop(self, row_id: str) -> None:
        self._rows.pop(row_id, None)

    def step(self, rows: Sequence[RowStep]) -> list[StepResult]:
        """See protocols.Token2Wav.step; a row gives nothing until its own hop is full."""
        began_s = time.monotonic()
        results = [self._step(row) for row in rows]
        self._steps += 1
        self._rows_stepped += len(rows)
        self._step_seconds += time.monotonic() - began_s
        return results

    def _step(self, row: RowStep) -> StepResult:
        if row.row_id not in self._rows:
            return StepResult(row.row_id, None, "no such row")
        stream, seen = self._rows[row.row_id]
        new = np.concatenate([row.tokens, row.lookahead])[seen:].astype(np.int64)
        self._rows[row.row_id] = (stream, len(row.lookahead))
        try:
            chunks = [c.speech.float().cpu().numpy() for c in stream.push(torch.from_numpy(new), row.final)]
        except Exception as error:
            logger.exception("the upstream stream failed")
            self.drop(row.row_id)
            return StepResult(row.row_id, None, str(error))
        if row.final:
            self.drop(row.row_id)
        samples = np.concatenate(chunks) if chunks else np.zeros(0, np.float32)
        self._audio_seconds += len(samples) / SAMPLE_RATE_HZ
        return StepResult(row.row_id, samples)

    def stats(self) -> Token2WavStats:
        return Token2WavStats(
            rows_open=len(self._rows),
            steps=self._steps,
            rows_stepped=self._rows_stepped,
            step_seconds_total=self._step_seconds,
            audio_seconds_total=self._audio_seconds,
        )
