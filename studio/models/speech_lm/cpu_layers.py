"""vLLM's own CPU kernels for the small layers, which vLLM itself uses only after torch.compile or on GPUs.

Run eagerly, its norms and activations are a dozen torch operators each; at one row that is a tenth of a step.
Axes: N tokens, H hidden, F inner width.
"""

from __future__ import annotations

import torch
from torch import nn


class KernelRMSNorm(nn.Module):
    """RMSNorm with vLLM's signature; takes over the weight of the norm that it replaces."""

    def __init__(self, replaced: nn.Module) -> None:
        super().__init__()
        self.weight = replaced.weight
        self._epsilon: float = replaced.variance_epsilon

    def forward(
        self, x: torch.Tensor, residual: torch.Tensor | None = None
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """[N, H]; with a residual the sum is normed, and both tensors are overwritten and given back."""
        if residual is None:
            normed = torch.empty_like(x)
            torch.ops._C.rms_norm(normed, x, self.weight, self._epsilon)
            return normed
        torch.ops._C.fused_add_rms_norm(x, residual, self.weight, self._epsilon)
        return x, residual


class KernelSiluAndMul(nn.Module):
    """[N, 2 F] to silu(first half) * second half, [N, F]."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = x.new_empty(x.shape[0], x.shape[1] // 2)
        torch.ops._C.silu_and_mul(out, x)
        return out


def use_cpu_kernels(model: nn.Module) -> None:
    """Put the kernels into a Qwen2Model of vLLM, before its weights are loaded."""
    for layer in model.layers:
        layer.input_layernorm = KernelRMSNorm(layer.input_layernorm)
        layer.post_attention_layernorm = KernelRMSNorm(layer.post_attention_layernorm)
        layer.mlp.act_fn = KernelSiluAndMul()
    model.norm = KernelRMSNorm(model.norm)
