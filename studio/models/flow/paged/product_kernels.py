# mypy: disallow-untyped-defs=False
"""Products of the estimator's transformers with what stands before and behind each, as Triton kernels; see `products`.

They are for packs so small that a product takes less time than a launch. Sums are float32.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from studio.models.flow.paged.attention import Sight
from studio.models.flow.paged.attention_kernels import kept_as, room
from studio.models.flow.paged.layer_kernels import norm_of
from studio.models.flow.paged.slots import Slots

FEW_ROWS, SOME_ROWS = 400, 1600
"""Frames of both lanes up to which tiles are small, since there are more cores than tiles otherwise, and middling."""


@triton.jit
def _gelu(x):
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))


@triton.jit
def _put(
    found, bias, out, kept, own, record, row, column, rows,
    COLUMNS: tl.constexpr, GELU: tl.constexpr, PAGED: tl.constexpr,
    LANES: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """One tile of results. PAGED: the first third of the columns are queries; keys and values go into the pages."""
    inside = (row < rows)[:, None] & (column < COLUMNS)[None, :]
    if GELU:
        found += tl.load(bias + column, mask=column < COLUMNS, other=0.0).to(tl.float32)[None, :]
        found = _gelu(found)
    found = found.to(out.dtype.element_ty)
    if PAGED:
        part, head = column // (HEADS * WIDTH), column // WIDTH % HEADS
        place = out + row[:, None] * (HEADS * WIDTH) + column[None, :]
        tl.store(place, found, mask=inside & (part == 0)[None, :])
        in_lane = rows // LANES
        lane, frame = row // in_lane, row % in_lane
        slot = frame // BLOCK
        page = tl.load(own + slot * record, mask=row < rows, other=0).to(tl.int64)
        first = (page * LANES + lane) * (2 * HEADS * BLOCK * WIDTH) + (frame - slot * BLOCK) * WIDTH
        behind = ((part - 1) * HEADS + head) * (BLOCK * WIDTH) + column % WIDTH
        value = kept_as(found, kept.dtype.element_ty)
        tl.store(kept + first[:, None] + behind[None, :], value, mask=inside & (part > 0)[None, :])
    else:
        tl.store(out + row[:, None] * COLUMNS + column[None, :], found, mask=inside)


@triton.jit
def _norm_product(
    x, weight, bias, eps, factor, plus, out, kept, own, record, rows,
    CHANNELS: tl.constexpr, CHANNELS_ROOM: tl.constexpr, COLUMNS: tl.constexpr,
    ROWS: tl.constexpr, WIDE: tl.constexpr, TILES: tl.constexpr, GELU: tl.constexpr, PAGED: tl.constexpr,
    LANES: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Some rows, normed once, times TILES tiles of columns one after another."""
    row, channel = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, CHANNELS_ROOM)
    known = channel < CHANNELS
    inside = (row < rows)[:, None] & known[None, :]
    column = tl.program_id(1) * (TILES * WIDE) + tl.arange(0, WIDE)
    value = tl.load(x + row[:, None] * CHANNELS + channel[None, :], mask=inside, other=0.0).to(tl.float32)
    if TILES == 1:  # on its way while the rows are normed
        tile = tl.load(
            factor + channel[:, None] * COLUMNS + column[None, :],
            mask=known[:, None] & (column < COLUMNS)[None, :], other=0.0,
        )  # fmt: skip
    normed = norm_of(value, inside, weight, bias, channel, CHANNELS, eps).to(x.dtype.element_ty)
    if TILES == 1:
        _put(
            tl.dot(normed, tile, input_precision="tf32x3"), plus, out, kept, own, record, row, column, rows,
            COLUMNS, GELU, PAGED, LANES, HEADS, BLOCK, WIDTH,
        )  # fmt: skip
    else:
        for _ in range(TILES):
            tile = tl.load(
                factor + channel[:, None] * COLUMNS + column[None, :],
                mask=known[:, None] & (column < COLUMNS)[None, :], other=0.0,
            )  # fmt: skip
            _put(
                tl.dot(normed, tile, input_precision="tf32x3"), plus, out, kept, own, record, row, column, rows,
                COLUMNS, GELU, PAGED, LANES, HEADS, BLOCK, WIDTH,
            )  # fmt: skip
            column += WIDE


@triton.jit
def _product_sum(
    x, factor, plus, given, out, rows,
    CHANNELS: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr, WIDE: tl.constexpr, DEEP: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    in_rows, in_columns = (row < rows)[:, None], (column < COLUMNS)[None, :]
    place = row[:, None] * COLUMNS + column[None, :]
    total = tl.zeros([ROWS, WIDE], tl.float32)
    for first in range(0, CHANNELS, DEEP):
        channel = first + tl.arange(0, DEEP)
        known = channel < CHANNELS
        left = tl.load(
            x + row[:, None] * CHANNELS + channel[None, :], mask=in_rows & known[None, :], other=0.0
        )
        right = tl.load(
            factor + channel[:, None] * COLUMNS + column[None, :], mask=known[:, None] & in_columns, other=0.0
        )
        total = tl.dot(left, right, total, input_precision="tf32x3")
    total += tl.load(plus + column, mask=column < COLUMNS, other=0.0).to(tl.float32)[None, :]
    total += tl.load(given + place, mask=in_rows & in_columns, other=0.0).to(tl.float32)
    tl.store(out + place, total.to(out.dtype.element_ty), mask=in_rows & in_columns)


def _norm_tiles(rows: int, paged: bool) -> tuple[int, int, int, int]:
    """Rows and columns of a tile, tiles of a program, warps; by `bench.flow_solve` on an H200."""
    if rows <= FEW_ROWS:
        return 32, 64, 1, 4
    if rows <= SOME_ROWS:
        return (64, 64, 3, 4) if paged else (64, 64, 2, 8)
    return 64, 64, 8, 8


def _sum_tiles(rows: int) -> tuple[int, int, int]:
    """Rows and columns of a tile, and channels of one turn."""
    if rows <= FEW_ROWS:
        return 32, 32, 128
    return (64, 32, 128) if rows <= SOME_ROWS else (64, 64, 64)


def norm_qkv(
    x: Tensor, norm: nn.LayerNorm, factor: Tensor, kept: Tensor, sight: Sight, heads: int
) -> Tensor:
    """See `products.norm_qkv`."""
    lanes, frames, _ = x.shape
    width = factor.shape[1] // (3 * heads)
    query = x.new_empty(lanes, frames, heads, width)
    _launch(
        x, norm, factor, factor, query, kept, sight.slots.own,
        GELU=False, PAGED=True, LANES=lanes, HEADS=heads, BLOCK=sight.block, WIDTH=width,
    )  # fmt: skip
    return query


def norm_gelu(x: Tensor, norm: nn.LayerNorm, factor: Tensor, plus: Tensor) -> Tensor:
    """See `products.norm_gelu`."""
    out = x.new_empty(*x.shape[:-1], factor.shape[1])
    _launch(x, norm, factor, plus, out, out, out, GELU=True, PAGED=False, LANES=1, HEADS=1, BLOCK=1, WIDTH=1)
    return out


def _launch(
    x: Tensor, norm: nn.LayerNorm, factor: Tensor, plus: Tensor, out: Tensor, kept: Tensor, own: Tensor,
    **sizes: int,
) -> None:  # fmt: skip
    x = x.contiguous()
    channels, columns = factor.shape
    rows = x.numel() // channels
    height, wide, tiles, warps = _norm_tiles(rows, bool(sizes["PAGED"]))
    _norm_product[triton.cdiv(rows, height), triton.cdiv(columns, wide * tiles)](
        x, norm.weight, norm.bias, norm.eps, factor, plus, out, kept, own, Slots.WIDTH, rows,
        CHANNELS=channels, CHANNELS_ROOM=room(channels), COLUMNS=columns,
        ROWS=height, WIDE=wide, TILES=tiles, num_warps=warps, num_stages=2, **sizes,
    )  # fmt: skip


def product_sum(x: Tensor, factor: Tensor, plus: Tensor, given: Tensor) -> Tensor:
    """See `products.product_sum`."""
    x, given, out = x.contiguous(), given.contiguous(), torch.empty_like(given)
    channels, columns = factor.shape
    rows = x.numel() // channels
    height, wide, deep = _sum_tiles(rows)
    _product_sum[triton.cdiv(rows, height), triton.cdiv(columns, wide)](
        x, factor, plus, given, out, rows,
        CHANNELS=channels, COLUMNS=columns, ROWS=height, WIDE=wide, DEEP=deep, num_warps=4, num_stages=4,
    )  # fmt: skip
    return out
