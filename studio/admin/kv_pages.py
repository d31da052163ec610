"""Which request holds which share of the KV cache: computed from its tokens, held against what vLLM says in all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from studio.engine.stats import InFlight
from studio.protocols import LmStats


@dataclass(frozen=True, slots=True)
class Share:
    """A request's blocks. shared: those at its begin that a request of the same voice before it holds already."""

    request_id: str
    blocks: int
    shared: int


@dataclass(frozen=True, slots=True)
class KvPages:
    """The cache by request. difference: blocks that vLLM counts beyond ours, such as those that the next step fills."""

    blocks: int
    block_size_tokens: int
    held: int
    shares: tuple[Share, ...]
    difference: int


def kv_pages(in_flight: Sequence[InFlight], lm: LmStats) -> KvPages:
    """Shares in the order of coming; blocks that several hold count once, for the first of them."""
    size = max(1, lm.block_size_tokens)
    seen: dict[str, int] = {}  # voice -> leading blocks that someone holds
    shares = []
    for request in in_flight:
        if not request.kv_tokens:
            continue
        leading = request.prefix_tokens // size  # only whole blocks are shared
        shared = min(leading, seen.get(request.voice_key, 0))
        seen[request.voice_key] = max(leading, seen.get(request.voice_key, 0))
        shares.append(Share(request.request_id, -(-request.kv_tokens // size), shared))
    held = round(lm.kv_cache_usage_ratio * lm.kv_cache_blocks)
    ours = sum(share.blocks - share.shared for share in shares)
    return KvPages(lm.kv_cache_blocks, lm.block_size_tokens, held, tuple(shares), held - ours)
