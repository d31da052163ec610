"""The flow's estimator: the velocity of a noisy mel at a flow time, by causal convolutions and attention.

It has no down- or upsampling in time; the skip from the down block is joined before the up block.

Axes: B batch, T frames, C channels.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from studio.models.flow.layers import CausalConv, FusedLinears, View, mish, number_slots
from studio.models.flow.sizes import MEL_BINS, TIME_FEATURES, FlowConfig

TIME_SCALE = 1000.0


class CausalConditionalDecoder(nn.Module):
    """One down block, mid blocks, one up block; each a residual layer and a few transformers."""

    def __init__(self, config: FlowConfig) -> None:
        super().__init__()
        channels = config.estimator_channels
        time_dim = 4 * channels

        def stage(channels_in: int, with_conv: bool) -> nn.ModuleList:
            parts: list[nn.Module] = [
                Residual(channels_in, channels, time_dim),
                nn.ModuleList(Transformer(config) for _ in range(config.estimator_transformers)),
            ]
            return nn.ModuleList([*parts, CausalConv(channels, channels, 3)] if with_conv else parts)

        self.time_mlp = TimeMlp(time_dim)
        self.down_blocks = nn.ModuleList([stage(4 * MEL_BINS, with_conv=True)])
        self.mid_blocks = nn.ModuleList(
            stage(channels, with_conv=False) for _ in range(config.estimator_mid_blocks)
        )
        self.up_blocks = nn.ModuleList([stage(2 * channels, with_conv=True)])
        self.final_block = ConvNorm(channels, channels)
        self.final_proj = CausalConv(channels, MEL_BINS, 1)
        self.convolutions = [conv for conv in number_slots(self, CausalConv) if conv.taps > 1]
        for slot, conv in enumerate(self.convolutions):
            conv.slot = slot
        self.attentions = number_slots(self, Attention)

    def forward(self, x: Tensor, conditions: Tensor, times: list[Tensor], view: View) -> Tensor:
        """Estimate the velocity of x.

        Args:    x: [B, T, 80] noisy mel.
                 conditions: [B, T, 240]: encoder features, speaker and prompt mel, each 80 wide.
                 times: from `time_features`, one [B, 1, C] for each residual layer.
        Returns: [B, T, 80]
        """
        remaining = iter(times)
        x = torch.cat([x, conditions], dim=-1)
        residual, transformers, conv = self.down_blocks[0]
        skip = _through(residual(x, next(remaining), view), transformers, view)
        x = conv(skip, view)
        for residual, transformers in self.mid_blocks:
            x = _through(residual(x, next(remaining), view), transformers, view)
        residual, transformers, conv = self.up_blocks[0]
        x = _through(residual(torch.cat([x, skip], dim=-1), next(remaining), view), transformers, view)
        x = self.final_block(conv(x, view), view)
        return self.final_proj(x, view)

    def time_features(self, t: Tensor) -> list[Tensor]:
        """What each residual layer adds at flow times t [B] in [0, 1]: one [B, 1, C] a layer."""
        embedded = mish(self.time_mlp(t))
        stages = [*self.down_blocks, *self.mid_blocks, *self.up_blocks]
        return [stage[0].mlp["1"](embedded)[:, None] for stage in stages]


def _through(x: Tensor, transformers: nn.ModuleList, view: View) -> Tensor:
    for transformer in transformers:
        x = transformer(x, view)
    return x


class TimeMlp(nn.Module):
    """Sine features of the flow time, then two linear layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear_1 = nn.Linear(TIME_FEATURES, width)
        self.linear_2 = nn.Linear(width, width)

    def forward(self, t: Tensor) -> Tensor:
        """t: [B] in 0..1 -> [B, C]."""
        half = TIME_FEATURES // 2
        channels = torch.arange(half, device=t.device, dtype=torch.float32)
        rates = torch.exp(channels * -(math.log(1e4) / (half - 1)))
        angles = TIME_SCALE * t[:, None].float() * rates
        features = torch.cat([angles.sin(), angles.cos()], dim=-1)  # [B, 320]
        return self.linear_2(F.silu(self.linear_1(features)))


class ConvNorm(nn.Module):
    """Causal convolution, norm over channels, Mish."""

    def __init__(self, channels_in: int, channels: int) -> None:
        super().__init__()
        # the checkpoint's names count two transpositions and the activation as layers as well
        self.block = nn.ModuleDict({"0": CausalConv(channels_in, channels, 3), "2": nn.LayerNorm(channels)})

    def forward(self, x: Tensor, view: View) -> Tensor:
        """[B, T, in] -> [B, T, C]."""
        return mish(self.block["2"](self.block["0"](x, view)))


class Residual(nn.Module):
    """Two convolutions with the flow time added in between, and a straight path beside them."""

    def __init__(self, channels_in: int, channels: int, time_dim: int) -> None:
        super().__init__()
        self.mlp = nn.ModuleDict({"1": nn.Linear(time_dim, channels)})
        self.block1 = ConvNorm(channels_in, channels)
        self.block2 = ConvNorm(channels, channels)
        self.res_conv = CausalConv(channels_in, channels, 1)

    def forward(self, x: Tensor, time: Tensor, view: View) -> Tensor:
        """x: [B, T, in]; time: [B, 1, C], as `time_features` gives it -> [B, T, C]."""
        inner = self.block2(self.block1(x, view) + time, view)
        return inner + self.res_conv(x, view)


class Transformer(nn.Module):
    """Pre-norm attention, then a pre-norm feed-forward layer with exact GELU."""

    def __init__(self, config: FlowConfig) -> None:
        super().__init__()
        channels, inner = config.estimator_channels, config.estimator_feed_forward
        self.norm1 = nn.LayerNorm(channels)
        self.attn1 = Attention(channels, config.estimator_heads, config.estimator_head_dim)
        self.norm3 = nn.LayerNorm(channels)
        self.ff = GeluFeedForward(channels, inner)

    def forward(self, x: Tensor, view: View) -> Tensor:
        """[B, T, C] -> [B, T, C]."""
        x = x + self.attn1(self.norm1(x), view)
        return x + self.ff(self.norm3(x))


class Attention(nn.Module):
    """Attention over what the view shows; its heads may be wider than the channels."""

    def __init__(self, channels: int, heads: int, head_dim: int) -> None:
        super().__init__()
        self.heads = heads
        self.slot = -1  # set by number_slots
        self.to_q = nn.Linear(channels, heads * head_dim, bias=False)
        self.to_k = nn.Linear(channels, heads * head_dim, bias=False)
        self.to_v = nn.Linear(channels, heads * head_dim, bias=False)
        self._qkv = FusedLinears(self.to_q, self.to_k, self.to_v)
        self.to_out = nn.ModuleList([nn.Linear(heads * head_dim, channels)])

    def forward(self, x: Tensor, view: View) -> Tensor:
        """[B, T, C] -> [B, T, C]."""
        qkv = self._qkv(x).unflatten(-1, (3, self.heads, -1))
        return self.to_out[0](view.attend(qkv, self.slot))


class GeluFeedForward(nn.Module):
    """Two linear layers with exact GELU between."""

    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        first = nn.ModuleDict({"proj": nn.Linear(channels, inner)})
        self.net = nn.ModuleDict({"0": first, "2": nn.Linear(inner, channels)})

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, C] -> [B, T, C]."""
        return self.net["2"](F.gelu(self.net["0"]["proj"](x)))
