"""Repetition-aware sampling as vLLM calls it: a logits processor of the v1 interface, in 0.26 as in 0.32.

The draw is made here, by the request's seed, and one score is left, which vLLM takes: its own draw, for which it asks
the generator of each request in turn, is off (temperature 0), and so are its processors for the ends of a speech. An
exception here would end the whole engine, so requests are checked on arrival, by validate_params.
"""

from __future__ import annotations

import torch
from vllm import SamplingParams
from vllm.config import VllmConfig
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor

from studio.models.speech_lm.layout import SpeechLmLayout
from studio.models.speech_lm.ras_batch import RasBatch, RasParams
from studio.models.speech_lm.ras_draw import best_draw


class RepetitionAwareSampling(LogitsProcessor):
    """Owner: vLLM's worker process.

    Of the live token lists only the lengths are read, just before each draw: an engine that schedules ahead has no more
    than placeholders for the last tokens then. What a list holds is read of a request that came, or came back.
    """

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        if RasParams.of(sampling_params) is None:
            return
        if sampling_params.temperature or sampling_params.seed is not None:
            raise ValueError("with ras, temperature and seed belong into extra_args; vLLM's own must be off")

    def __init__(self, vllm_config: VllmConfig, device: torch.device, is_pin_memory: bool) -> None:
        draw = best_draw(device, SpeechLmLayout.of(vllm_config.model_config.hf_config).head_width)
        self._batch = RasBatch(vllm_config.scheduler_config.max_num_seqs, is_pin_memory, draw)

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if batch_update is not None:
            self._batch.change(batch_update)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return self._batch.apply(logits)
