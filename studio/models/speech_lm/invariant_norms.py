"""A norm after a sum that does not depend on how many rows there are, for vLLM's batch invariance.

vLLM leaves that norm to a CUDA kernel that sums with 1,024 threads below 256 rows of a step and with 256 from there on
(seen in 0.26 on an H200): a prompt alone and the same beside others end in other bits, and some tokens later a seed in
other speech. Its Triton norm without the sum does not look at the number of rows.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch


def cover_norms() -> None:
    """Have vLLM's batch invariance, where it is asked for, cover the norm after a sum."""
    import vllm.envs

    if not vllm.envs.VLLM_BATCH_INVARIANT:
        return
    from vllm.model_executor.layers import layernorm

    layernorm.rms_norm_batch_invariant = summed_first(layernorm)


def summed_first(layernorm: ModuleType) -> Any:
    """`rms_norm_batch_invariant` as vLLM's norms call it, by that of the module, which is asked without a sum alone."""
    norm = layernorm.rms_norm_batch_invariant

    def rms_norm(
        x: torch.Tensor, weight: torch.Tensor | None, eps: float = 1e-6, residual: torch.Tensor | None = None
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """x, residual: [N, H]; gives the norm of their sum, and with a residual the sum as well."""
        if residual is None:
            return norm(x, weight, eps)
        total = x + residual
        return norm(total, weight, eps), total

    return rms_norm
