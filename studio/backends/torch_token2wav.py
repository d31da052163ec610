"""Token2wav on torch, and the worker program around it: `python -m studio.backends.torch_token2wav --channel-fd N`.

Flow and vocoder step in one thread, all ready rows in one batch; the prompt encoder has a thread of its own. Every
state belongs to a row; the voices' prompt blocks are computed once and kept for the voices used last.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor

from studio.backends.serve import Report, Service, run_worker
from studio.errors import CheckpointError, StudioError, Token2WavError
from studio.models import weights
from studio.models.flow import Flow, FlowState, PromptFlowCache
from studio.models.hift import Hift
from studio.models.hift.streaming import HiftState
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

PROMPT_TAIL_TOKENS = LOOKAHEAD_TOKENS
"""Prompt tokens left behind the prompt's last whole block. With the look-ahead's 3 that block is cached with the
voice; with fewer it would wait for the first spoken tokens and be computed again in every row."""

DEFAULT_HEAD_DIM = 64
WARM_UP_TOKENS = 2 * BLOCK_TOKENS


@dataclass(slots=True)
class _Row:
    """One segment's states. ahead_tokens: tokens that the flow was shown already and the engine will give again."""

    flow: FlowState
    hift: HiftState
    ahead_tokens: int = 0


class TorchToken2Wav:
    """Rows by id over one flow and one vocoder. Owner: the one thread that calls it; never blocks on I/O."""

    def __init__(self, flow: Flow, hift: Hift, *, device: str = "cpu", voice_cache: int = 16) -> None:
        if hift.config.sample_rate_hz != SAMPLE_RATE_HZ or hift.config.samples_per_frame != MEL_HOP_SAMPLES:
            problem = f"makes {hift.config.samples_per_frame} samples a mel frame, not {MEL_HOP_SAMPLES}"
            raise CheckpointError("checkpoint.key", file="hift", tensor="ups", problem=problem)
        self._device = torch.device(device)
        self._flow = flow.to(self._device).eval()
        self._hift = hift.to(self._device).eval().fold_weight_norm()
        self._voice_cache = voice_cache
        self._voices: OrderedDict[str, PromptFlowCache] = OrderedDict()
        self._rows: dict[str, _Row] = {}
        self._steps = self._rows_stepped = 0
        self._step_seconds = self._audio_seconds = 0.0

    @classmethod
    def load(cls, folder: Path, *, device: str = "cpu", voice_cache: int = 16) -> TorchToken2Wav:
        """Flow and vocoder of a checkpoint folder. Raises CheckpointError naming the file and the first bad key."""
        try:
            flow_file, hift_file = _weight_file(folder, "flow"), _weight_file(folder, "hift")
            flow = Flow.from_file(flow_file, _estimator_head_dim(folder))
            hift = Hift.from_state(weights.read_tensors(hift_file), str(hift_file))
        except weights.CheckpointError as error:
            raise _as_studio_error(error, folder) from error
        return cls(flow, hift, device=device, voice_cache=voice_cache)

    def open(self, row_id: str, voice: VoicePrompt, seed: int) -> int:
        """Begin a row; gives the tokens that its first block needs."""
        state = self._flow.open(self._prompt(voice))
        self._rows[row_id] = _Row(state, self._hift.open(seed))
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
        results = [
            StepResult(row.row_id, waves.get(row.row_id), errors.get(row.row_id)) for row in rows
        ]
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
            + sum(prompt.bytes for prompt in self._voices.values()),
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
        del self._voices[voice.key]
        self._steps = self._rows_stepped = 0
        self._step_seconds = self._audio_seconds = 0.0

    def _prompt(self, voice: VoicePrompt) -> PromptFlowCache:
        """The voice's own blocks, computed when it is not among the voices used last."""
        if voice.key not in self._voices:
            self._voices[voice.key] = self._flow.prepare_prompt(
                torch.from_numpy(voice.speech_tokens.astype(np.int64)).to(self._device),
                torch.from_numpy(voice.mel).to(self._device),
                torch.from_numpy(voice.speaker_embedding).to(self._device),
                tail_tokens=PROMPT_TAIL_TOKENS,
            )
            while len(self._voices) > self._voice_cache:
                self._voices.popitem(last=False)
        self._voices.move_to_end(voice.key)
        return self._voices[voice.key]

    def _solve(self, rows: Sequence[RowStep], errors: dict[str, str]) -> dict[str, Tensor]:
        """New mel frames [80, F] of each row that went well."""
        new = {row.row_id: self._new_tokens(row) for row in rows}

        def solve(batch: Sequence[RowStep]) -> list[Tensor]:
            states = [self._rows[row.row_id].flow for row in batch]
            return self._flow.step(states, [new[row.row_id] for row in batch], [row.final for row in batch])

        mels = _batched(rows, solve, errors)
        for row in rows:
            self._rows[row.row_id].ahead_tokens = len(row.lookahead)
        return _finite(mels, "the mel is not finite", errors)

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


def _weight_file(folder: Path, name: str) -> Path:
    """The file of a part in a checkpoint folder: safetensors before the official .pt."""
    for suffix in (".safetensors", ".pt"):
        if (folder / (name + suffix)).is_file():
            return folder / (name + suffix)
    raise CheckpointError("checkpoint.missing_file", file=f"{name}.pt", folder=folder)


def _estimator_head_dim(folder: Path) -> int:
    """The one size that no tensor shows. The official yaml holds tags, not sizes; its head dimension is 64."""
    try:
        sizes = yaml.safe_load((folder / "cosyvoice2.yaml").read_text(encoding="utf-8"))["sizes"]
        return int(sizes["flow"]["est_head_dim"])
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        return DEFAULT_HEAD_DIM


def _as_studio_error(error: Exception, folder: Path) -> CheckpointError:
    return CheckpointError("checkpoint.unreadable", file=folder.name, folder=folder, reason=error)


def _wrap_error(error: Exception) -> StudioError:
    return Token2WavError("speech.token2wav_failed", reason=str(error))


async def _setup(settings: dict[str, Any], report: Report) -> Service:
    """Load flow, vocoder and prompt encoder. settings: rows of the settings table, of which others are passed over."""
    from studio.models.prompt.encoder import OnnxPromptEncoder

    began_s = time.monotonic()
    folder = Path(settings["model_dir"])
    device = _device(settings.get("device", "auto"))
    threads = _threads(settings.get("token2wav_threads", 0), settings.get("lm_threads", 0))
    torch.set_num_threads(threads)
    report("stage.weights", 0.3)
    token2wav = TorchToken2Wav.load(folder, device=device, voice_cache=settings.get("voice_cache", 16))
    try:
        encoder = OnnxPromptEncoder(folder, threads=threads)
    except weights.CheckpointError as error:
        raise _as_studio_error(error, folder) from error
    report("stage.warming", 0.8)
    loop = asyncio.get_running_loop()
    stepping, encoding = ThreadPoolExecutor(1, "token2wav"), ThreadPoolExecutor(1, "prompt encoder")
    await loop.run_in_executor(stepping, token2wav.warm_up)

    async def in_order(method: Callable[..., Any], **args: Any) -> Any:
        return await loop.run_in_executor(stepping, partial(method, **args))

    async def encode(samples: Float32, sample_rate_hz: int, prompt_text: str) -> VoicePrompt:
        return await loop.run_in_executor(encoding, encoder.encode, samples, sample_rate_hz, prompt_text)

    async def stats() -> Token2WavStats:
        # Not behind a running step: who looks at figures must not wait, and plain reads need no order.
        return token2wav.stats()

    handlers = {name: partial(in_order, getattr(token2wav, name)) for name in ("open", "step", "drop")}
    facts = {"device": device, "threads": threads, "start_s": round(time.monotonic() - began_s, 2)}
    return Service({**handlers, "encode": encode, "stats": stats}, facts=facts)


def _device(wanted: str) -> str:
    return ("cuda" if torch.cuda.is_available() else "cpu") if wanted == "auto" else wanted


def _threads(wanted: int, lm_threads: int) -> int:
    """0 means the cores that the speech LM leaves; of itself it takes half."""
    cores = len(os.sched_getaffinity(0))
    return wanted or max(1, cores - (lm_threads or max(1, cores // 2)))


if __name__ == "__main__":
    run_worker(_setup, _wrap_error)
