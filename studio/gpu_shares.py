"""How the memory of a GPU is divided among models, each a speech LM and a token2wav worker. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WORK_BYTES = 2**30
WORK_SHARE = 0.08
"""Of a GPU, for each model beside its pools: two contexts, weights, graphs, the prompt encoder; 12 GB of 141."""
GRAPH_BYTES = 2**30
"""Left to each of several engines of a speech LM for what its steps and graphs take; 0.6 GiB were seen on an H200."""


def models_known(settings: Mapping[str, Any]) -> int:
    """How many models the studio was started with, loaded or not: each has its place on the GPU."""
    return 1 + sum(1 for entry in str(settings.get("models", "")).split(",") if entry.strip())


def gpu_pool_bytes(free: int, total: int, lm_share: float, models: int = 1) -> int:
    """Bytes for what the flow of a model keeps: a fixed share of the GPU, whoever starts first, or what is left of it.

    Args:    lm_share: of the GPU that each model's speech LM has or will take. models: that are to find room.
    Returns: none or less than none where that is not enough for pages.
    """
    return int(min(free, total * (1 / models - lm_share)) - WORK_BYTES - WORK_SHARE * total)


def engine_cache_bytes(lm_bytes: int, weight_bytes: int, engines: int = 1) -> int:
    """KV cache of each engine of a speech LM, which share lm_bytes of a GPU and hold the weights once each.

    Returns: none or less than none where weights leave nothing. What the steps of a lone engine take is not counted:
             vLLM measures that, which it cannot beside others.
    """
    return lm_bytes // engines - weight_bytes - (GRAPH_BYTES if engines > 1 else 0)
