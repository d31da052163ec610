"""Products of a transformer with what stands before and behind each as one call, in plain torch.

`product_kernels` does the same on a GPU, a kernel a call.

Axes: G lanes, N packed frames, C channels, H heads, D width of a head.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from studio.models.flow.estimator import Transformer
from studio.models.flow.paged import attention
from studio.models.flow.paged.attention import Sight


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
    query, key, value = (norm(x) @ factor).unflatten(-1, (3, heads, -1)).unbind(2)
    attention.keep(key, value, kept, sight)
    return query


def norm_gelu(x: Tensor, norm: nn.LayerNorm, factor: Tensor, plus: Tensor) -> Tensor:
    """Exact GELU of the norm's product: [G, N, C] -> [G, N, inner]."""
    return F.gelu(norm(x) @ factor + plus)


def product_sum(x: Tensor, factor: Tensor, plus: Tensor, given: Tensor) -> Tensor:
    """x [G, N, in] times the factor, plus a bias [C], plus what is given [G, N, C]."""
    return given + (x @ factor + plus)
