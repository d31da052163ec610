"""Recording conditions drawn at random in the log-mel domain, so that real people's prompts are no surprise.

Everything runs on the device and in fixed shapes. One formula serves log10 (Whisper) and natural-log (Kaldi) powers.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def mel_bin_hz(bins: int, scale: str) -> Tensor:
    """Centre of each mel bin up to 8 kHz: scale "slaney" (Whisper) or "kaldi"."""
    if scale == "kaldi":
        low, high = (1127 * math.log(1 + hz / 700) for hz in (20.0, 8000.0))
        mel = low + torch.arange(1, bins + 1) * (high - low) / (bins + 1)
        return 700 * (torch.exp(mel / 1127) - 1)
    highest = 15 + 27 * math.log(8) / math.log(6.4)
    mel = torch.arange(1, bins + 1) * highest / (bins + 1)
    return torch.where(mel < 15, mel * 200 / 3, 1000 * torch.exp((mel - 15) * math.log(6.4) / 27))


def _uniform(rows: int, low: float, high: float, like: Tensor) -> Tensor:
    return low + (high - low) * torch.rand((rows, 1, 1), device=like.device)


def recording(
    log_power: Tensor, bin_hz: Tensor, ten_db: float, share: float = 0.7, equalised: float = 1.0
) -> Tensor:
    """Equaliser, gain, low-pass and noise for a share of the rows.

    Args:  log_power: [B, T, bins] log mel power; ten_db: what 10 dB is in its unit (1 for log10, ln 10 for natural).
           equalised: how much of equaliser and gain; with 0 colour and level stay.
    """
    rows, _, bins = log_power.shape
    position = torch.linspace(0, math.pi, bins, device=log_power.device)
    tilt = sum(_uniform(rows, -0.35, 0.35, log_power) * torch.cos(k * position) for k in (1, 2, 3, 5))
    changed = log_power + equalised * ten_db * (tilt + _uniform(rows, -1.0, 0.6, log_power))
    cutoff_hz = _uniform(rows, 3600.0, 11000.0, log_power)  # from 8 kHz on there is nothing to cut
    octaves_above = torch.log2(bin_hz / cutoff_hz).clamp(min=0)
    changed = changed - ten_db * (octaves_above * 12).clamp(max=5.0)
    loudest = changed.amax((1, 2), keepdim=True)
    snr = ten_db * _uniform(rows, 1.5, 6.0, log_power)
    slope = ten_db * _uniform(rows, -0.6, 0.6, log_power) * torch.cos(position)
    flutter = (
        torch.log(-torch.log(torch.rand_like(changed).clamp(1e-6, 1 - 1e-6))) * (ten_db / math.log(10)) * 0.6
    )
    noise = loudest - snr + slope + flutter
    noisy = torch.logaddexp(changed * (math.log(10) / ten_db), noise * (math.log(10) / ten_db)) * (
        ten_db / math.log(10)
    )
    chosen = torch.rand((rows, 1, 1), device=log_power.device) < share
    return torch.where(chosen, noisy, log_power)


def hide(features: Tensor, value: float, time_spans: int, span_frames: int, band_bins: int) -> Tensor:
    """Cover random stretches of time and one random band of each row with a value: [B, T, bins]."""
    rows, frames, bins = features.shape
    t = torch.arange(frames, device=features.device)[None, :, None]
    f = torch.arange(bins, device=features.device)[None, None]
    covered = torch.zeros((rows, frames, 1), dtype=torch.bool, device=features.device)
    for _ in range(time_spans):
        start = _uniform(rows, -span_frames, frames, features)
        covered = covered | ((t >= start) & (t < start + _uniform(rows, 0, span_frames, features)))
    low = _uniform(rows, -band_bins, bins, features)
    band = (f >= low) & (f < low + _uniform(rows, 0, band_bins, features))
    return features.masked_fill(covered | band, value)
