# mypy: disallow-untyped-defs=False
"""Windows and attention over pages as Triton kernels: nothing is gathered, and one graph serves any length.

The functions are those of `attention`, which see. Imported where a GPU is used, or to be run by Triton's interpreter; a
machine without either has no triton.

Axes as in `attention.py`.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from studio.models.flow.paged.attention import Sight
from studio.models.flow.paged.slots import Slots

SPLITS = ((2, 16), (16, 4))
"""Up to so many slots, pages are split among so many programs: enough of them for every core of a large GPU, of 2 lanes
and 8 heads each. Few cases, since each is a kernel to be built."""
LARGEST_8_BIT = tl.constexpr(448.0)


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


@triton.jit
def _kept(x, CLAMP: tl.constexpr, STORAGE: tl.constexpr):
    """A value as pages keep it."""
    if CLAMP:
        x = tl.minimum(tl.maximum(x.to(tl.float32), -LARGEST_8_BIT), LARGEST_8_BIT)
    return x.to(STORAGE)


@triton.jit
def _seen(q, k, v, visible, nearness, scale, top, total, mixed):
    """Take the keys of one block into a running softmax. visible: [keys]; nearness: [queries, keys] or 0."""
    scores = tl.dot(q, tl.trans(k), input_precision="tf32x3") + nearness
    scores = tl.where(visible[None, :], scores * scale, float("-inf"))
    higher = tl.maximum(top, tl.max(scores, 1))
    weights = tl.exp(scores - higher[:, None])
    shrink = tl.exp(top - higher)
    total = total * shrink + tl.sum(weights, 1)
    mixed = mixed * shrink[:, None] + tl.dot(weights.to(q.dtype), v, input_precision="tf32x3")
    return higher, total, mixed


@triton.jit(do_not_specialize=["distance_row", "distance_head", "first_distance"])
def _attend(
    query, query_lane, query_row, key, value, key_lane, key_row, kept, table, pages, follows, here, record,
    distances, distance_row, distance_head, first_distance, out, sums, tops, scale,
    LANES: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr, BLOCK_ROOM: tl.constexpr,
    WIDTH: tl.constexpr, WIDTH_ROOM: tl.constexpr, SPLITS: tl.constexpr, RELATIVE: tl.constexpr,
    CLAMP: tl.constexpr,
):  # fmt: skip
    """One slot, lane and head over every SPLITS-th page of its stream, by a running softmax in float32.

    Keys of blocks that this very pack computes are read where the layer put them, and rounded as a page would: another
    program may be writing that page. The slot's own go into its page here.
    """
    slot, lane, head = tl.program_id(0), tl.program_id(1) // HEADS, tl.program_id(1) % HEADS
    split = tl.program_id(2)
    count = tl.load(pages + slot * record)
    real = tl.load(here + slot * record)
    in_pack = tl.minimum(tl.load(follows + slot * record) + 1, count)
    frame, column = tl.arange(0, BLOCK_ROOM), tl.arange(0, WIDTH_ROOM)
    in_block = frame < BLOCK
    inside = in_block[:, None] & (column < WIDTH)[None, :]
    tile = frame[:, None] * WIDTH + column[None, :]
    rows = slot * BLOCK + frame
    query += lane * query_lane + head * WIDTH
    q = tl.load(query + rows[:, None] * query_row + column[None, :], mask=inside, other=0.0)
    nearby = distances + head * distance_head + rows[:, None] * distance_row
    back = first_distance - (frame[:, None] - frame[None, :])
    pairs = in_block[:, None] & in_block[None, :]
    top = tl.full([BLOCK_ROOM], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_ROOM], tl.float32)
    mixed = tl.zeros([BLOCK_ROOM, WIDTH_ROOM], tl.float32)
    for place in range(split, in_pack, SPLITS):
        given = lane * key_lane + (rows - place * BLOCK)[:, None] * key_row + head * WIDTH + column[None, :]
        k = _kept(tl.load(key + given, mask=inside, other=0.0), CLAMP, kept.dtype.element_ty)
        v = _kept(tl.load(value + given, mask=inside, other=0.0), CLAMP, kept.dtype.element_ty)
        if place == 0:
            page = tl.load(table + slot * record).to(tl.int64)
            own = kept + ((page * LANES + lane) * 2 * HEADS + head) * (BLOCK * WIDTH) + tile
            tl.store(own, k, mask=inside)
            tl.store(own + HEADS * BLOCK * WIDTH, v, mask=inside)
        nearness = 0.0
        if RELATIVE:
            nearness = tl.load(nearby + (back - place * BLOCK), mask=pairs, other=0.0)
        visible = in_block & ((place > 0) | (frame < real))
        top, total, mixed = _seen(
            q, k.to(q.dtype), v.to(q.dtype), visible, nearness, scale, top, total, mixed
        )
    first = split + (tl.maximum(in_pack - split, 0) + SPLITS - 1) // SPLITS * SPLITS
    for place in range(first, count, SPLITS):
        page = tl.load(table + slot * record + place).to(tl.int64)
        keys = kept + ((page * LANES + lane) * 2 * HEADS + head) * (BLOCK * WIDTH) + tile
        k = tl.load(keys, mask=inside, other=0.0).to(q.dtype)
        v = tl.load(keys + HEADS * BLOCK * WIDTH, mask=inside, other=0.0).to(q.dtype)
        nearness = 0.0
        if RELATIVE:
            nearness = tl.load(nearby + (back - place * BLOCK), mask=pairs, other=0.0)
        top, total, mixed = _seen(q, k, v, in_block, nearness, scale, top, total, mixed)
    all_rows = tl.num_programs(0) * BLOCK
    row = lane * all_rows + rows
    if SPLITS == 1:
        place_out = out + row[:, None] * (HEADS * WIDTH) + head * WIDTH + column[None, :]
        tl.store(place_out, (mixed / total[:, None]).to(out.dtype.element_ty), mask=inside)
    else:
        part = (split * LANES * all_rows + row) * HEADS + head
        if split < count:
            tl.store(out + part[:, None] * WIDTH + column[None, :], mixed, mask=inside)
            tl.store(sums + part, total, mask=in_block)
            tl.store(tops + part, top, mask=in_block)


@triton.jit
def _join(
    parts, sums, tops, pages, record, out,
    LANES: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr, BLOCK_ROOM: tl.constexpr,
    WIDTH: tl.constexpr, WIDTH_ROOM: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """What the splits of `_attend` found, put together."""
    slot, lane, head = tl.program_id(0), tl.program_id(1) // HEADS, tl.program_id(1) % HEADS
    count = tl.minimum(tl.load(pages + slot * record), SPLITS)
    frame, column = tl.arange(0, BLOCK_ROOM), tl.arange(0, WIDTH_ROOM)
    in_block = frame < BLOCK
    inside = in_block[:, None] & (column < WIDTH)[None, :]
    all_rows = tl.num_programs(0) * BLOCK
    row = lane * all_rows + slot * BLOCK + frame
    top = tl.full([BLOCK_ROOM], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_ROOM], tl.float32)
    mixed = tl.zeros([BLOCK_ROOM, WIDTH_ROOM], tl.float32)
    for split in range(count):
        part = (split * LANES * all_rows + row) * HEADS + head
        here = tl.load(tops + part, mask=in_block, other=0.0)
        higher = tl.maximum(top, here)
        shrink, share = tl.exp(top - higher), tl.exp(here - higher)
        total = total * shrink + share * tl.load(sums + part, mask=in_block, other=1.0)
        found = tl.load(parts + part[:, None] * WIDTH + column[None, :], mask=inside, other=0.0)
        mixed = mixed * shrink[:, None] + share[:, None] * found
        top = higher
    place = out + row[:, None] * (HEADS * WIDTH) + head * WIDTH + column[None, :]
    tl.store(place, (mixed / total[:, None]).to(out.dtype.element_ty), mask=inside)


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


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    kept: Tensor,
    sight: Sight,
    distance_scores: Tensor | None = None,
) -> Tensor:
    """See `attention.attend`; sight.pages matters to distance_scores alone."""
    lanes, rows, heads, width = query.shape
    slots, block = sight.slots, sight.block
    sizes = {
        "LANES": lanes, "HEADS": heads, "BLOCK": block, "BLOCK_ROOM": max(16, triton.next_power_of_2(block)),
        "WIDTH": width, "WIDTH_ROOM": max(16, triton.next_power_of_2(width)),
    }  # fmt: skip
    splits = next((splits for most, splits in SPLITS if slots.count <= most), 1)
    out = query.new_empty(lanes, rows, heads * width)
    if splits > 1:
        parts = query.new_empty(splits, lanes, rows, heads, width, dtype=torch.float32)
        sums, tops = query.new_empty(2, splits, lanes, rows, heads, dtype=torch.float32).unbind(0)
    else:
        parts = sums = tops = out
    relative = distance_scores is not None
    scores = out if distance_scores is None else distance_scores
    _attend[slots.count, lanes * heads, splits](
        query, query.stride(0), query.stride(1), key, value, key.stride(0), key.stride(1), kept, slots.table,
        slots.pages, slots.follows, sight.here, Slots.WIDTH, scores, scores.stride(1) if relative else 0,
        scores.stride(0) if relative else 0, sight.pages * block - 1, parts, sums, tops, 1 / math.sqrt(width),
        SPLITS=splits, RELATIVE=relative, CLAMP=kept.dtype == torch.float8_e4m3fn, **sizes,
    )  # fmt: skip
    if splits > 1:
        _join[slots.count, lanes * heads](
            parts, sums, tops, slots.pages, Slots.WIDTH, out, SPLITS=splits, **sizes
        )
    return out
