"""The embedded voice's speaker encoder: Kaldi filter banks to a speaker embedding. The network only.

Axes: B clips, T frames (10 ms), C channels.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True, slots=True)
class SpeakerEncoderSize:
    bins: int = 80
    channels: int = 192
    dilations: tuple[int, ...] = (2, 3, 4)
    pooled_channels: int = 384
    embedding: int = 192


class SqueezedTdnnBlock(nn.Module):
    """1x1, dilated 3-tap, 1x1 convolutions, then channels weighed by the clip's mean; residual. x: [B, C, T]."""

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.enter = nn.Conv1d(channels, channels, 1)
        self.context = nn.Conv1d(channels, channels, 3, dilation=dilation, padding=dilation)
        self.leave = nn.Conv1d(channels, channels, 1)
        self.norms = nn.ModuleList(nn.BatchNorm1d(channels) for _ in range(3))
        self.squeeze = nn.Linear(channels, channels // 4)
        self.excite = nn.Linear(channels // 4, channels)

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for conv, norm in zip((self.enter, self.context, self.leave), self.norms, strict=True):
            y = norm(F.relu(conv(y)))
        weight = torch.sigmoid(self.excite(F.relu(self.squeeze(y.mean(2)))))
        return x + y * weight[:, :, None]


class SpeakerEncoder(nn.Module):
    """A small ECAPA-like network with attentive statistics pooling."""

    def __init__(self, size: SpeakerEncoderSize | None = None) -> None:
        super().__init__()
        size = size or SpeakerEncoderSize()
        self.enter = nn.Conv1d(size.bins, size.channels, 5, padding=2)
        self.enter_norm = nn.BatchNorm1d(size.channels)
        self.blocks = nn.ModuleList(SqueezedTdnnBlock(size.channels, dilation) for dilation in size.dilations)
        self.gather = nn.Conv1d(size.channels * len(size.dilations), size.pooled_channels, 1)
        self.attend_in = nn.Conv1d(3 * size.pooled_channels, 64, 1)
        self.attend_out = nn.Conv1d(64, size.pooled_channels, 1)
        self.pool_norm = nn.BatchNorm1d(2 * size.pooled_channels)
        self.project = nn.Linear(2 * size.pooled_channels, size.embedding)
        self.project_norm = nn.BatchNorm1d(size.embedding)

    def forward(self, features: Tensor) -> Tensor:
        """features: [B, T, 80], mean over time removed -> embedding [B, 192], not normalised."""
        x = self.enter_norm(F.relu(self.enter(features.transpose(1, 2))))
        outputs = []
        for block in self.blocks:
            x = block(x)
            outputs.append(x)
        x = F.relu(self.gather(torch.cat(outputs, 1)))  # [B, P, T]
        mean = x.mean(2, keepdim=True)
        spread = ((x - mean).square().mean(2, keepdim=True) + 1e-5).sqrt()
        context = torch.cat([x, mean.expand_as(x), spread.expand_as(x)], 1)
        weight = torch.softmax(self.attend_out(torch.tanh(self.attend_in(context))), 2)
        pooled = (weight * x).sum(2)
        pooled_spread = ((weight * (x - pooled[:, :, None]).square()).sum(2) + 1e-5).sqrt()
        return self.project_norm(self.project(self.pool_norm(torch.cat([pooled, pooled_spread], 1))))
