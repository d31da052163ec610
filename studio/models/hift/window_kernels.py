"""What stands between two convolutions of a residual block, as one pass over memory: bias, border, sum, snake.

On a GPU the convolutions of a vocoder are short and the elementwise steps between them are most of its memory
traffic: torch's own kernels pass 35 times over each layer of a block, these eleven times. Where there is no Triton
the same is said in torch. Layout: [B, C, 1, n] with the channels innermost in memory.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor

CHANNELS_INNERMOST = torch.channels_last
HAS_TRITON = find_spec("triton") is not None


class SnakeWeights(NamedTuple):
    """x + sin^2(alpha x) x inverse; float32 [C] each."""

    alpha: Tensor
    inverse: Tensor

    @classmethod
    def of(cls, alpha: Tensor) -> SnakeWeights:
        alpha = alpha.detach().contiguous()
        return cls(alpha, 1 / (alpha + 1e-9))


def snake(x: Tensor, weights: SnakeWeights, bias: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
    """Snake of (x + bias) x mask; bias [C], mask [B, n] of 0 and 1, both or neither."""
    if _fused(x):
        return _launch(x, None, bias, mask, weights, keep_sum=False)[1]
    return _snake(x if bias is None or mask is None else _masked(x + _over(bias), mask), weights)


def add(
    x: Tensor, y: Tensor, bias: Tensor, mask: Tensor, weights: SnakeWeights | None
) -> tuple[Tensor, Tensor]:
    """(x + y + bias) x mask, and the snake of that (the same again without weights)."""
    if _fused(y):
        return _launch(y, x, bias, mask, weights, keep_sum=True)
    total = _masked(x + (y + _over(bias)), mask)
    return total, total if weights is None else _snake(total, weights)


def _over(of_channels: Tensor) -> Tensor:
    return of_channels[:, None, None]


def _masked(x: Tensor, mask: Tensor) -> Tensor:
    return x * mask[:, None, None]


def _snake(x: Tensor, weights: SnakeWeights) -> Tensor:
    sine = (_over(weights.alpha) * x).sin_()
    return torch.addcmul(x, sine * _over(weights.inverse), sine)


def _fused(x: Tensor) -> bool:
    return HAS_TRITON and x.is_cuda


def _launch(
    y: Tensor,
    x: Tensor | None,
    bias: Tensor | None,
    mask: Tensor | None,
    weights: SnakeWeights | None,
    keep_sum: bool,
) -> tuple[Tensor, Tensor]:
    from studio.models.hift.window_triton import between

    y = y.contiguous(memory_format=CHANNELS_INNERMOST)
    if x is not None:
        x = x.contiguous(memory_format=CHANNELS_INNERMOST)
    total = torch.empty_like(y) if keep_sum else y
    active = y if weights is None else torch.empty_like(y)
    between(y, x, bias, mask, weights, total if keep_sum else None, active if weights is not None else None)
    return total, total if weights is None else active
