"""The flow's encoder: speech tokens to mel-rate features, by relative-position attention at two rates.

It does not know what its features are used for; the projection to mel width belongs to `flow.Flow`.

Axes: B batch, T time (tokens or frames), C width, H heads, D width of a head.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from studio.models.flow.history import RateMemory
from studio.models.flow.layers import (
    CausalConv,
    FusedLinears,
    View,
    WholeView,
    number_slots,
    visibility,
    windows,
)
from studio.models.flow.sizes import (
    BLOCK_FRAMES,
    BLOCK_TOKENS,
    FRAMES_PER_TOKEN,
    LOOKAHEAD_TOKENS,
    FlowConfig,
)

BLOCK_NORM_EPS = 1e-12  # the norms inside the blocks; all others keep torch's 1e-5


class UpsampleConformerEncoder(nn.Module):
    """Blocks at token rate, a doubling of the rate, blocks at frame rate."""

    def __init__(self, config: FlowConfig) -> None:
        super().__init__()
        width = config.encoder_dim
        self.width = width
        self.heads = config.encoder_heads
        self.embed = InputScale(width)
        self.pre_lookahead_layer = Lookahead(width)
        self.encoders = nn.ModuleList(Block(config) for _ in range(config.encoder_blocks))
        self.up_layer = Upsample(width)
        self.up_embed = InputScale(width)
        self.up_encoders = nn.ModuleList(Block(config) for _ in range(config.upsampled_blocks))
        self.after_norm = nn.LayerNorm(width)
        number_slots(self.encoders, RelativeAttention)
        number_slots(self.up_encoders, RelativeAttention)
        # the view at token rate and the view at frame rate each hold one convolution
        self.pre_lookahead_layer.conv2.slot = 0
        self.up_layer.conv.slot = 0

    @property
    def memory(self) -> tuple[RateMemory, RateMemory]:
        """What streams keep of the layers at token rate, and of those at frame rate."""
        head_dim = self.width // self.heads
        return (
            RateMemory(len(self.encoders), self.heads, head_dim, (self.pre_lookahead_layer.conv2,)),
            RateMemory(len(self.up_encoders), self.heads, head_dim, (self.up_layer.conv,)),
        )

    def forward(
        self, x: Tensor, ahead: Tensor | None = None, lengths: Tensor | None = None, streaming: bool = False
    ) -> Tensor:
        """Encode whole sequences.

        Args:    x: [B, T, C] embedded tokens.
                 ahead: [B, 3, C] embedded tokens after the end; zeros stand in if there are none.
                 lengths: [B] tokens that are not padding; not together with `ahead`.
                 streaming: whether a frame sees only what comes before the end of its block of 25 tokens.
        Returns: [B, 2 T, C]
        """
        tokens = x.shape[1]
        x = self.embed(x)
        if lengths is not None:
            # the look-ahead of the last tokens must find zeros, as it does at the end of a lone sequence
            x = x * (torch.arange(tokens, device=x.device) < lengths[:, None])[..., None]
        tail = x.new_zeros(x.shape[0], LOOKAHEAD_TOKENS, self.width) if ahead is None else self.embed(ahead)
        window = windows(torch.cat([x, tail], dim=1), LOOKAHEAD_TOKENS + 1)
        frame_lengths = None if lengths is None else lengths * FRAMES_PER_TOKEN
        block_tokens, block_frames = (BLOCK_TOKENS, BLOCK_FRAMES) if streaming else (None, None)
        token_view = WholeView(visibility(tokens, lengths, block_tokens, x.device))
        frame_view = WholeView(visibility(tokens * FRAMES_PER_TOKEN, frame_lengths, block_frames, x.device))
        return self.encode(window, token_view, frame_view)

    def encode(self, window: Tensor, token_view: View, frame_view: View) -> Tensor:
        """Encode tokens that are embedded already and set beside the three that follow each.

        Args:    window: [B, T, 4 * C] (see `layers.windows`).
        Returns: [B, 2 T, C]
        """
        x = self.pre_lookahead_layer(window, token_view)
        for block in self.encoders:
            x = block(x, token_view)
        x = self.up_embed(self.up_layer(x, frame_view))
        for block in self.up_encoders:
            x = block(x, frame_view)
        return self.after_norm(x)


class InputScale(nn.Module):
    """Linear, norm, and the factor sqrt(width) that goes with sine positions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.out = nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width))
        self.factor = math.sqrt(width)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, C] -> [B, T, C]."""
        return self.out(x) * self.factor


class Lookahead(nn.Module):
    """Lets each token see the three after it; the only place where the flow looks right of a block."""

    def __init__(self, width: int, inner: int | None = None) -> None:
        super().__init__()
        self.width = width
        self.conv1 = CausalConv(width, inner or width, LOOKAHEAD_TOKENS + 1)
        self.conv2 = CausalConv(inner or width, width, 3)

    def forward(self, window: Tensor, view: View) -> Tensor:
        """window: [B, T, 4 * C], each token and the three after it -> [B, T, C]"""
        x = F.linear(window, self.conv1.matrix(), self.conv1.bias)
        x = self.conv2(F.leaky_relu(x), view)
        return x + window[..., : self.width]


class Upsample(nn.Module):
    """Two frames for each token, then smoothed over the two tokens before."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = CausalConv(width, width, 2 * FRAMES_PER_TOKEN + 1)

    def forward(self, x: Tensor, view: View) -> Tensor:
        """[B, T, C] of tokens -> [B, 2 T, C] of frames."""
        return self.conv(x.repeat_interleave(FRAMES_PER_TOKEN, dim=1), view)


class Block(nn.Module):
    """Pre-norm attention, then a pre-norm feed-forward layer."""

    def __init__(self, config: FlowConfig) -> None:
        super().__init__()
        self.self_attn = RelativeAttention(config.encoder_dim, config.encoder_heads)
        self.feed_forward = FeedForward(config.encoder_dim, config.encoder_feed_forward)
        self.norm_mha = nn.LayerNorm(config.encoder_dim, eps=BLOCK_NORM_EPS)
        self.norm_ff = nn.LayerNorm(config.encoder_dim, eps=BLOCK_NORM_EPS)

    def forward(self, x: Tensor, view: View) -> Tensor:
        """[B, T, C] -> [B, T, C]."""
        x = x + self.self_attn(self.norm_mha(x), view)
        return x + self.feed_forward(self.norm_ff(x))


class FeedForward(nn.Module):
    """Two linear layers with SiLU between."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.w_1 = nn.Linear(width, inner)
        self.w_2 = nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, C] -> [B, T, C]."""
        return self.w_2(F.silu(self.w_1(x)))


class RelativeAttention(nn.Module):
    """Attention whose scores add a learned product of the query and the distance to the key."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.slot = -1  # set by number_slots
        self.linear_q = nn.Linear(width, width)
        self.linear_k = nn.Linear(width, width)
        self.linear_v = nn.Linear(width, width)
        self._qkv = FusedLinears(self.linear_q, self.linear_k, self.linear_v)
        self.linear_out = nn.Linear(width, width)
        self.linear_pos = nn.Linear(width, width, bias=False)
        self.pos_bias_u = nn.Parameter(torch.empty(heads, width // heads))
        self.pos_bias_v = nn.Parameter(torch.empty(heads, width // heads))
        nn.init.xavier_uniform_(self.pos_bias_u)
        nn.init.xavier_uniform_(self.pos_bias_v)

    def forward(self, x: Tensor, view: View) -> Tensor:
        """[B, T, C] -> [B, T, C]."""
        qkv = self._qkv(x).unflatten(-1, (3, self.heads, -1))
        return self.linear_out(view.attend_relative(self, qkv))

    def positions(self, first: int, last: int) -> Tensor:
        """Projected distances first, first - 1, ... last: [H, first - last + 1, D]."""
        weight = self.linear_pos.weight
        sines = distance_sines(first, last, weight.shape[1], weight.device)
        return self.linear_pos(sines).unflatten(-1, (self.heads, -1)).transpose(0, 1)


def distance_sines(first: int, last: int, width: int, device: torch.device) -> Tensor:
    """Sine and cosine in turn of each distance first, first - 1, ... last: [first - last + 1, width]."""
    distances = torch.arange(first, last - 1, -1, device=device, dtype=torch.float32)
    channels = torch.arange(0, width, 2, device=device, dtype=torch.float32)
    rates = torch.exp(channels * -(math.log(1e4) / width))
    angles = distances[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
