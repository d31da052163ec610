"""The flow's Triton kernels against the plain torch that stands for them elsewhere: largest differences, by function.

It needs a GPU; or triton and `TRITON_INTERPRET=1`, whose rounding to fewer bits is not that of a GPU.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from studio.models.flow.paged import attention, estimator
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
    from studio.models.flow.paged import kernels, layer_kernels

    generator = torch.Generator().manual_seed(0)

    def drawn(*size: int) -> Tensor:
        return torch.randn(size, generator=generator).to(device)

    sight = _sight(device)
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
        got = kernels.attend(query, key, value, kept, sight, scores)
        expected = attention.attend(query, key, value, also, sight, scores)
        tell(name, got[:, :real], expected[:, :real])
        found[f"{name}_pages"] = float((raw(kept)[2:] != raw(also)[2:]).sum())
    x, edges = drawn(2, rows, 256).to(compute), drawn(PAGES, 2, 2, 256).to(compute)
    others = edges.clone()
    tell(
        "window",
        kernels.window(x, edges, sight, 3)[:, :real],
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
    for also_added in (None, added, added[:1, :1]):
        mine, theirs = layer_kernels.norm_mish(x, norm, also_added), estimator.norm_mish(x, norm, also_added)
        tell("norm_mish", mine, theirs)
    mel, velocities = drawn(rows, MEL_BINS), drawn(2, rows, MEL_BINS).to(compute)
    tell("euler", layer_kernels.euler(mel, velocities, 0.1, 0.7), estimator.euler(mel, velocities, 0.1, 0.7))
    return found


def _sight(device: torch.device) -> Sight:
    buffer = SlotBuffer(SLOTS, device)
    nothing = np.zeros(MEL_BINS, np.float32)
    blocks = [
        BlockSlot(np.zeros(25, np.int32), frames, pages, nothing, nothing[:0], int(number == 1))
        for number, (pages, frames) in enumerate(zip(ROWS, REAL_FRAMES, strict=True))
    ]
    buffer.load(blocks, SLOTS)
    slots = buffer.slots(SLOTS)
    return Sight(slots, slots.frames_here, BLOCK_FRAMES, 8)
