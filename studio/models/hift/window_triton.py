"""The one Triton kernel behind `window_kernels`; imported only where Triton is and a GPU computes."""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from studio.models.hift.window_kernels import LARGEST_HALF, Leak, Snake

BLOCK = 1024
LARGEST = tl.constexpr(LARGEST_HALF)
NOTHING, SNAKE, LEAK = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)


@triton.jit
def _held(value):  # type: ignore[no-untyped-def]
    """Within float16. What is no number stays that, which a minimum of two would not promise."""
    value = tl.where(value > LARGEST, LARGEST, value)
    return tl.where(value < -LARGEST, -LARGEST, value)


@triton.jit
def _between(  # type: ignore[no-untyped-def]
    y,
    x,
    beside,
    bias,
    mask,
    alpha,
    inverse,
    total,
    active,
    y_row,
    x_row,
    beside_row,
    mask_row,
    elements,
    slope,
    scale,
    channels: tl.constexpr,
    ADDED: tl.constexpr,
    BORDERED: tl.constexpr,
    SUMMED: tl.constexpr,
    ACTIVE: tl.constexpr,
    HALF_IN: tl.constexpr,
    HALF_OUT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.program_id(1)
    inside = at < elements
    channel = at % channels
    value = tl.load(y + row * y_row + at, mask=inside, other=0.0).to(tl.float32)
    if HALF_IN:
        value = _held(value)  # a convolution that went beyond float16 gives infinity
    if BORDERED:
        value += tl.load(bias + channel)
        if ADDED > 0:
            value += tl.load(x + row * x_row + at, mask=inside, other=0.0)
        if ADDED > 1:
            value += tl.load(beside + row * beside_row + at, mask=inside, other=0.0)
        value *= tl.load(mask + row * mask_row + at // channels, mask=inside, other=0.0)
    if SUMMED:
        tl.store(total + row * elements + at, value, mask=inside)
    if ACTIVE == SNAKE:
        sine = tl.sin(value * tl.load(alpha + channel))
        value += sine * sine * tl.load(inverse + channel)
    if ACTIVE == LEAK:
        value *= scale
        value = tl.where(value > 0, value, value * slope)
    if ACTIVE != NOTHING:
        if HALF_OUT:
            value = _held(value).to(tl.float16)
        tl.store(active + row * elements + at, value, mask=inside)


def between(
    y: Tensor,
    bias: Tensor | None,
    mask: Tensor | None,
    added: Sequence[Tensor],
    by: Snake | Leak | None,
    total: Tensor | None,
    active: Tensor | None,
) -> None:
    """total = (y + bias + added) x mask, active = its activation; what is None is left out, and y given as pointer.

    y, active: [B, C, 1, n], float32 or float16; at most two added, total: float32; mask: float32 [B, n]. Rows in one
    piece, channels innermost: those read as far from each other as may be, those written behind each other.
    """
    alpha, inverse = by if isinstance(by, Snake) else (y, y)
    slope, scale = by if isinstance(by, Leak) else (0.0, 0.0)
    x, beside = [*added, y, y][:2]
    rows, channels, _, length = y.shape
    elements = channels * length
    _between[(triton.cdiv(elements, BLOCK), rows)](
        y,
        x,
        beside,
        y if bias is None else bias,
        y if mask is None else mask,
        alpha,
        inverse,
        y if total is None else total,
        y if active is None else active,
        y.stride(0),
        x.stride(0),
        beside.stride(0),
        0 if mask is None else mask.stride(0),
        elements,
        slope,
        scale,
        channels,
        ADDED=len(added),
        BORDERED=bias is not None,
        SUMMED=total is not None,
        ACTIVE=(NOTHING if by is None else SNAKE if isinstance(by, Snake) else LEAK).value,
        HALF_IN=y.dtype == torch.float16,
        HALF_OUT=active is not None and active.dtype == torch.float16,
        BLOCK=BLOCK,
    )
