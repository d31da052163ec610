"""The norm that vLLM's batch invariance is given: told of no sum, and the sum handed on."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from studio.models.speech_lm.invariant_norms import summed_first


def norm_alone(x: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
    """As vLLM's kernel without a sum: it takes no residual."""
    scaled = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return scaled if weight is None else scaled * weight


def test_a_sum_is_made_before_the_norm_and_given_on() -> None:
    layernorm = SimpleNamespace(rms_norm_batch_invariant=norm_alone)
    rms_norm = summed_first(layernorm)
    x, residual, weight = torch.randn(3, 8), torch.randn(3, 8), torch.rand(8)
    normed, total = rms_norm(x, weight, 1e-6, residual=residual)
    torch.testing.assert_close(total, x + residual)
    torch.testing.assert_close(normed, norm_alone(x + residual, weight, 1e-6))
    torch.testing.assert_close(rms_norm(x, None, 1e-6), norm_alone(x, None, 1e-6))
