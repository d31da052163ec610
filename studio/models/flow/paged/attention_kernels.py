# mypy: disallow-untyped-defs=False
"""Attention over pages as Triton kernels: one graph serves streams of any length, and a long one costs hardly more.

The keys of a stream are one row of numbers, 50 to a page and the newest page first, taken in tiles of a fixed width
whichever pages they lie in. Imported where a GPU is used, or to be run by Triton's interpreter.

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

SPLITS: tuple[tuple[int, int], ...] = ((2, 16), (4, 4))
"""Up to so many slots, keys are split among so many programs: enough of them for every core of a large GPU, of 2 lanes
and 8 heads each. Few cases, since each is a kernel to be built. By `bench.flow_solve` on an H200: with 8 slots
splitting gains nothing behind 15 s of speech, and 14 % behind 65."""
FEW_SLOTS = 16
"""Up to so many slots tiles are wide: a core has one or two programs then, which wait less often. Above, tiles are
narrow, for four programs of a core to cover each other's waits. On an H200, 20 us for 26 with 32 slots, 71 for 80 with
128."""
JOINED_ITEMS = 8
"""Rows and heads that one program joins."""
LARGEST_8_BIT = tl.constexpr(448.0)
LOG2_E = math.log2(math.e)


@triton.jit
def kept_as(x, STORAGE: tl.constexpr):
    """A value as pages keep it: what is beyond an 8-bit float's range becomes its largest."""
    if STORAGE.primitive_bitwidth == 8:
        x = tl.minimum(tl.maximum(x.to(tl.float32), -LARGEST_8_BIT), LARGEST_8_BIT)
    return x.to(STORAGE)


@triton.jit
def _keep(
    key, value, key_lane, key_row, kept, own, record,
    LANES: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr, BLOCK_ROOM: tl.constexpr,
    WIDTH: tl.constexpr, WIDTH_ROOM: tl.constexpr,
):  # fmt: skip
    """One slot, lane and head into the slot's own page."""
    slot, lane, head = tl.program_id(0), tl.program_id(1) // HEADS, tl.program_id(1) % HEADS
    frame, column = tl.arange(0, BLOCK_ROOM), tl.arange(0, WIDTH_ROOM)
    inside = (frame < BLOCK)[:, None] & (column < WIDTH)[None, :]
    given = lane * key_lane + (slot * BLOCK + frame)[:, None] * key_row + head * WIDTH + column[None, :]
    page = tl.load(own + slot * record).to(tl.int64)
    place = kept + ((page * LANES + lane) * 2 * HEADS + head) * (BLOCK * WIDTH)
    place += frame[:, None] * WIDTH + column[None, :]
    k = tl.load(key + given, mask=inside, other=0.0)
    v = tl.load(value + given, mask=inside, other=0.0)
    tl.store(place, kept_as(k, kept.dtype.element_ty), mask=inside)
    tl.store(place + HEADS * BLOCK * WIDTH, kept_as(v, kept.dtype.element_ty), mask=inside)


@triton.jit
def _share(keys, KEYS: tl.constexpr, SPLITS: tl.constexpr):
    """Keys of each split: whole tiles. The splits of a stream follow from its own length alone."""
    return tl.cdiv(tl.cdiv(keys, SPLITS), KEYS) * KEYS


@triton.jit
def _tile(
    kept, table, key, known, column,
    LANES: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr, PRODUCT: tl.constexpr,
):  # fmt: skip
    """Some keys of a stream, their values, and how many pages before the newest each lies.

    table: of the stream's pages. known: which of the keys there are; None if all are.
    """
    back = key // BLOCK
    inside = (column < WIDTH)[None, :]
    if known is None:
        page = tl.load(table + back).to(tl.int64)
    else:
        page = tl.load(table + back, mask=known, other=0).to(tl.int64)
        inside = known[:, None] & inside
    row = page * (LANES * 2 * HEADS * BLOCK * WIDTH) + (key - back * BLOCK) * WIDTH
    place = kept + row[:, None] + column[None, :]
    k = tl.load(place, mask=inside, other=0.0).to(PRODUCT)
    v = tl.load(place + HEADS * BLOCK * WIDTH, mask=inside, other=0.0).to(PRODUCT)
    return k, v, back


@triton.jit
def _taken_in(scores, v, top, total, mixed, scale, PRODUCT: tl.constexpr):
    """A running softmax in float32, one tile further: highest score, sum of weights, weighted values."""
    higher = tl.maximum(top, tl.max(scores, 1) * scale)
    weights = tl.exp2(scores * scale - higher[:, None])
    shrink = tl.exp2(top - higher)
    total = total * shrink + tl.sum(weights, 1)
    mixed = mixed * shrink[:, None] + tl.dot(weights.to(PRODUCT), v, input_precision="tf32x3")
    return higher, total, mixed


@triton.jit(do_not_specialize=["distance_row", "distance_head", "first_distance"])
def _attend(
    query, query_lane, query_row, kept, table, pages, here, record,
    distances, distance_row, distance_head, first_distance, out, sums, tops, scale,
    LANES: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr, BLOCK_ROOM: tl.constexpr,
    WIDTH: tl.constexpr, WIDTH_ROOM: tl.constexpr, KEYS: tl.constexpr, SPLITS: tl.constexpr,
    RELATIVE: tl.constexpr, BARE: tl.constexpr, PRODUCT: tl.constexpr,
):  # fmt: skip
    """One slot, lane and head over one split of its stream's keys.

    scale: of the scores, times log2 e. BARE: tiles between the first and the last, of which every key counts, are taken
    before those and without looking which do; of one split, and not RELATIVE. PRODUCT: the type of products' factors.
    """
    slot, lane, head = tl.program_id(0), tl.program_id(1) // HEADS, tl.program_id(1) % HEADS
    split = tl.program_id(2)
    all_keys = tl.load(pages + slot * record) * BLOCK
    real = tl.load(here + slot * record)
    share = _share(all_keys, KEYS, SPLITS)
    begin = split * share
    end = tl.minimum(begin + share, all_keys)
    frame, column = tl.arange(0, BLOCK_ROOM), tl.arange(0, WIDTH_ROOM)
    in_block, in_width = frame < BLOCK, (column < WIDTH)[None, :]
    inside = in_block[:, None] & in_width
    rows = slot * BLOCK + frame
    query += lane * query_lane + head * WIDTH
    q = tl.load(query + rows[:, None] * query_row + column[None, :], mask=inside, other=0.0).to(PRODUCT)
    kept += (lane * 2 * HEADS + head) * (BLOCK * WIDTH)
    table += slot * record
    nearby = distances + head * distance_head + rows[:, None] * distance_row
    top = tl.full([BLOCK_ROOM], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_ROOM], tl.float32)
    mixed = tl.zeros([BLOCK_ROOM, WIDTH_ROOM], tl.float32)
    within = tl.arange(0, KEYS)
    stride = KEYS
    if BARE:
        behind = end - end % KEYS  # where the last tile begins, or would
        for first in range(KEYS, behind, KEYS):
            k, v, _ = _tile(kept, table, first + within, None, column, LANES, HEADS, BLOCK, WIDTH, PRODUCT)
            scores = tl.dot(q, tl.trans(k), input_precision="tf32x3")
            top, total, mixed = _taken_in(scores, v, top, total, mixed, scale, PRODUCT)
        stride = tl.maximum(behind, KEYS)
    for first in range(begin, end, stride):
        key = first + within
        known = key < end
        k, v, back = _tile(kept, table, key, known, column, LANES, HEADS, BLOCK, WIDTH, PRODUCT)
        scores = tl.dot(q, tl.trans(k), input_precision="tf32x3")
        if RELATIVE:
            distance = frame[:, None] + (back * BLOCK - (key - back * BLOCK))[None, :]
            pairs = in_block[:, None] & known[None, :]
            scores += tl.load(nearby + (first_distance - distance), mask=pairs, other=0.0)
        visible = known & ((key < real) | (key >= BLOCK))  # of the newest page what is real
        scores = tl.where(visible[None, :], scores, float("-inf"))
        top, total, mixed = _taken_in(scores, v, top, total, mixed, scale, PRODUCT)
    row = lane * (tl.num_programs(0) * BLOCK) + rows
    if SPLITS == 1:
        place = out + row[:, None] * (HEADS * WIDTH) + head * WIDTH + column[None, :]
        tl.store(place, (mixed / total[:, None]).to(out.dtype.element_ty), mask=inside)
    elif begin < all_keys:
        part = (split * LANES * tl.num_programs(0) * BLOCK + row) * HEADS + head
        tl.store(out + part[:, None] * WIDTH + column[None, :], mixed, mask=inside)
        tl.store(sums + part, total, mask=in_block)
        tl.store(tops + part, top, mask=in_block)


@triton.jit
def _join(
    parts, sums, tops, pages, record, out, rows, items,
    HEADS: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr, WIDTH_ROOM: tl.constexpr,
    KEYS: tl.constexpr, SPLITS: tl.constexpr, ITEMS: tl.constexpr,
):  # fmt: skip
    """What the splits of `_attend` found, put together at one stroke. An item is one head of one row of one lane."""
    item = tl.program_id(0) * ITEMS + tl.arange(0, ITEMS)
    split, column = tl.arange(0, SPLITS), tl.arange(0, WIDTH_ROOM)
    known = item < items
    slot = item // HEADS % rows // BLOCK
    keys = tl.load(pages + slot * record, mask=known, other=1) * BLOCK
    used = (split[:, None] * _share(keys, KEYS, SPLITS)[None, :] < keys[None, :]) & known[None, :]
    part = split[:, None] * items + item[None, :]
    top = tl.load(tops + part, mask=used, other=float("-inf"))
    total = tl.load(sums + part, mask=used, other=0.0)
    found = used[:, :, None] & (column < WIDTH)[None, None, :]
    mixed = tl.load(parts + part[:, :, None] * WIDTH + column[None, None, :], mask=found, other=0.0)
    highest = tl.where(known, tl.max(top, 0), 0.0)
    weight = tl.exp2(top - highest[None, :])
    whole = tl.where(known, tl.sum(weight * total, 0), 1.0)
    result = tl.sum(weight[:, :, None] * mixed, 0) / whole[:, None]
    place = out + item[:, None] * WIDTH + column[None, :]
    tl.store(place, result.to(out.dtype.element_ty), mask=known[:, None] & (column < WIDTH)[None, :])


def splits_of(slots: int) -> int:
    """Programs among which the keys of a slot are split, in a pack of so many slots."""
    return next((splits for most, splits in SPLITS if slots <= most), 1)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    kept: Tensor,
    sight: Sight,
    distance_scores: Tensor | None = None,
) -> Tensor:
    """See `attention.attend`; sight.pages matters to distance_scores alone."""
    lanes, _, heads, width = query.shape
    slots, block = sight.slots, sight.block
    _keep[slots.count, lanes * heads](
        key, value, key.stride(0), key.stride(1), kept, slots.own, Slots.WIDTH,
        LANES=lanes, HEADS=heads, BLOCK=block, BLOCK_ROOM=room(block), WIDTH=width, WIDTH_ROOM=room(width),
    )  # fmt: skip
    return attend_kept(query, kept, sight, distance_scores)


def attend_kept(query: Tensor, kept: Tensor, sight: Sight, distance_scores: Tensor | None = None) -> Tensor:
    """See `attention.attend_kept`."""
    lanes, rows, heads, width = query.shape
    slots, block = sight.slots, sight.block
    splits, relative = splits_of(slots.count), distance_scores is not None
    keys, bare, stages = _tiles(slots.count, kept.dtype.itemsize)
    out = query.new_empty(lanes, rows, heads * width)
    if splits > 1:
        parts = query.new_empty(splits, lanes, rows, heads, width, dtype=torch.float32)
        sums, tops = query.new_empty(2, splits, lanes, rows, heads, dtype=torch.float32).unbind(0)
    else:
        parts = sums = tops = out
    scores = out if distance_scores is None else distance_scores
    _attend[slots.count, lanes * heads, splits](
        query, query.stride(0), query.stride(1), kept, slots.table, slots.pages, sight.here, Slots.WIDTH,
        scores, scores.stride(1) if relative else 0, scores.stride(0) if relative else 0,
        sight.pages * block - 1, parts, sums, tops, LOG2_E / math.sqrt(width),
        LANES=lanes, HEADS=heads, BLOCK=block, BLOCK_ROOM=room(block), WIDTH=width, WIDTH_ROOM=room(width),
        KEYS=keys, SPLITS=splits, RELATIVE=relative, BARE=bare and not relative and splits == 1,
        PRODUCT=product_type(query.dtype, kept.dtype), num_stages=stages,
    )  # fmt: skip
    if splits > 1:
        items = lanes * rows * heads
        _join[(triton.cdiv(items, JOINED_ITEMS),)](
            parts, sums, tops, slots.pages, Slots.WIDTH, out, rows, items,
            HEADS=heads, BLOCK=block, WIDTH=width, WIDTH_ROOM=room(width), KEYS=keys, SPLITS=splits, ITEMS=JOINED_ITEMS,
        )  # fmt: skip
    return out


def _tiles(slots: int, value_bytes: int) -> tuple[int, bool, int]:
    """Width of a tile, whether the inner ones are BARE, and how many are fetched ahead.

    Nothing is gained by fetching values ahead that have to be turned into another type. Those of 2 and 4 bytes are
    read as they are; their tiles were not measured.
    """
    if value_bytes > 1:
        return 256 // value_bytes, False, 3
    return (128, False, 1) if slots <= FEW_SLOTS else (64, True, 1)


def product_type(query: torch.dtype, kept: torch.dtype) -> tl.dtype:
    """What keys and values are multiplied in. 8-bit floats are float16 after one instruction for two, bfloat16 after
    five; float16 holds them all, and weights with three bits more."""
    if kept.itemsize == 1 and query.itemsize == 2:
        return tl.float16
    return {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}[query]


def room(size: int) -> int:
    """Width of a tile that holds so much."""
    return max(16, triton.next_power_of_2(size))
