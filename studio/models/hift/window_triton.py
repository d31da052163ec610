"""The one Triton kernel behind `window_kernels`; imported only where Triton is and a GPU computes."""

import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024


@triton.jit
def _between(  # type: ignore[no-untyped-def]
    y,
    x,
    bias,
    mask,
    alpha,
    inverse,
    total,
    active,
    elements,
    channels: tl.constexpr,
    ADDED: tl.constexpr,
    BORDERED: tl.constexpr,
    SUMMED: tl.constexpr,
    ACTIVE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < elements
    channel = at % channels
    value = tl.load(y + at, mask=inside, other=0.0)
    if BORDERED:
        value += tl.load(bias + channel)
        if ADDED:
            value += tl.load(x + at, mask=inside, other=0.0)
        value *= tl.load(mask + at // channels, mask=inside, other=0.0)
    if SUMMED:
        tl.store(total + at, value, mask=inside)
    if ACTIVE:
        sine = tl.sin(value * tl.load(alpha + channel))
        tl.store(active + at, value + sine * sine * tl.load(inverse + channel), mask=inside)


def between(
    y: Tensor,
    x: Tensor | None,
    bias: Tensor | None,
    mask: Tensor | None,
    weights: tuple[Tensor, Tensor] | None,
    total: Tensor | None,
    active: Tensor | None,
) -> None:
    """total = (x + y + bias) x mask, active = its snake; what is None is left out, and y given for its pointer.

    y, x, total, active: float32 [B, C, 1, n] in one layout, channels innermost; mask: float32 [B, n], contiguous.
    """
    alpha, inverse = (y, y) if weights is None else weights
    elements = y.numel()
    _between[(triton.cdiv(elements, BLOCK),)](
        y,
        y if x is None else x,
        y if bias is None else bias,
        y if mask is None else mask,
        alpha,
        inverse,
        y if total is None else total,
        y if active is None else active,
        elements,
        y.shape[1],
        ADDED=x is not None,
        BORDERED=bias is not None,
        SUMMED=total is not None,
        ACTIVE=active is not None,
        BLOCK=BLOCK,
    )
