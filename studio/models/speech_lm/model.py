"""The speech LM as vLLM serves it: Qwen2 over the merged vocabulary, its head over speech and end ids only.

Sampling is not here (ras.py); checkpoints are brought into this form by convert.py.
Axes: N tokens of all rows of a step, H hidden, V = S + 3 head width.
"""

from __future__ import annotations

import torch
from torch import nn
from vllm.config import VllmConfig
from vllm.model_executor.layers.logits_processor import LogitsProcessor
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.model_executor.models.qwen2 import Qwen2ForCausalLM, Qwen2Model
from vllm.model_executor.models.utils import maybe_prefix

from studio.models.speech_lm.cpu_layers import use_cpu_kernels
from studio.models.speech_lm.layout import SpeechLmLayout


class CosyVoice2SpeechLM(Qwen2ForCausalLM):
    """Source: CosyVoice 2 paper, text-speech language model; held by tests/engine/test_vllm_lm_full.py."""

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        # Qwen2ForCausalLM's own constructor would make a head over the whole vocabulary (570 MB at full
        # size).
        nn.Module.__init__(self)
        config = vllm_config.model_config.hf_config
        self.config = config
        self.quant_config = vllm_config.quant_config
        layout = SpeechLmLayout.of(config)
        self.model = Qwen2Model(vllm_config=vllm_config, prefix=maybe_prefix(prefix, "model"))
        if vllm_config.device_config.device_type == "cpu":
            use_cpu_kernels(self.model)
        self.lm_head = ParallelLMHead(
            layout.head_width,
            config.hidden_size,
            bias=layout.version == 2,
            quant_config=self.quant_config,
            prefix=maybe_prefix(prefix, "lm_head"),
        )
        self.logits_processor = LogitsProcessor(layout.head_width)
        self.make_empty_intermediate_tensors = self.model.make_empty_intermediate_tensors

    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor | None:
        """[N, H] hidden states to [N, V] scores, float32 or the model's dtype."""
        return self.logits_processor(self.lm_head, hidden_states, self.lm_head.bias)
