"""Judges of the vocoder's samples: by folded periods and by spectra at several resolutions. Training only.

Axes: B rows, S samples. Every judge gives its scores and its layers' outputs, for feature matching.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

PERIODS = (2, 3, 5, 7, 11)
RESOLUTIONS = ((1024, 240, 960), (2048, 480, 1920), (512, 100, 480))
"""(FFT size, hop, window) in samples at 24 kHz."""

Judged = tuple[Tensor, list[Tensor]]


class PeriodJudge(nn.Module):
    """Samples folded into rows of one period, convolved along time. [B, S] -> scores, features."""

    def __init__(self, period: int, width: int = 16) -> None:
        super().__init__()
        self.period = period
        channels = (1, width, 4 * width, 8 * width, 16 * width, 16 * width)
        self.convs = nn.ModuleList(
            weight_norm(nn.Conv2d(channels[i], channels[i + 1], (5, 1), (3 if i < 4 else 1, 1), (2, 0)))
            for i in range(5)
        )
        self.last = weight_norm(nn.Conv2d(channels[-1], 1, (3, 1), padding=(1, 0)))

    def forward(self, samples: Tensor) -> Judged:
        missing = -samples.shape[1] % self.period
        x = F.pad(samples[:, None], (0, missing), mode="reflect").unflatten(-1, (-1, self.period))
        features = []
        for conv in self.convs:
            x = F.leaky_relu(conv(x), 0.1)
            features.append(x)
        return self.last(x), features


class SpectrumJudge(nn.Module):
    """Log magnitudes at one resolution, convolved over time and frequency. [B, S] -> scores, features."""

    def __init__(self, resolution: tuple[int, int, int], width: int = 16) -> None:
        super().__init__()
        self.n_fft, self.hop, self.window_samples = resolution
        self.register_buffer("window", torch.hann_window(self.window_samples), persistent=False)
        self.convs = nn.ModuleList(
            weight_norm(
                nn.Conv2d(
                    1 if i == 0 else width,
                    width,
                    (3, 9) if i < 4 else (3, 3),
                    (1, 2) if 0 < i < 4 else (1, 1),
                    padding=(1, 4) if i < 4 else (1, 1),
                )
            )
            for i in range(5)
        )
        self.last = weight_norm(nn.Conv2d(width, 1, 3, padding=1))

    def forward(self, samples: Tensor) -> Judged:
        with torch.autocast(samples.device.type, enabled=False):
            x = torch.stft(
                samples.float(),
                self.n_fft,
                self.hop,
                self.window_samples,
                self.window,
                center=True,
                return_complex=True,
            )
            x = (x.real.square() + x.imag.square() + 1e-9).sqrt().transpose(1, 2)[:, None]  # [B, 1, T, bins]
            x = x.clamp(min=1e-5).log() * 0.2 + 0.5
        features = []
        for conv in self.convs:
            x = F.leaky_relu(conv(x), 0.1)
            features.append(x)
        return self.last(x), features


class Judges(nn.Module):
    """All judges at once: [B, S] -> one (scores, features) a judge."""

    def __init__(self, period_width: int = 16, spectrum_width: int = 16) -> None:
        super().__init__()
        self.judges = nn.ModuleList(
            [PeriodJudge(period, period_width) for period in PERIODS]
            + [SpectrumJudge(resolution, spectrum_width) for resolution in RESOLUTIONS]
        )

    def forward(self, samples: Tensor) -> list[Judged]:
        return [judge(samples) for judge in self.judges]


def judge_loss(real: list[Judged], made: list[Judged]) -> Tensor:
    """Least squares: real sound scores 1, made sound 0."""
    return sum(
        ((1 - r.float()) ** 2).mean() + (m.float() ** 2).mean()
        for (r, _), (m, _) in zip(real, made, strict=True)
    ) / len(real)


def maker_losses(real: list[Judged], made: list[Judged]) -> tuple[Tensor, Tensor]:
    """Of the vocoder: how far the made sound is from scoring 1, and from the real sound's features."""
    fooled = sum(((1 - m.float()) ** 2).mean() for m, _ in made) / len(made)
    matching = sum(
        (r.detach().float() - m.float()).abs().mean() / r.detach().float().abs().mean().clamp(min=1e-3)
        for (_, rs), (_, ms) in zip(real, made, strict=True)
        for r, m in zip(rs, ms, strict=True)
    ) / sum(len(fs) for _, fs in real)
    return fooled, matching
