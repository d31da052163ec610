"""The embedded voice's speech tokenizer: Whisper log-mel to 25 speech tokens a second. The network only.

Axes: B clips, T feature frames (10 ms), N tokens (40 ms), D width. N = T // 4: frames that fill no whole token are
dropped, so a clip of n samples at 16 kHz gives (n // 160) // 4 tokens, never more than half its mel frames.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

FRAMES_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class SpeechTokenizerSize:
    """code_dims: active quantiser dimensions of 3 levels each; 6 give 729 codes, 7 give 2,187, 8 would give 6,561.

    window_tokens: how far attention looks to either side; being limited, it works alike on clips of any length.
    """

    dim: int = 192
    head_dim: int = 64
    blocks: int = 6
    code_dims: int = 6
    window_tokens: int = 32
    conv_kernel: int = 5

    @property
    def codes(self) -> int:
        return 3**self.code_dims


def rotary_table(tokens: int | Tensor, head_dim: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine of each position and pair of channels: [N, head_dim / 2] each."""
    rates = 10_000 ** (-torch.arange(0, head_dim, 2, device=like.device, dtype=torch.float32) / head_dim)
    angles = torch.arange(tokens, device=like.device, dtype=torch.float32)[:, None] * rates
    return angles.cos(), angles.sin()


def rotate(x: Tensor, table: tuple[Tensor, Tensor]) -> Tensor:
    """x: [B, H, N, head_dim], its first and second halves turned as pairs."""
    cosine, sine = (part.to(x.dtype) for part in table)
    first, second = x.chunk(2, -1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1)


def window_mask(tokens: int | Tensor, window: int, like: Tensor) -> Tensor:
    """True where a token may look: [N, N]."""
    position = torch.arange(tokens, device=like.device)
    return (position[:, None] - position[None]).abs() <= window


class LocalBlock(nn.Module):
    """Pre-norm windowed attention, a depthwise convolution, a feed-forward; all residual. x: [B, N, D]."""

    def __init__(self, dim: int, head_dim: int, conv_kernel: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.norm_attention, self.norm_conv, self.norm_ff = (nn.LayerNorm(dim) for _ in range(3))
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.conv = nn.Conv1d(dim, dim, conv_kernel, padding=conv_kernel // 2, groups=dim)
        self.ff_in = nn.Linear(dim, 4 * dim)
        self.ff_out = nn.Linear(4 * dim, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Tensor, look: Tensor, table: tuple[Tensor, Tensor], inside: Tensor | None = None
    ) -> Tensor:
        """look: bool [N, N] or [B, 1, N, N]; inside: bool [B, N], False on padding."""
        split = self.qkv(self.norm_attention(x)).unflatten(
            -1, (3, -1, self.head_dim)
        )  # [B, N, 3, H, head_dim]
        q, k, v = split.permute(2, 0, 3, 1, 4).unbind(0)
        attended = F.scaled_dot_product_attention(rotate(q, table), rotate(k, table), v, attn_mask=look)
        x = x + self.dropout(self.out(attended.transpose(1, 2).flatten(2)))
        local = self.norm_conv(x)
        if inside is not None:
            local = local * inside[..., None]
        x = x + self.dropout(F.gelu(self.conv(local.transpose(1, 2)).transpose(1, 2)))
        return x + self.dropout(self.ff_out(F.gelu(self.ff_in(self.norm_ff(x)))))


class SpeechTokenizer(nn.Module):
    """Two strided convolutions, transformer blocks, a finite scalar quantiser of 3 levels a dimension."""

    def __init__(self, size: SpeechTokenizerSize | None = None, dropout: float = 0.0) -> None:
        super().__init__()
        self.size = size = size or SpeechTokenizerSize()
        self.stem_in = nn.Conv1d(128, size.dim, 3, stride=2, padding=1)
        self.stem_out = nn.Conv1d(size.dim, size.dim, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList(
            LocalBlock(size.dim, size.head_dim, size.conv_kernel, dropout) for _ in range(size.blocks)
        )
        self.norm = nn.LayerNorm(size.dim)
        self.to_code = nn.Linear(size.dim, size.code_dims)
        nn.init.normal_(
            self.to_code.weight, std=size.dim**-0.5
        )  # so that all three levels are in use from the start
        nn.init.zeros_(self.to_code.bias)
        self.register_buffer("place", 3 ** torch.arange(size.code_dims), persistent=False)

    def encode(self, features: Tensor, inside: Tensor | None = None) -> Tensor:
        """features: [B, 128, 4 N]; inside: bool [B, N] -> code values in -1..1 before rounding, [B, N, code_dims]."""
        x = F.gelu(self.stem_in(features))
        if inside is not None:
            x = x * inside.repeat_interleave(2, 1)[:, None]
        x = F.gelu(self.stem_out(x)).transpose(1, 2)  # [B, N, D]
        tokens = x.shape[1]
        look = window_mask(tokens, self.size.window_tokens, x)
        if inside is not None:
            look = (look & inside[:, None, :] | torch.eye(tokens, dtype=torch.bool, device=x.device))[:, None]
        table = rotary_table(tokens, self.size.head_dim, x)
        for block in self.blocks:
            x = block(x, look, table, inside)
        with torch.autocast(
            x.device.type, enabled=False
        ):  # rounding must not depend on the precision of training
            return self.to_code(self.norm(x.float())).tanh()

    def ids(self, code: Tensor) -> Tensor:
        """Rounded code values [..., code_dims] -> ids below 3 ** code_dims, int64 [...]."""
        return ((code.round() + 1).long() * self.place).sum(-1)

    def forward(self, features: Tensor, length: Tensor | None = None) -> Tensor:
        """features: float32 [1, 128, T] of one unpadded clip -> int64 [1, T // 4]; length is part of the
        layout only."""
        whole = features.shape[2] // FRAMES_PER_TOKEN * FRAMES_PER_TOKEN
        return self.ids(self.encode(features[:, :, :whole]))
