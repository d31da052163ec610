# mypy: disallow-untyped-defs=False
"""Windows over pages as a Triton kernel: nothing is gathered.

What it does is what `attention.window` does. Imported where a GPU is used, or to be run by Triton's interpreter; a
machine without either has no triton.

Axes as in `attention.py`.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from studio.models.flow.paged.attention import Sight
from studio.models.flow.paged.slots import Slots


@triton.jit
def _window(
    x, x_lane, out, edges, own, before, follows, record, channels,
    LANES: tl.constexpr, BLOCK: tl.constexpr, TAPS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """One program a frame and lane. Where the block before is in this pack its frames are read from there, and not from
    the page that another program writes."""
    EDGE: tl.constexpr = TAPS - 1
    row, lane = tl.program_id(0), tl.program_id(1)
    slot, frame = row // BLOCK, row % BLOCK
    column = tl.arange(0, WIDTH)
    inside = column < channels
    x += lane * x_lane
    page = tl.load(own + slot * record).to(tl.int64)
    page_before = tl.load(before + slot * record).to(tl.int64)
    in_pack = tl.load(follows + slot * record) > 0
    for tap in tl.static_range(TAPS):
        source = frame + tap - EDGE
        near = (source >= 0) | in_pack  # rows of one stream lie behind each other
        from_pack = tl.load(x + (row + tap - EDGE) * channels + column, mask=inside & near, other=0.0)
        old = edges + ((page_before * LANES + lane) * EDGE + EDGE + source) * channels + column
        from_page = tl.load(old, mask=inside & (near == 0), other=0.0)
        value = tl.where(near, from_pack, from_page.to(from_pack.dtype))
        tl.store(
            out + ((lane * tl.num_programs(0) + row) * TAPS + tap) * channels + column, value, mask=inside
        )
    kept = frame - (BLOCK - EDGE)
    if kept >= 0:
        value = tl.load(x + row * channels + column, mask=inside, other=0.0)
        tl.store(edges + ((page * LANES + lane) * EDGE + kept) * channels + column, value, mask=inside)


def window(x: Tensor, edges: Tensor, sight: Sight, taps: int) -> Tensor:
    """See `attention.window`."""
    lanes, rows, channels = x.shape
    if x.stride(-1) != 1 or x.stride(-2) != channels:
        x = x.contiguous()
    slots, out = sight.slots, x.new_empty(lanes, rows, taps * channels)
    _window[rows, lanes](
        x, x.stride(0), out, edges, slots.own, slots.before, slots.follows, Slots.WIDTH, channels,
        LANES=lanes, BLOCK=sight.block, TAPS=taps, WIDTH=triton.next_power_of_2(channels), num_warps=2,
    )  # fmt: skip
    return out
