"""Products of a transformer with what stands before and behind each as one call, in plain torch.

`product_kernels` and `conv_kernels` do the same on a GPU, a kernel a call.

Axes: G lanes, N packed frames, C channels, H heads, D width of a head.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from studio.models.flow.estimator import ConvNorm, Transformer
from studio.models.flow.layers import CausalConv, mish
from studio.models.flow.paged import attention
from studio.models.flow.paged.attention import Sight

LEAST_DEPTH = 16
"""Channels of a convolution that its kernel takes at once, or more: its input has a multiple of them."""


@dataclass(frozen=True, slots=True)
class Factors:
    """A transformer's matrices, each [in, out] and contiguous; of `lay_out_for_products` only the first is a copy."""

    qkv: Tensor  # [C, 3 H D]
    out: Tensor  # [H D, C]
    first: Tensor  # [C, inner]
    second: Tensor  # [inner, C]

    @staticmethod
    def of(layer: Transformer) -> Factors:
        attention, net = layer.attn1, layer.ff.net
        qkv = torch.cat([part.weight.T for part in (attention.to_q, attention.to_k, attention.to_v)], dim=1)
        rest = (attention.to_out[0], net["0"]["proj"], net["2"])
        return Factors(qkv.contiguous(), *(product.weight.T.contiguous() for product in rest))


def norm_qkv(
    x: Tensor, norm: nn.LayerNorm, factor: Tensor, kept: Tensor, sight: Sight, heads: int
) -> Tensor:
    """Queries [G, N, H, D] of the norm of x [G, N, C]; its keys and values go into the slots' own pages."""
    query, key, value = F.linear(norm(x), factor.T).unflatten(-1, (3, heads, -1)).unbind(2)
    attention.keep(key, value, kept, sight)
    return query


def norm_gelu(x: Tensor, norm: nn.LayerNorm, factor: Tensor, plus: Tensor) -> Tensor:
    """Exact GELU of the norm's product: [G, N, C] -> [G, N, inner]."""
    return F.gelu(F.linear(norm(x), factor.T, plus))


def product_sum(x: Tensor, factor: Tensor, plus: Tensor, given: Tensor) -> Tensor:
    """x [G, N, in] times the factor, plus a bias [C], plus what is given [G, N, C]."""
    return given + F.linear(x, factor.T, plus)


@dataclass(frozen=True, slots=True)
class Convolution:
    """A causal convolution as one product of each frame's window, and the norm behind it."""

    factor: Tensor  # [taps * C_in, C], contiguous
    plus: Tensor  # [C]
    taps: int
    slot: int
    norm: nn.LayerNorm

    @staticmethod
    def of(block: ConvNorm) -> Convolution:
        conv: CausalConv = block.block["0"]
        return Convolution(conv.matrix().T.contiguous(), conv.bias, conv.taps, conv.slot, block.block["2"])


@dataclass(frozen=True, slots=True)
class Straight:
    """What is added behind a convolution: x [G, N, in] times factor [in, C], plus a bias [C]."""

    x: Tensor
    factor: Tensor
    plus: Tensor


def conv_norm(
    x: Tensor, conv: Convolution, edges: Tensor, sight: Sight, added: Tensor | None, straight: Straight | None
) -> Tensor:
    """Mish of the norm of a convolution of x [G, N, C_in], plus what is added [1, 1, C] or goes straight.

    edges: as `attention.window` takes and writes them.
    """
    window = attention.window(x, edges, sight, conv.taps)
    found = mish(conv.norm(F.linear(window, conv.factor.T, conv.plus)))
    if added is not None:
        found = found + added
    return found if straight is None else found + F.linear(straight.x, straight.factor.T, straight.plus)
