"""vLLM's GPU worker with whole mixed steps as CUDA graphs: what FlashAttention 3 must be told for that.

FlashAttention 3 lays out its plan of a step outside of the graph, by what the step is, and reads it inside, by what
the step was when it was captured. With heads of 64 values and one query a row at most, both drop the causal mask, and
with it a column of the plan. So a graph that was captured for rows of many queries, as those of cudagraph_mode FULL
are, would read the plan of a decode step at the wrong places. Told of two queries at least, both keep the mask, which
changes no outcome.
Source: vllm-project/flash-attention, hopper/flash_api.cpp, mha_fwd and mha_fwd_get_scheduler_metadata; decision 0027.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from vllm.v1.attention.backends import flash_attn
from vllm.v1.attention.backends.fa_utils import get_flash_attn_version
from vllm.v1.worker.gpu_worker import Worker

LEAST_QUERIES = 2
TOLD = ("get_scheduler_metadata", "flash_attn_varlen_func")
"""Who plans, and who follows the plan."""


class GraphedWorker(Worker):
    """Named as worker_cls by vllm_compat.graph_arguments; vLLM makes it in each process that has a GPU."""

    def init_device(self) -> None:
        super().init_device()
        if get_flash_attn_version() == 3:
            keep_causal(flash_attn)


def keep_causal(module: ModuleType) -> None:
    """Let vLLM's attention tell FlashAttention of two queries a row at least."""
    for name in TOLD:
        setattr(module, name, at_least_two(getattr(module, name)))


def at_least_two(call: Callable[..., Any]) -> Callable[..., Any]:
    def told(*args: Any, max_seqlen_q: int, **rest: Any) -> Any:
        return call(*args, max_seqlen_q=max(LEAST_QUERIES, max_seqlen_q), **rest)

    return told
