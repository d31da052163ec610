"""The flow's training loss: conditional flow matching with random prompts and dropped conditions.

The error is the mean squared error of the velocity over real frames, as for CosyVoice 2. Randomness is drawn
outside of `Flow.matching_loss`, which gives the same for the same draw.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

SIGMA_MIN = 1e-6
CONDITION_DROPOUT = 0.2
PROMPT_SHARE = 0.5  # of the items have a prompt
PROMPT_LIMIT = 0.3  # of an item's frames at most


@dataclass(frozen=True, slots=True)
class Draw:
    """The random part of one training step."""

    noise: Tensor  # [B, T, 80]
    time: Tensor  # [B] in [0, 1)
    keep: Tensor  # [B] 0 or 1: whether the conditions are given at all
    prompt_frames: Tensor  # [B] int64


def draw(mel: Tensor, mel_len: Tensor, generator: torch.Generator | None) -> Draw:
    """Draw noise, flow times, dropped conditions and prompt lengths for a batch.

    Args:    mel: [B, T, 80]; only shape and device are used.
             mel_len: [B] real frames.
             generator: on the device of `mel`, or None for the global one.
    """
    batch, device = mel.shape[0], mel.device

    def uniform() -> Tensor:
        return torch.rand(batch, generator=generator, device=device)

    noise = torch.randn(mel.shape, generator=generator, device=device)
    time = 1 - torch.cos(uniform() * 0.5 * math.pi)
    keep = (uniform() > CONDITION_DROPOUT).float()
    prompted = uniform() < PROMPT_SHARE
    prompt_frames = (uniform() * PROMPT_LIMIT * mel_len).long() * prompted
    return Draw(noise, time, keep, prompt_frames)


def noisy_mel(mel: Tensor, drawn: Draw) -> tuple[Tensor, Tensor]:
    """The point on the straight path from noise to mel at the drawn time, and the velocity there."""
    t = drawn.time[:, None, None]
    x = (1 - (1 - SIGMA_MIN) * t) * drawn.noise + t * mel
    return x, mel - (1 - SIGMA_MIN) * drawn.noise


def prompt_of(mel: Tensor, drawn: Draw) -> Tensor:
    """The mel with everything behind the drawn prompt set to zero."""
    before = torch.arange(mel.shape[1], device=mel.device) < drawn.prompt_frames[:, None]
    return mel * before[..., None]


def masked_error(velocity: Tensor, target: Tensor, mel_len: Tensor) -> Tensor:
    """Mean squared error over real frames and bins, in float32: a scalar."""
    real = (torch.arange(target.shape[1], device=target.device) < mel_len[:, None])[..., None].float()
    squared = (velocity.float() - target.float()).square() * real
    return squared.sum() / (real.sum() * target.shape[-1])
