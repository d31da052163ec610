# mypy: disallow-untyped-defs=False
"""A convolution with norm, Mish and sum as one Triton kernel, for small packs; see `products.conv_norm`.

A window is not built: its frames are read from where they are, the pack or the page of the block before.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl
from torch import Tensor

from studio.models.flow.paged.attention import Sight
from studio.models.flow.paged.attention_kernels import room
from studio.models.flow.paged.layer_kernels import mish_of, norm_of
from studio.models.flow.paged.products import Convolution, Straight
from studio.models.flow.paged.slots import Slots

FEW_ROWS = 1600
"""Frames of both lanes up to which tiles are as low as a product can be: a program has all columns, for the norm."""


@triton.jit
def _conv_norm(
    x, factor, plus, edges, own, before, follows, record, weight, bias, eps, added, straight, straight_factor,
    straight_plus, out, rows,
    CHANNELS: tl.constexpr, CHANNELS_ROOM: tl.constexpr, TAPS: tl.constexpr, COLUMNS: tl.constexpr,
    COLUMNS_ROOM: tl.constexpr, STRAIGHT: tl.constexpr, ADDED: tl.constexpr, LANES: tl.constexpr,
    BLOCK: tl.constexpr, ROWS: tl.constexpr, DEEP: tl.constexpr, STRAIGHT_DEEP: tl.constexpr,
):  # fmt: skip
    """Some rows over all columns. STRAIGHT: channels of what is added by a product of its own, or 0."""
    EDGE: tl.constexpr = TAPS - 1
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS_ROOM)
    in_rows, in_columns = row < rows, column < COLUMNS
    in_lane = rows // LANES
    lane, frame = row // in_lane, row % in_lane
    slot = frame // BLOCK
    frame -= slot * BLOCK
    page_before = tl.load(before + slot * record, mask=in_rows, other=0).to(tl.int64)
    in_pack = tl.load(follows + slot * record, mask=in_rows, other=0) > 0
    edge_before = edges + (page_before * LANES + lane) * (EDGE * CHANNELS)
    total = tl.zeros([ROWS, COLUMNS_ROOM], tl.float32)
    for first in range(0, TAPS * CHANNELS, DEEP):  # DEEP divides CHANNELS
        depth = first + tl.arange(0, DEEP)
        tap = first // CHANNELS
        channel = depth - tap * CHANNELS
        source = frame + tap - EDGE
        near = (source >= 0) | in_pack  # rows of one stream lie behind each other
        from_pack = tl.load(
            x + (row + tap - EDGE)[:, None] * CHANNELS + channel[None, :], mask=(in_rows & near)[:, None], other=0.0
        )  # fmt: skip
        from_page = tl.load(
            edge_before[:, None] + (EDGE + source)[:, None] * CHANNELS + channel[None, :],
            mask=(in_rows & (near == 0))[:, None], other=0.0,
        )  # fmt: skip
        left = tl.where(near[:, None], from_pack, from_page.to(from_pack.dtype))
        right = tl.load(
            factor + depth[:, None] * COLUMNS + column[None, :], mask=in_columns[None, :], other=0.0
        )
        total = tl.dot(left, right, total, input_precision="tf32x3")
    total += tl.load(plus + column, mask=in_columns, other=0.0).to(tl.float32)[None, :]
    inside = in_rows[:, None] & in_columns[None, :]
    total = tl.where(in_columns[None, :], total, 0.0)
    value = mish_of(norm_of(total, inside, weight, bias, column, COLUMNS, eps))
    if ADDED:
        value += tl.load(added + column, mask=in_columns, other=0.0).to(tl.float32)[None, :]
    if STRAIGHT > 0:
        beside = tl.zeros([ROWS, COLUMNS_ROOM], tl.float32)
        for first in range(0, STRAIGHT, STRAIGHT_DEEP):
            depth = first + tl.arange(0, STRAIGHT_DEEP)
            left = tl.load(
                straight + row[:, None] * STRAIGHT + depth[None, :], mask=in_rows[:, None], other=0.0
            )
            right = tl.load(
                straight_factor + depth[:, None] * COLUMNS + column[None, :], mask=in_columns[None, :], other=0.0
            )  # fmt: skip
            beside = tl.dot(left, right, beside, input_precision="tf32x3")
        value += beside + tl.load(straight_plus + column, mask=in_columns, other=0.0).to(tl.float32)[None, :]
    tl.store(out + row[:, None] * COLUMNS + column[None, :], value.to(out.dtype.element_ty), mask=inside)
    # The last frames of each block are kept for the next.
    kept, channel = frame - (BLOCK - EDGE), tl.arange(0, CHANNELS_ROOM)
    last = (in_rows & (kept >= 0))[:, None] & (channel < CHANNELS)[None, :]
    page = tl.load(own + slot * record, mask=in_rows, other=0).to(tl.int64)
    end = edges + (page * LANES + lane) * (EDGE * CHANNELS)
    value = tl.load(x + row[:, None] * CHANNELS + channel[None, :], mask=last, other=0.0)
    tl.store(end[:, None] + kept[:, None] * CHANNELS + channel[None, :], value, mask=last)


def conv_norm(
    x: Tensor, conv: Convolution, edges: Tensor, sight: Sight, added: Tensor | None, straight: Straight | None
) -> Tensor:
    """See `products.conv_norm`; channels: multiples of `products.LEAST_DEPTH`, as `fits_tiles` has made sure."""
    x, slots = x.contiguous(), sight.slots
    lanes, frames, channels = x.shape
    columns, rows = conv.factor.shape[1], lanes * frames
    out = x.new_empty(lanes, frames, columns)
    beside, beside_factor, beside_plus = (
        (out, out, out) if straight is None else (straight.x.contiguous(), straight.factor, straight.plus)
    )
    beside_channels = 0 if straight is None else beside.shape[-1]
    height, depth, warps, stages = (16, 128, 4, 3) if rows <= FEW_ROWS else (64, 64, 8, 4)  # measured on an H200
    _conv_norm[(triton.cdiv(rows, height),)](
        x, conv.factor, conv.plus, edges, slots.own, slots.before, slots.follows, Slots.WIDTH,
        conv.norm.weight, conv.norm.bias, conv.norm.eps, out if added is None else added,
        beside, beside_factor, beside_plus, out, rows,
        CHANNELS=channels, CHANNELS_ROOM=room(channels), TAPS=conv.taps, COLUMNS=columns, COLUMNS_ROOM=room(columns),
        STRAIGHT=beside_channels, ADDED=added is not None, LANES=lanes, BLOCK=sight.block, ROWS=height,
        DEEP=math.gcd(channels, depth), STRAIGHT_DEEP=math.gcd(beside_channels, 64), num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return out
