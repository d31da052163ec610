"""CosyVoice3's estimator: a diffusion transformer, and the short encoder that goes with it.

It asks its `View` as the other estimator does, so whole sequences and streams run the same code. Source: COSYVOICE3.md
of the fixtures, points 16 to 21.

Axes: B batch, T frames, C channels, H heads, D width of a head.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from studio.models.flow.encoder import Lookahead
from studio.models.flow.history import RateMemory
from studio.models.flow.layers import FusedLinears, View, WholeView, mish, number_slots, windows
from studio.models.flow.sizes import FRAMES_PER_TOKEN, LOOKAHEAD_TOKENS, MEL_BINS, DitConfig

TIME_SCALE = 1000.0
TIME_FEATURES = 256
POSITION_TAPS, POSITION_GROUPS = 31, 16
NORM_EPS = 1e-6


class RepeatedTokens:
    """The encoder: look-ahead over embedded tokens, each then repeated for its frames. Holds no weights of its own."""

    def __init__(self, lookahead: Lookahead) -> None:
        self.pre_lookahead_layer = lookahead
        self.width = MEL_BINS

    @property
    def memory(self) -> tuple[RateMemory, RateMemory]:
        """What a stream keeps of tokens (two earlier ones of the look-ahead's second layer) and of frames (nothing)."""
        return RateMemory(0, 1, 1, (self.pre_lookahead_layer.conv2,)), RateMemory(0, 1, 1, ())

    def embed(self, x: Tensor) -> Tensor:
        """Embedded tokens as they are: nothing stands before the look-ahead here."""
        return x

    def __call__(
        self, x: Tensor, ahead: Tensor | None = None, lengths: Tensor | None = None, streaming: bool = False
    ) -> Tensor:
        """Whole sequences, as the other encoder has it; nothing here sees a block's end, so `streaming` is moot."""
        tail = x.new_zeros(x.shape[0], LOOKAHEAD_TOKENS, self.width) if ahead is None else ahead
        window = windows(torch.cat([x, tail], dim=1), LOOKAHEAD_TOKENS + 1)
        return self.encode(window, WholeView(None), WholeView(None))

    def encode(self, window: Tensor, token_view: View, frame_view: View) -> Tensor:
        """window: [B, T, 4 * 80] -> [B, 2 T, 80]"""
        return self.pre_lookahead_layer(window, token_view).repeat_interleave(FRAMES_PER_TOKEN, dim=1)


class GroupedCausalConv(nn.Module):
    """A convolution over the frame and those before it, groups of channels apart."""

    def __init__(self, channels: int, taps: int, groups: int) -> None:
        super().__init__()
        self.channels_in, self.taps, self.groups = channels, taps, groups
        self.slot = -1  # set by number_slots
        bound = 1.0 / math.sqrt(channels // groups * taps)
        self.weight = nn.Parameter(torch.empty(channels, channels // groups, taps).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(channels).uniform_(-bound, bound))

    def forward(self, x: Tensor, view: View) -> Tensor:
        """[B, T, C] -> [B, T, C]; each group sees its own channels alone."""
        batch, frames, channels = x.shape
        width = channels // self.groups
        window = view.window(x, self.taps, self.slot).view(batch * frames, self.taps, self.groups, width)
        grouped = window.permute(2, 0, 1, 3).flatten(2)  # [groups, B T, taps * width]
        matrix = self.weight.view(self.groups, width, width, self.taps).permute(0, 3, 2, 1).flatten(1, 2)
        out = torch.bmm(grouped, matrix)  # [groups, B T, width]
        return out.permute(1, 0, 2).reshape(batch, frames, channels) + self.bias


class PositionConv(nn.Module):
    """Two grouped convolutions that tell a frame its surroundings."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        # The checkpoint's names count the activation as a layer of its own.
        self.conv1 = nn.ModuleList([GroupedCausalConv(channels, POSITION_TAPS, POSITION_GROUPS)])
        self.conv2 = nn.ModuleList([GroupedCausalConv(channels, POSITION_TAPS, POSITION_GROUPS)])

    def forward(self, x: Tensor, view: View) -> Tensor:
        """[B, T, C] -> [B, T, C]."""
        return mish(self.conv2[0](mish(self.conv1[0](x, view)), view))


class InputEmbedding(nn.Module):
    """Noisy mel, prompt mel, mu and speaker, side by side, to the width of the blocks."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.proj = nn.Linear(4 * MEL_BINS, channels)
        self.conv_pos_embed = PositionConv(channels)

    def forward(self, x: Tensor, view: View) -> Tensor:
        """[B, T, 320] -> [B, T, C]."""
        x = self.proj(x)
        return x + self.conv_pos_embed(x, view)


class TimeEmbedding(nn.Module):
    """Sine features of the flow time, then two linear layers."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.time_mlp = nn.ModuleDict({"0": nn.Linear(TIME_FEATURES, channels), "2": nn.Linear(channels, channels)})

    def forward(self, t: Tensor) -> Tensor:
        """t: [B] in 0..1 -> [B, C]."""
        half = TIME_FEATURES // 2
        rates = torch.exp(torch.arange(half, device=t.device) * -(math.log(1e4) / (half - 1)))
        angles = TIME_SCALE * t[:, None].float() * rates
        features = torch.cat([angles.sin(), angles.cos()], dim=-1)
        return self.time_mlp["2"](F.silu(self.time_mlp["0"](features)))


class Modulation(nn.Module):
    """How the flow time moves a norm: shifts, scales and gates by one linear layer."""

    def __init__(self, channels: int, parts: int) -> None:
        super().__init__()
        self.linear = nn.Linear(channels, parts * channels)


class Rotary(nn.Module):
    """The rates of the rotary positions, as the checkpoint stores them."""

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        rates = 1e4 ** (-torch.arange(0, head_dim, 2).float() / head_dim)
        self.register_buffer("inv_freq", rates)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """Turn the first channels of [B, T, C], in neighbouring pairs; so head 0 alone, as the model was trained."""
        angles = (positions[:, None] * self.inv_freq).repeat_interleave(2, dim=-1)  # [T, D]
        turned, rest = x[..., : angles.shape[-1]], x[..., angles.shape[-1] :]
        even, odd = turned[..., ::2], turned[..., 1::2]
        swapped = torch.stack([-odd, even], dim=-1).flatten(-2)
        return torch.cat([turned * angles.cos() + swapped * angles.sin(), rest], dim=-1)


class DitAttention(nn.Module):
    """Attention of all heads, of which one alone has rotary positions."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.slot = -1  # set by number_slots
        self.to_q, self.to_k, self.to_v = (nn.Linear(channels, channels) for _ in range(3))
        self._qkv = FusedLinears(self.to_q, self.to_k, self.to_v)
        self.to_out = nn.ModuleList([nn.Linear(channels, channels)])

    def forward(self, x: Tensor, rotary: Rotary, positions: Tensor, view: View) -> Tensor:
        """x: [B, T, C]; positions: [T] -> [B, T, C]."""
        q, k, v = self._qkv(x).chunk(3, dim=-1)
        turned = torch.stack([rotary(q, positions), rotary(k, positions), v], dim=2)
        return self.to_out[0](view.attend(turned.unflatten(-1, (self.heads, -1)), self.slot))


class DitFeedForward(nn.Module):
    """Two linear layers with the tanh form of GELU between."""

    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        self.ff = nn.ModuleDict(
            {"0": nn.ModuleList([nn.Linear(channels, inner)]), "2": nn.Linear(inner, channels)}
        )

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, C] -> [B, T, C]."""
        return self.ff["2"](F.gelu(self.ff["0"][0](x), approximate="tanh"))


class DitBlock(nn.Module):
    """Attention and feed-forward layer, each behind a norm that the flow time moves, and gated by it."""

    def __init__(self, config: DitConfig) -> None:
        super().__init__()
        self.attn_norm = Modulation(config.channels, 6)
        self.attn = DitAttention(config.channels, config.heads)
        self.ff = DitFeedForward(config.channels, config.feed_forward)

    def forward(self, x: Tensor, time: Tensor, rotary: Rotary, positions: Tensor, view: View) -> Tensor:
        """x: [B, T, C]; time: [B, 1, 6 C], shift, scale and gate of both parts -> [B, T, C]."""
        shift, scale, gate, ff_shift, ff_scale, ff_gate = time.chunk(6, dim=-1)
        heard = self.attn(normed(x) * (1 + scale) + shift, rotary, positions, view)
        x = x + gate * heard
        return x + ff_gate * self.ff(normed(x) * (1 + ff_scale) + ff_shift)


def normed(x: Tensor) -> Tensor:
    """Zero mean and unit variance over C, without weights of its own."""
    return F.layer_norm(x, x.shape[-1:], eps=NORM_EPS)


class DiffusionTransformer(nn.Module):
    """The velocity of a noisy mel at a flow time; the same calls as `estimator.CausalConditionalDecoder`."""

    def __init__(self, config: DitConfig) -> None:
        super().__init__()
        self.input_embed = InputEmbedding(config.channels)
        self.time_embed = TimeEmbedding(config.channels)
        self.rotary_embed = Rotary(config.head_dim)
        self.transformer_blocks = nn.ModuleList(DitBlock(config) for _ in range(config.blocks))
        self.norm_out = Modulation(config.channels, 2)
        self.proj_out = nn.Linear(config.channels, MEL_BINS)
        self.convolutions = number_slots(self, GroupedCausalConv)
        self.attentions = number_slots(self, DitAttention)

    def forward(self, x: Tensor, conditions: Tensor, times: list[Tensor], view: View) -> Tensor:
        """See the other estimator; conditions are encoder features, speaker and prompt mel."""
        mu, speaker, cond = conditions.split(MEL_BINS, dim=-1)
        x = self.input_embed(torch.cat([x, cond, mu, speaker], dim=-1), view)
        positions = view.positions(x)
        *per_block, last = times
        for block, time in zip(self.transformer_blocks, per_block, strict=True):
            x = block(x, time, self.rotary_embed, positions, view)
        scale, shift = last.chunk(2, dim=-1)
        return self.proj_out(normed(x) * (1 + scale) + shift)

    def time_features(self, t: Tensor) -> list[Tensor]:
        """What moves each block's norms at flow times t [B], and the last one's: one [B, 1, C] each."""
        embedded = F.silu(self.time_embed(t))
        linears = [*(block.attn_norm.linear for block in self.transformer_blocks), self.norm_out.linear]
        return [linear(embedded)[:, None] for linear in linears]
