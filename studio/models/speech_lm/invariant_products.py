"""Matrix products whose rows do not depend on how many rows there are, for vLLM's batch invariance on Hopper.

vLLM leaves products on Hopper and later to cuBLASLt, without room to split sums; for the narrow layers of this model
that is not enough: of 100 seeds on an H200 20 gave the same tokens beside 31 others as alone. The Triton kernels that
it has for Ampere do not look at the number of rows.
"""

from __future__ import annotations

from types import ModuleType

import torch

PRODUCTS = ("mm", "addmm", "matmul", "linear")


def cover_products() -> None:
    """Have vLLM's switch to batch invariance, where it is asked for, cover products on every GPU."""
    import vllm.envs

    if not vllm.envs.VLLM_BATCH_INVARIANT:
        return
    try:
        from vllm.model_executor.determinism import batch_invariant
    except ImportError:  # before vLLM 0.32
        from vllm.model_executor.layers import batch_invariant
    extend(batch_invariant)


def extend(batch_invariant: ModuleType) -> None:
    """batch_invariant: vLLM's module; its `enable_batch_invariant_mode` is what each process calls once."""
    enable = batch_invariant.enable_batch_invariant_mode
    kept = torch.library.Library("aten", "IMPL")

    def enable_all() -> None:
        is_first = not batch_invariant._batch_invariant_MODE
        enable()
        if is_first and torch.cuda.get_device_capability() >= (9, 0):
            for name in PRODUCTS:
                kept.impl(f"aten::{name}", getattr(batch_invariant, f"{name}_batch_invariant"), "CUDA")

    setattr(batch_invariant, "enable_batch_invariant_mode", enable_all)  # noqa: B010
