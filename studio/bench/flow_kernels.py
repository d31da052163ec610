"""The flow's Triton kernels against the plain torch that stands for them elsewhere: largest differences, by function.

It needs a GPU; or triton and `TRITON_INTERPRET=1`, whose rounding to fewer bits is not that of a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from studio.models.flow.estimator import GeluFeedForward
from studio.models.flow.paged import attention, estimator, products
from studio.models.flow.paged.attention import Sight, raw
from studio.models.flow.paged.slots import BlockSlot, SlotBuffer
from studio.models.flow.sizes import BLOCK_FRAMES, MEL_BINS

PAGES, SLOTS = 24, 6
ROWS = ([2, 3, 4, 5], [2, 3, 4, 5, 6], [7], [8, 9, 10])
"""Pages of each slot's stream up to its block; the second computes the block after the first's, in the same pack."""
REAL_FRAMES = (BLOCK_FRAMES, 38, BLOCK_FRAMES, 2)


def differences(
    device: torch.device, compute: torch.dtype, storage: torch.dtype, heads: int, width: int
) -> dict[str, float]:
    """Largest difference of each function, relative to the largest value; pages: how many kept values differ."""
    from studio.models.flow.paged import (
        attention_kernels,
        conv_kernels,
        layer_kernels,
        product_kernels,
        window_kernels,
    )

    generator = torch.Generator().manual_seed(0)

    def drawn(*size: int) -> Tensor:
        return torch.randn(size, generator=generator).to(device)

    sight = pack(device, ROWS, REAL_FRAMES, SLOTS, 8)
    rows, real = SLOTS * BLOCK_FRAMES, len(ROWS) * BLOCK_FRAMES  # what lies in padding means nothing
    found: dict[str, float] = {}

    def tell(name: str, got: Tensor, expected: Tensor) -> None:
        error = (got.float() - expected.float()).abs().max() / expected.float().abs().max()
        found[name] = max(found.get(name, 0.0), error.item())

    for name, lanes, kind, kept_as in (
        ("attend", 2, compute, storage),
        ("relative", 1, torch.float32, torch.float32),
    ):
        qkv = drawn(lanes, rows, 3, heads, width).to(kind)
        kept = attention.stored(drawn(PAGES, lanes, 2, heads, BLOCK_FRAMES, width), kept_as)
        also = raw(kept).clone().view(kept_as)
        span = sight.pages * BLOCK_FRAMES + BLOCK_FRAMES - 1
        scores = drawn(heads, rows, span) if name == "relative" else None
        query, key, value = qkv.unbind(2)
        expected = attention.attend(query, key, value, also, sight, scores)
        few_slots = attention_kernels.FEW_SLOTS
        try:
            for most in (few_slots, 0):  # as in a small pack, and as in a large one
                attention_kernels.FEW_SLOTS = most
                got = attention_kernels.attend(query, key, value, kept, sight, scores)
                tell(name, got[:, :real], expected[:, :real])
        finally:
            attention_kernels.FEW_SLOTS = few_slots
        found[f"{name}_pages"] = float((raw(kept)[2:] != raw(also)[2:]).sum())
    x, edges = drawn(2, rows, 256).to(compute), drawn(PAGES, 2, 2, 256).to(compute)
    others = edges.clone()
    tell(
        "window",
        window_kernels.window(x, edges, sight, 3)[:, :real],
        attention.window(x, others, sight, 3)[:, :real],
    )
    tell("window_edges", edges[2:], others[2:])
    norm = nn.LayerNorm(256).to(device, compute).requires_grad_(False)
    norm.weight.copy_(drawn(256))
    norm.bias.copy_(drawn(256))
    added = drawn(2, rows, 256).to(compute)
    for also_added in (None, added):
        for got, expected in zip(
            layer_kernels.add_norm(x, also_added, norm), estimator.add_norm(x, also_added, norm), strict=True
        ):
            tell("add_norm", got, expected)
    if compute.itemsize == 2:
        layer = GeluFeedForward(256, 512).to(device, compute)
        tell("feed", estimator.feed_at_once(layer, x), estimator.feed(layer, x))
    for also_added in (None, added, added[:1, :1]):
        mine, theirs = layer_kernels.norm_mish(x, norm, also_added), estimator.norm_mish(x, norm, also_added)
        tell("norm_mish", mine, theirs)
    # As for many rows, for some, for few; in float32 the tiles are larger than a core's memory.
    was = product_kernels.FEW_ROWS, product_kernels.SOME_ROWS, conv_kernels.FEW_ROWS
    try:
        for tiles in ((0, 0), (0, 10_000), (10_000, 10_000)) if device.type == "cpu" or compute.itemsize == 2 else ():
            _products(tell, drawn, sight, compute, storage, heads, width, tiles)
    finally:
        product_kernels.FEW_ROWS, product_kernels.SOME_ROWS, conv_kernels.FEW_ROWS = was
    mel, velocities = drawn(rows, MEL_BINS), drawn(2, rows, MEL_BINS).to(compute)
    guidance = sight.slots.guidance
    mine, theirs = (euler(mel, velocities, 0.1, guidance) for euler in (layer_kernels.euler, estimator.euler))
    tell("euler", mine, theirs)
    return found


def _products(
    tell: Callable[[str, Tensor, Tensor], None],
    drawn: Callable[..., Tensor],
    sight: Sight,
    compute: torch.dtype,
    storage: torch.dtype,
    heads: int,
    width: int,
    tiles: tuple[int, int],
) -> None:
    from studio.models.flow.paged import conv_kernels, product_kernels

    product_kernels.FEW_ROWS, product_kernels.SOME_ROWS = tiles
    conv_kernels.FEW_ROWS = tiles[0]
    rows, real = SLOTS * BLOCK_FRAMES, len(ROWS) * BLOCK_FRAMES
    x = drawn(2, rows, 256).to(compute)
    norm = nn.LayerNorm(256).to(x.device, compute).requires_grad_(False)
    qkv, first, second = (drawn(*size).to(compute) / 16 for size in ((256, 3 * heads * width), (256, 512), (512, 256)))
    bias, plus = drawn(512).to(compute), drawn(256).to(compute)
    kept = attention.stored(drawn(PAGES, 2, 2, heads, BLOCK_FRAMES, width), storage)
    also = raw(kept).clone().view(storage)
    query = product_kernels.norm_qkv(x, norm, qkv, kept, sight, heads)
    tell("norm_qkv", query[:, :real], products.norm_qkv(x, norm, qkv, also, sight, heads)[:, :real])
    tell("norm_qkv_pages", kept[2:].float(), also[2:].float())
    inner = products.norm_gelu(x, norm, first, bias)
    tell("norm_gelu", product_kernels.norm_gelu(x, norm, first, bias), inner)
    args = inner, second, plus, x
    tell("product_sum", product_kernels.product_sum(*args), products.product_sum(*args))
    conv = products.Convolution(first.new_empty(768, 256).copy_(drawn(768, 256)) / 16, plus, 3, 0, norm)
    timed = drawn(1, 1, 256).to(compute)
    for name, added, straight in (("straight", None, products.Straight(inner, second, plus)), ("timed", timed, None)):
        edges = drawn(PAGES, 2, 2, 256).to(compute)
        others = edges.clone()
        got = conv_kernels.conv_norm(x, conv, edges, sight, added, straight)
        expected = products.conv_norm(x, conv, others, sight, added, straight)
        tell(f"conv_{name}", got[:, :real], expected[:, :real])
        tell(f"conv_{name}_edges", edges[2:], others[2:])


def pack(
    device: torch.device, rows: Sequence[Sequence[int]], frames: Sequence[int], slots: int, pages: int
) -> Sight:
    """Slots of streams with these pages, of whose last block so many frames are real; what is over is padding. A row
    that goes on with the pages of the row before computes a later block of the same stream."""
    buffer = SlotBuffer(slots, device)
    nothing = np.zeros(MEL_BINS, np.float32)
    blocks = [
        BlockSlot(np.zeros(25, np.int32), real, own, nothing, nothing[:0], int(own[:-1] == before), 0.1 * len(own))
        for own, before, real in zip(rows, [None, *rows], frames, strict=False)
    ]
    buffer.load(blocks, slots)
    records = buffer.slots(slots)
    return Sight(records, records.frames_here, BLOCK_FRAMES, pages)
