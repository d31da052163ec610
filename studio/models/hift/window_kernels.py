"""What stands between two convolutions of the decoder, as one pass over memory: bias, border, sums, activation.

On a GPU the convolutions of a vocoder are short and the elementwise steps between them are most of its memory
traffic: torch's own kernels pass 35 times over each layer of a residual block, these eleven times. Where there is no
Triton the same is said in torch. Layout: [B, C, 1, n] with the channels innermost in memory; a row may be a part of a
longer one.

A convolution reads and writes float32 or float16. All here is computed in float32, and what goes on beside the
convolutions is kept so.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

CHANNELS_INNERMOST = torch.channels_last
HAS_TRITON = find_spec("triton") is not None
LARGEST_HALF = 65504.0


class Snake(NamedTuple):
    """x + sin^2(alpha x) x inverse; float32 [C] each."""

    alpha: Tensor
    inverse: Tensor

    @classmethod
    def of(cls, alpha: Tensor) -> Snake:
        alpha = alpha.detach().contiguous()
        return cls(alpha, 1 / (alpha + 1e-9))


class Leak(NamedTuple):
    """leaky_relu(x scale)."""

    slope: float
    scale: float = 1.0


def narrowed(x: Tensor, dtype: torch.dtype) -> Tensor:
    """As a convolution reads it. Float16 ends at 65504: loud values are held there, for what lies beyond it becomes
    infinite, and the next layer makes of two infinities what is no number and spreads over the whole row."""
    return x.clamp(-LARGEST_HALF, LARGEST_HALF).to(dtype) if dtype == torch.float16 else x.to(dtype)


def summed(y: Tensor, bias: Tensor, mask: Tensor, *added: Tensor) -> Tensor:
    """(y + bias + added) x mask, float32. y: of a convolution without its bias; bias: float32 [C]; mask: [B, n] of 0
    and 1; added: at most two, float32."""
    if _fused(y):
        total = _empty(y, torch.float32)
        _launch(y, bias, mask, added, None, total, None)
        return total
    return _summed(y, bias, mask, added)


def activated(
    y: Tensor, bias: Tensor | None, mask: Tensor | None, *added: Tensor, by: Snake | Leak, dtype: torch.dtype
) -> Tensor:
    """The activation of what `summed` gives, for a convolution of that type; of y itself without bias and mask."""
    if _fused(y):
        active = _empty(y, dtype)
        _launch(y, bias, mask, added, by, None, active)
        return active
    return _activated(y if bias is None or mask is None else _summed(y, bias, mask, added), by, dtype)


def summed_and_activated(
    y: Tensor, bias: Tensor, mask: Tensor, *added: Tensor, by: Snake | Leak, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """What `summed` and `activated` give."""
    if _fused(y):
        total, active = _empty(y, torch.float32), _empty(y, dtype)
        _launch(y, bias, mask, added, by, total, active)
        return total, active
    total = _summed(y, bias, mask, added)
    return total, _activated(total, by, dtype)


def _summed(y: Tensor, bias: Tensor, mask: Tensor, added: tuple[Tensor, ...]) -> Tensor:
    # a convolution that went beyond float16 gives infinity
    wide = y.float().clamp(-LARGEST_HALF, LARGEST_HALF) if y.dtype == torch.float16 else y
    total = wide + bias[:, None, None]
    for x in added:
        total = x + total
    return total * mask[:, None, None]


def _activated(x: Tensor, by: Snake | Leak, dtype: torch.dtype) -> Tensor:
    if isinstance(by, Leak):
        return narrowed(F.leaky_relu(x * by.scale, by.slope), dtype)
    sine = (by.alpha[:, None, None] * x).sin_()
    return narrowed(torch.addcmul(x, sine * by.inverse[:, None, None], sine), dtype)


def _fused(x: Tensor) -> bool:
    return HAS_TRITON and x.is_cuda


def _empty(like: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.empty(like.shape, dtype=dtype, device=like.device, memory_format=CHANNELS_INNERMOST)


def _launch(
    y: Tensor,
    bias: Tensor | None,
    mask: Tensor | None,
    added: tuple[Tensor, ...],
    by: Snake | Leak | None,
    total: Tensor | None,
    active: Tensor | None,
) -> None:
    from studio.models.hift.window_triton import between

    between(_rows(y), bias, mask, [_rows(x) for x in added], by, total, active)


def _rows(x: Tensor) -> Tensor:
    """x where each of its rows lies in one piece, channels innermost; else a copy that does."""
    in_pieces = x.stride(1) == 1 and x.stride(3) == x.shape[1]
    return x if in_pieces else x.contiguous(memory_format=CHANNELS_INNERMOST)
