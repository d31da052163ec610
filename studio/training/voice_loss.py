"""How far a mel is from the voice it should have, as a loss: the frozen speaker encoder hears mels, not sound.

The encoder takes a filter bank of 16 kHz sound, and a vocoder between would cost more than the flow does. So a linear
map gives the filter bank from the mel: the embedding of what it gives has cosine 0.88 to that of the true one.

Axes: B rows, F mel frames (20 ms; filter banks have two for each).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from studio.models.flow.layers import windows
from studio.models.flow.sizes import MEL_BINS
from studio.models.prompt.speaker_encoder import SpeakerEncoder
from studio.training import signal, widen
from studio.training.corpus import SAMPLE_RATE_HZ, CorpusPart
from studio.training.encode import embed
from studio.training.frame_store import to_16k

BEFORE_FRAMES, AFTER_FRAMES = 1, 2
"""A mel frame is centred on its hop and 80 ms wide; the two of the filter bank begin there and are 25 ms wide."""
FBANK_PER_FRAME = 2
FIT_CLIPS = 220
FIT_RATIOS = (1.0, 0.85, 1.15)
FIT_RIDGE = 1e-4
"""Of the mean square of an input: neighbouring mel bins say nearly the same."""

NEAR_WARPS = (0.95, 1.053)
"""Voices next to the target's, which it must not be mistaken for."""
TEMPERATURE = 0.1


class FilterBankMap(nn.Module):
    """A frame's log mel and its neighbours' to the two frames of the Kaldi filter bank at its place; linear, frozen."""

    weight: Tensor
    bias: Tensor

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        """weight: [4 x 80, 2 x 80]. bias: [2 x 80]."""
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)

    def forward(self, mel: Tensor) -> Tensor:
        """[B, F, 80] -> [B, 2 F, 80]"""
        return (neighbours(mel) @ self.weight + self.bias).reshape(mel.shape[0], -1, MEL_BINS)


def neighbours(mel: Tensor) -> Tensor:
    """Each frame with the one before it and the two after it; ends are repeated: [B, F, 80] -> [B, F, 320]."""
    padded = F.pad(mel.transpose(1, 2), (BEFORE_FRAMES, AFTER_FRAMES), mode="replicate").transpose(1, 2)
    return windows(padded, BEFORE_FRAMES + 1 + AFTER_FRAMES)


@torch.no_grad()
def fit_filter_bank_map(parts: Sequence[CorpusPart], seed: int = 0) -> FilterBankMap:
    """Ridge regression on random training clips at three speeds; on the CPU, in float64."""
    inputs = (BEFORE_FRAMES + 1 + AFTER_FRAMES) * MEL_BINS + 1
    square = torch.zeros(inputs, inputs, dtype=torch.float64)
    product = torch.zeros(inputs, FBANK_PER_FRAME * MEL_BINS, dtype=torch.float64)
    clips = [(part, i) for part in parts for i, clip in enumerate(part.clips) if not clip.validation]
    drawn = np.random.default_rng(seed)
    for ratio in FIT_RATIOS:
        some = drawn.choice(len(clips), min(FIT_CLIPS, len(clips)), replace=False)
        for mel, fbank in heard_both_ways([clips[i] for i in some], ratio):
            x = F.pad(neighbours(mel)[0], (0, 1), value=1.0).double()
            square += x.T @ x
            product += x.T @ fbank.reshape(len(x), -1).double()
    ridge = FIT_RIDGE * square.diagonal().mean() * torch.eye(inputs, dtype=torch.float64)
    weight = torch.linalg.solve(square + ridge, product).float()
    return FilterBankMap(weight[:-1], weight[-1])


def heard_both_ways(
    clips: Sequence[tuple[CorpusPart, int]], ratio: float = 1.0
) -> Iterator[tuple[Tensor, Tensor]]:
    """Of each clip, played at a ratio, the log mel [1, F, 80] and the filter bank of the same time [1, 2 F, 80]."""
    for part, number in clips:
        x24 = torch.from_numpy(part.clip_audio(number).astype(np.float32) / 32768)[None]
        if ratio != 1.0:
            x24 = signal.resample(x24, round(SAMPLE_RATE_HZ * ratio), SAMPLE_RATE_HZ)
        lengths = torch.tensor([x24.shape[1]])
        mel, fbank = signal.log_mel(x24, lengths), signal.kaldi_fbank(to_16k(x24, lengths)[0])
        frames = min(mel.shape[1], fbank.shape[1] // FBANK_PER_FRAME)
        yield mel[:, :frames], fbank[:, : FBANK_PER_FRAME * frames]


class MelSpeakerEncoder(nn.Module):
    """The frozen speaker encoder on mels; gradients pass through to the mel."""

    def __init__(self, encoder: SpeakerEncoder, to_fbank: FilterBankMap) -> None:
        super().__init__()
        self.encoder = encoder.eval().requires_grad_(False)
        self.to_fbank = to_fbank

    def forward(self, mel: Tensor) -> Tensor:
        """Log mel [B, F, 80] -> embedding [B, 192] of unit length."""
        return embed(self.encoder, self.to_fbank(mel))


class VoiceTerms(NamedTuple):
    """Scalars of one batch of mels against their targets, and `right`: how often the target is nearest of all.

    cosine: between the embeddings. contrast: cross entropy of finding the target among all rows' and voices near them.
    colour, spread: squared error of mean and standard deviation over time, which the encoder hears little of.
    """

    cosine: Tensor
    contrast: Tensor
    colour: Tensor
    spread: Tensor
    right: Tensor

    def loss(self, cosine: float, contrast: float, colour: float) -> Tensor:
        """0 is best for all but the contrast. Arguments: weight of each; spread has half that of colour."""
        return (
            cosine * (1 - self.cosine) + contrast * self.contrast + colour * (self.colour + 0.5 * self.spread)
        )


def voice_terms(hear: MelSpeakerEncoder, mel: Tensor, target: Tensor) -> VoiceTerms:
    """mel, target: [B, F, 80] of the same speech; no gradient reaches the target."""
    rows = torch.arange(len(mel), device=mel.device)
    with torch.no_grad():
        wanted = hear(target)
        near = [hear(widen.warped(target, torch.full_like(target[:, 0, 0], warp))) for warp in NEAR_WARPS]
        choices = torch.cat([wanted, *near])  # [3 B, 192], the right one of row i is i
    heard = hear(mel)
    scores = heard @ choices.T / TEMPERATURE
    return VoiceTerms(
        cosine=(heard * wanted).sum(1).mean(), contrast=F.cross_entropy(scores, rows),
        colour=F.mse_loss(mel.mean(1), target.mean(1)), spread=F.mse_loss(mel.std(1), target.std(1)),
        right=(scores.argmax(1) == rows).float().mean(),
    )  # fmt: skip
