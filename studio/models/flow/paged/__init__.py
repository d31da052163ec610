"""The flow of many streams on one GPU: pages, packs and CUDA graphs. What is computed is the networks' of the flow."""

from studio.models.flow.paged.flow import PackedMel, PagedFlow, PagedPreparation
from studio.models.flow.paged.pool import PoolFigures, PoolFull
from studio.models.flow.paged.streams import PagedPrompt, PagedState

__all__ = [
    "PackedMel",
    "PagedFlow",
    "PagedPreparation",
    "PagedPrompt",
    "PagedState",
    "PoolFigures",
    "PoolFull",
]
