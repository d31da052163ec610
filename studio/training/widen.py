"""Voices that no clip has, made of those that there are, so that a flow learns to copy its prompt.

A flow that has only ever heard voices it can look up by their embedding does look them up: without its prompt the first
embedded voice copied unheard speakers as well as with it (`STATE.md`). Here a whole crop, prompt and target alike, is
heard through another vocal tract and another colour, and its embedding is missing or that of the voice before.

Everything runs on the device and in fixed shapes.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from studio.models.flow.encoder import FeedForward, RelativeAttention
from studio.models.flow.estimator import Attention, GeluFeedForward
from studio.training.augment import mel_bin_hz

SMALLEST_WARP, LARGEST_WARP = 0.84, 1.19
"""From a large man's vocal tract to a child's, on top of what playing the clips at other speeds gives."""
COLOUR = 0.35 * math.log(10) / 2
"""Bound of each of the four curves that make a colour: 3.5 dB, in natural log amplitude."""

LEVEL = 0.4 * math.log(10) / 2
"""Bound of the change of level: 4 dB."""


def warped(mel: Tensor, warp: Tensor) -> Tensor:
    """Move pitch and formants of each row by a factor, keeping its tempo.

    Args:    mel: [B, F, 80] natural-log mel up to 8 kHz (Slaney). warp: [B]; above 1 is a smaller speaker.
    Returns: [B, F, 80]; what would come from above 8 kHz is the highest bin there is.
    """
    bins = mel.shape[-1]
    hz = _bin_hz(bins, mel.device)
    place = bin_of_hz(hz / warp[:, None], bins).clamp(0, bins - 1)  # [B, 80]
    below = place.floor().long().clamp(max=bins - 2)
    part = (place - below)[:, None]
    index = below[:, None].expand(-1, mel.shape[1], -1)
    return mel.gather(2, index) * (1 - part) + mel.gather(2, index + 1) * part


@functools.cache
def _bin_hz(bins: int, device: torch.device) -> Tensor:
    """Kept on the device: a copy from the host cannot be part of a CUDA graph."""
    return mel_bin_hz(bins, "slaney").to(device)


def bin_of_hz(hz: Tensor, bins: int) -> Tensor:
    """The place of a frequency among the centres of `mel_bin_hz(bins, "slaney")`, with fractions."""
    log_step = math.log(6.4) / 27
    mel = torch.where(hz < 1000, hz * 3 / 200, 15 + torch.log(hz.clamp(min=1.0) / 1000) / log_step)
    return mel * (bins + 1) / (15 + math.log(8) / log_step) - 1


def coloured(mel: Tensor) -> Tensor:
    """Each row of [B, F, 80] with a smooth curve of its own added to all its frames."""
    rows, _, bins = mel.shape
    position = torch.linspace(0, math.pi, bins, device=mel.device)
    curves = torch.stack([torch.cos(k * position) for k in (1, 2, 3, 5)])  # [4, 80]
    weights = (torch.rand((rows, 4), device=mel.device) * 2 - 1) * COLOUR
    return mel + (weights @ curves)[:, None]


def louder_or_softer(mel: Tensor) -> Tensor:
    """Each row of [B, F, 80] at a level of its own, up to 4 dB off, so that the level too is the prompt's."""
    gain = (torch.rand((mel.shape[0], 1, 1), device=mel.device) * 2 - 1) * LEVEL
    return mel + gain


def in_other_voices(mel: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """[B, F, 80] of which a share of the rows is in another voice, and which ones those are, bool [B]."""
    rows = mel.shape[0]
    chosen = torch.rand(rows, device=mel.device) < share
    warp = SMALLEST_WARP * (LARGEST_WARP / SMALLEST_WARP) ** torch.rand(rows, device=mel.device)
    return torch.where(chosen[:, None, None], coloured(warped(mel, warp)), mel), chosen


def other_voices(mel: Tensor, embedding: Tensor, share: float, missing_share: float) -> tuple[Tensor, Tensor]:
    """A share of the rows in another voice; of those half keep the embedding, which is then wrong, half have none.

    Args:    mel: [B, F, 80]. embedding: [B, 192]. missing_share: of the other rows, how many have no embedding.
    Returns: mel and embedding; a missing embedding is zeros.
    """
    mel, chosen = in_other_voices(mel, share)
    missing = torch.rand(mel.shape[0], device=mel.device) < torch.where(chosen, 0.5, missing_share)
    return mel, embedding * ~missing[:, None]


def add_dropout(flow: nn.Module, share: float) -> None:
    """Drop a share of what each attention and feed-forward layer adds, while the layer is in training mode."""

    def drop(layer: nn.Module, inputs: object, output: Tensor) -> Tensor:
        return F.dropout(output, share, layer.training)

    for layer in flow.modules():
        if isinstance(layer, RelativeAttention | FeedForward | Attention | GeluFeedForward):
            layer.register_forward_hook(drop)
