# mypy: disallow-untyped-defs=False
"""A step of repetition-aware sampling as one Triton kernel, a program a row: `ras_draw.step_in_torch` in one launch.

Imported where a GPU is used, or to be run by Triton's interpreter. Axes as in ras_draw.py.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from studio.models.speech_lm import draw
from studio.models.speech_lm.ras_draw import RING as RING_PLACES
from studio.models.speech_lm.ras_draw import WORD, WORDS, Layout

RECORD = tl.constexpr(WORDS)
SEED, TOP_K, NEEDED = (tl.constexpr(WORD[name]) for name in ("seed", "top_k", "repeats_needed"))
WINDOW, KNOWN, RING_AT = (tl.constexpr(WORD[name]) for name in ("window", "known", "ring"))
SETTINGS = tl.constexpr(WORD["temperature"])
FIRST_END, ENDS_AFTER, ONLY_END = (tl.constexpr(WORD[name]) for name in ("first_end", "ends_after", "only_end"))
RING = tl.constexpr(RING_PLACES)
STEP, FIRST, SECOND = (tl.constexpr(value) for value in (draw.STEP, draw.FIRST, draw.SECOND))
UNUSED_BITS = tl.constexpr(64 - draw.BITS)
UNIT = tl.constexpr(2.0**-draw.BITS)
NOTHING = tl.constexpr(-(1 << 63))
"""Below the key of every score."""
IMPOSSIBLE = tl.constexpr(float("-inf"))


@triton.jit
def _mix(x):
    x = (x ^ (x >> 30)) * FIRST
    x = (x ^ (x >> 27)) * SECOND
    return x ^ (x >> 31)


@triton.jit
def _score_of(key):
    high = (key >> 32).to(tl.int32)
    return (high ^ ((high >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit(do_not_specialize=["stride", "width"])
def _draw(logits, stride, width, records, record_of, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    record = records + tl.load(record_of + row) * RECORD
    top_k = tl.load(record + TOP_K)
    if top_k > 0:
        logits_at = logits + row * stride + tl.arange(0, BLOCK)
        known = tl.load(record + KNOWN)
        needed = tl.load(record + NEEDED)
        settings = tl.load(record + SETTINGS)
        temperature = settings.to(tl.int32).to(tl.float32, bitcast=True)
        top_p = (settings >> 32).to(tl.int32).to(tl.float32, bitcast=True)
        place = tl.arange(0, RING)
        back = (known - 1 - place) & (RING - 1)  # 0 for the place of the last token
        recent = tl.load(record + RING_AT + place)
        recent = tl.where(back < tl.minimum(tl.load(record + WINDOW), known), recent, -1)

        at = tl.arange(0, BLOCK)
        inside = at < width
        scores = tl.load(logits_at, mask=inside, other=IMPOSSIBLE)
        only_end = tl.load(record + ONLY_END)
        barred = (known < tl.load(record + ENDS_AFTER)) | ((only_end >= 0) & (at != only_end))
        scores = tl.where((at >= tl.load(record + FIRST_END)) & barred, IMPOSSIBLE, scores)
        scores = tl.div_rn(scores, tl.zeros_like(scores) + temperature)
        scores = tl.where(scores == 0.0, 0.0, scores)  # -0.0 too
        # Score and id in one integer that has no equals: it orders as the floats do, equal ones by falling ids.
        bits = scores.to(tl.int32, bitcast=True)
        key = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.int64) << 32
        key = tl.where(inside, key | (width - 1 - at).to(tl.int64), NOTHING)

        # The likeliest token apart, for only its p can be so near 1 that 1 - p loses all digits: the others are
        # summed without it, by the greatest of them.
        likeliest = tl.max(key, 0)
        top_score = _score_of(likeliest)
        is_top = key == likeliest
        other_scores = tl.where(is_top, IMPOSSIBLE, scores)
        base = tl.max(other_scores, 0)
        has_others = base > IMPOSSIBLE  # else the one token is kept though it repeats
        base = tl.where(has_others, base, top_score)
        others = tl.exp(other_scores - base)
        all_others = tl.sum(others, 0)
        drop = tl.exp(base - top_score)
        top_share = 1.0 / (1.0 + all_others * drop)
        scale = drop * top_share  # others * scale: their part of the softmax of all

        # The nucleus, one candidate after the other from the likeliest on: in while the mass before is below top_p.
        # No `while`: Triton 3.6 built one for the GPU that took the next candidate for `least`.
        candidate = likeliest
        least = likeliest
        mass = 0.0
        first = 0.0  # q of the likeliest token if it is repeated, times the nucleus' mass, as all shares here
        total = 0.0  # of q(x) / (1 - p(x)) over the other repeated x
        share = tl.zeros_like(others)  # that of each
        for rank in range(top_k):
            inside_nucleus = (mass < top_p) & (candidate > NOTHING)
            least = tl.where(inside_nucleus, candidate, least)
            p = tl.where(rank == 0, top_share, tl.exp(_score_of(candidate) - base) * scale)
            token = width - 1 - (candidate & 0xFFFFFFFF)
            repeated = (tl.sum((recent == token).to(tl.int32), 0) >= needed) & has_others & inside_nucleus
            first = tl.where(repeated & (rank == 0), p, first)
            moved = tl.where(repeated & (rank > 0), p / (1.0 - p), 0.0)
            total += moved
            share = tl.where(key == candidate, moved, share)
            mass += tl.where(inside_nucleus, p, 0.0)
            candidate = tl.max(tl.where(key < candidate, key, NOTHING), 0)

        # The law times the nucleus' mass; share is exactly what total has of it, so a lone repeat is left nothing.
        kept = tl.where((key >= least) & (share == 0.0), 1.0, 0.0)
        weight = others * scale * (total - share + kept) + others * (first / tl.maximum(all_others, 1.0))
        weight = tl.where(is_top, top_share * total + tl.where(first > 0.0, 0.0, top_share), weight)

        seed = tl.load(record + SEED).to(tl.uint64, bitcast=True)
        number = _mix(seed + (known + 1).to(tl.uint64) * STEP) >> UNUSED_BITS
        # float64: the sum of thousands of float32 would lose what rare tokens have.
        passed = tl.cumsum(weight.to(tl.float64), 0)
        reached = number.to(tl.float64) * UNIT * tl.max(passed, 0)
        drawn = tl.min(tl.where((passed > reached) & (weight > 0.0), at, BLOCK), 0)
        # Scores that are no numbers must still give a token.
        drawn = tl.where(drawn < width, drawn, width - 1 - (likeliest & 0xFFFFFFFF))

        tl.store(logits_at, tl.where(at == drawn, 0.0, IMPOSSIBLE), mask=inside)
        tl.store(record + RING_AT + (known & (RING - 1)), drawn)
        tl.store(record + KNOWN, known + 1)


def step_in_one_kernel(logits: torch.Tensor, records: torch.Tensor, layout: Layout) -> torch.Tensor:
    """The step of a `ras_draw.Draw` that keeps its records on the device; overwrites the logits, whose rows must be
    contiguous. No value is read back to the host."""
    width = logits.shape[1]
    _draw[(logits.shape[0],)](
        logits, logits.stride(0), width, records, layout.record_of, BLOCK=triton.next_power_of_2(width), num_warps=16
    )
    return logits
