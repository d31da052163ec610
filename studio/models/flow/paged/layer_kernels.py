# mypy: disallow-untyped-defs=False
"""What lies between the products of the estimator as Triton kernels; see `estimator`. Numbers are float32 inside."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

ROWS = 4
"""Frames of one program: a warp each."""


@triton.jit
def norm_of(value, inside, weight, bias, column, channels, eps):
    mean = tl.sum(value, 1) / channels
    centred = tl.where(inside, value - mean[:, None], 0.0)
    variance = tl.sum(centred * centred, 1) / channels
    scale = 1.0 / tl.sqrt(variance + eps)
    known = column < channels
    w = tl.load(weight + column, mask=known, other=0.0).to(tl.float32)
    b = tl.load(bias + column, mask=known, other=0.0).to(tl.float32)
    return centred * scale[:, None] * w[None, :] + b[None, :]


@triton.jit
def mish_of(value):
    power = tl.exp(tl.minimum(value, 20.0))  # beyond, the tangent is 1 in float32
    double = power * (power + 2.0)
    return value * (double / (double + 2.0))


@triton.jit
def _add_norm(
    x, added, weight, bias, total, normed, rows, channels, eps,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, ADDED: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    inside = (row < rows)[:, None] & (column < channels)[None, :]
    place = row[:, None] * channels + column[None, :]
    value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    if ADDED:
        value += tl.load(added + place, mask=inside, other=0.0).to(tl.float32)
        tl.store(total + place, value.to(total.dtype.element_ty), mask=inside)
    out = norm_of(value, inside, weight, bias, column, channels, eps)
    tl.store(normed + place, out.to(normed.dtype.element_ty), mask=inside)


@triton.jit
def _norm_mish(
    x, added, added_row, weight, bias, out, rows, channels, eps,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, ADDED: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    inside = (row < rows)[:, None] & (column < channels)[None, :]
    place = row[:, None] * channels + column[None, :]
    value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    value = norm_of(value, inside, weight, bias, column, channels, eps)
    value = mish_of(value)
    if ADDED:
        value += tl.load(added + row[:, None] * added_row + column[None, :], mask=inside, other=0.0).to(
            tl.float32
        )
    tl.store(out + place, value.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _euler(x, velocities, out, count, guidance, record, in_slot, length, ROOM: tl.constexpr):
    place = tl.program_id(0) * ROOM + tl.arange(0, ROOM)
    inside = place < count
    weights = guidance + place // in_slot * record
    given = tl.load(velocities + place, mask=inside, other=0.0).to(tl.float32)
    free = tl.load(velocities + count + place, mask=inside, other=0.0).to(tl.float32)
    guided = tl.load(weights, mask=inside, other=0.0) * given - tl.load(weights + 1, mask=inside, other=0.0) * free
    tl.store(out + place, tl.load(x + place, mask=inside, other=0.0) + length * guided, mask=inside)


def add_norm(x: Tensor, added: Tensor | None, norm: nn.LayerNorm) -> tuple[Tensor, Tensor]:
    """See `estimator.add_norm`."""
    x = x.contiguous()
    total, normed = x if added is None else torch.empty_like(x), torch.empty_like(x)
    channels = x.shape[-1]
    rows = x.numel() // channels
    _add_norm[(triton.cdiv(rows, ROWS),)](
        x, x if added is None else added.contiguous(), norm.weight, norm.bias, total, normed, rows, channels, norm.eps,
        ROWS=ROWS, WIDTH=triton.next_power_of_2(channels), ADDED=added is not None,
    )  # fmt: skip
    return total, normed


def norm_mish(x: Tensor, norm: nn.LayerNorm, added: Tensor | None) -> Tensor:
    """See `estimator.norm_mish`."""
    x = x.contiguous()
    out, channels = torch.empty_like(x), x.shape[-1]
    rows = x.numel() // channels
    plus = x if added is None else added.contiguous()
    _norm_mish[(triton.cdiv(rows, ROWS),)](
        x, plus, channels if plus.numel() == x.numel() else 0, norm.weight, norm.bias, out, rows, channels, norm.eps,
        ROWS=ROWS, WIDTH=triton.next_power_of_2(channels), ADDED=added is not None,
    )  # fmt: skip
    return out


def euler(x: Tensor, velocities: Tensor, length: float, guidance: Tensor) -> Tensor:
    """See `estimator.euler`."""
    x, velocities = x.contiguous(), velocities.contiguous()
    out, room = torch.empty_like(x), 1024
    _euler[(triton.cdiv(x.numel(), room),)](
        x, velocities, out, x.numel(), guidance, guidance.stride(0), x.numel() // len(guidance), length, ROOM=room
    )
    return out
