"""The estimator's layers with fewer kernels: what lies between two products is one, or part of a product's own.

The weights and the products are the estimator's own. Plain torch stands for the kernels where there is no GPU.

Axes: G lanes, N packed frames, C channels.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from studio.models.flow.estimator import CausalConditionalDecoder, ConvNorm, Residual, Transformer
from studio.models.flow.layers import View, mish
from studio.models.flow.paged import products
from studio.models.flow.paged.view import PagedView


class JoinedEstimator:
    """Calls as `CausalConditionalDecoder`, for inference and one type of numbers."""

    def __init__(self, estimator: CausalConditionalDecoder) -> None:
        self._estimator = estimator
        self._add_norm, self._norm_mish, self._feed = add_norm, norm_mish, feed
        if (weight := next(estimator.parameters())).device.type == "cuda":
            from studio.models.flow.paged import layer_kernels

            self._add_norm, self._norm_mish = layer_kernels.add_norm, layer_kernels.norm_mish
            if weight.dtype.itemsize == 2:
                self._feed = feed_at_once

    def __call__(self, x: Tensor, conditions: Tensor, times: list[Tensor], view: View) -> Tensor:
        """See `CausalConditionalDecoder.forward`."""
        own, remaining = self._estimator, iter(times)
        residual, transformers, conv = own.down_blocks[0]
        skip = self._stage(torch.cat([x, conditions], dim=-1), residual, transformers, next(remaining), view)
        x = conv(skip, view)
        for residual, transformers in own.mid_blocks:
            x = self._stage(x, residual, transformers, next(remaining), view)
        residual, transformers, conv = own.up_blocks[0]
        x = self._stage(torch.cat([x, skip], dim=-1), residual, transformers, next(remaining), view)
        return own.final_proj(self._last(conv(x, view), own.final_block, view), view)

    def _last(self, x: Tensor, block: ConvNorm, view: View) -> Tensor:
        return self._norm_mish(block.block["0"](x, view), block.block["2"], None)

    def _stage(
        self, x: Tensor, residual: Residual, transformers: nn.ModuleList, time: Tensor, view: View
    ) -> Tensor:
        first, second = residual.block1.block, residual.block2.block
        inner = self._norm_mish(first["0"](x, view), first["2"], time)
        x = self._norm_mish(second["0"](inner, view), second["2"], residual.res_conv(x, view))
        return self._through(x, transformers, view)

    def _through(self, x: Tensor, transformers: Iterable[Transformer], view: View) -> Tensor:
        added: Tensor | None = None
        for layer in transformers:
            x, normed = self._add_norm(x, added, layer.norm1)
            x, normed = self._add_norm(x, layer.attn1(normed, view), layer.norm3)
            added = self._feed(layer.ff, normed)
        return x if added is None else x + added


class FusedEstimator(JoinedEstimator):
    """The same over pages alone: a transformer is four kernels and attention, and a residual layer two.

    Its own products suit small packs: those of a large one are better left to the library.
    """

    def __init__(self, estimator: CausalConditionalDecoder) -> None:
        super().__init__(estimator)
        self._factors = {
            layer: products.Factors.of(layer) for layer in estimator.modules() if isinstance(layer, Transformer)
        }
        self._convolutions = {
            block: products.Convolution.of(block) for block in estimator.modules() if isinstance(block, ConvNorm)
        }
        self._straight = {
            block: block.res_conv.matrix().T.contiguous()
            for block in estimator.modules()
            if isinstance(block, Residual)
        }
        self._norm_qkv, self._norm_gelu = products.norm_qkv, products.norm_gelu
        self._product_sum, self._conv_norm = products.product_sum, products.conv_norm
        if next(estimator.parameters()).device.type == "cuda":
            from studio.models.flow.paged import conv_kernels, product_kernels

            self._conv_norm = conv_kernels.conv_norm
            self._norm_qkv, self._norm_gelu = product_kernels.norm_qkv, product_kernels.norm_gelu
            self._product_sum = product_kernels.product_sum

    def _stage(
        self, x: Tensor, residual: Residual, transformers: nn.ModuleList, time: Tensor, view: View
    ) -> Tensor:
        inner = self._convolved(x, residual.block1, view, time)
        straight = products.Straight(x, self._straight[residual], residual.res_conv.bias)
        return self._through(self._convolved(inner, residual.block2, view, None, straight), transformers, view)

    def _last(self, x: Tensor, block: ConvNorm, view: View) -> Tensor:
        return self._convolved(x, block, view, None)

    def _convolved(
        self,
        x: Tensor,
        block: ConvNorm,
        view: View,
        added: Tensor | None,
        straight: products.Straight | None = None,
    ) -> Tensor:
        assert isinstance(view, PagedView)
        conv = self._convolutions[block]
        return self._conv_norm(x, conv, view.edges(conv.slot), view.sight, added, straight)

    def _through(self, x: Tensor, transformers: Iterable[Transformer], view: View) -> Tensor:
        assert isinstance(view, PagedView)
        for layer in transformers:
            factors, own, net = self._factors[layer], layer.attn1, layer.ff.net
            query = self._norm_qkv(x, layer.norm1, factors.qkv, view.kept(own.slot), view.sight, own.heads)
            x = self._product_sum(view.attend_kept(query, own.slot), factors.out, own.to_out[0].bias, x)
            inner = self._norm_gelu(x, layer.norm3, factors.first, net["0"]["proj"].bias)
            x = self._product_sum(inner, factors.second, net["2"].bias, x)
        return x


def fits_tiles(estimator: CausalConditionalDecoder) -> bool:
    """Whether the kernels of `FusedEstimator` take the channels of all convolutions, as they do at the official sizes.

    What goes straight beside one has as many as another; all other products fill their tiles up.
    """
    convolutions = [block.block["0"] for block in estimator.modules() if isinstance(block, ConvNorm)]
    return not any(conv.channels_in % products.LEAST_DEPTH for conv in convolutions)


def feed(layer: nn.Module, x: Tensor) -> Tensor:
    """A transformer's last layer as it is."""
    out: Tensor = layer(x)
    return out


def feed_at_once(layer: nn.Module, x: Tensor) -> Tensor:
    """The same with GELU in the first product's own kernel, for 16-bit numbers [G, N, C].

    The library has it by its tangent there, at most 5e-4 from the exact one; but what the product found is not rounded
    to 16 bits before it, so that all is nearer to the exact layer: 0.17 % of its root mean square on an H200, not 0.26.
    """
    first, second = layer.net["0"]["proj"], layer.net["2"]
    inner = torch._addmm_activation(first.bias, x.flatten(0, 1), first.weight.T, use_gelu=True)
    out: Tensor = second(inner.view(*x.shape[:-1], -1))
    return out


def add_norm(x: Tensor, added: Tensor | None, norm: nn.LayerNorm) -> tuple[Tensor, Tensor]:
    """The sum of two [G, N, C], and its norm."""
    x = x if added is None else x + added
    return x, norm(x)


def norm_mish(x: Tensor, norm: nn.LayerNorm, added: Tensor | None) -> Tensor:
    """Norm of x [G, N, C], Mish, and then the sum with [G, N, C] or [1, 1, C]."""
    x = mish(norm(x))
    return x if added is None else x + added


def euler(x: Tensor, velocities: Tensor, length: float, guidance: Tensor) -> Tensor:
    """One step of the solve from x float32 [N, 80], by the velocities [2, N, 80] with conditions and without.

    guidance: float32 [S, 2], the weights of both in each of S slots of as many frames.
    """
    with_conditions, free = velocities.float().unbind(0)
    weight, against = guidance.repeat_interleave(len(x) // len(guidance), dim=0).split(1, dim=1)
    return x + length * (weight * with_conditions - against * free)
