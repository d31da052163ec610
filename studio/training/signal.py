"""Batched signal features of the training corpus, on any device: resampling, log-mels, Kaldi filter banks.

Rows are padded to one length; each row's own length rules its borders, so a row's features equal those of the clip
alone. The studio's single-clip features live in `studio/models/prompt/features.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F


@contextmanager
def exact_float32() -> Iterator[None]:
    """Matrix products without TF32, whatever the trainer chose: its noise floor lies only 60 dB below the signal."""
    chosen = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(chosen)


@lru_cache(maxsize=32)
def _sinc_kernel(orig: int, new: int, device: str) -> tuple[Tensor, int]:
    """Hann-windowed sinc of 6 zero crossings and roll-off 0.99, one column per output phase: [K, new], half width."""
    base = min(orig, new) * 0.99
    width = math.ceil(6 * orig / base)
    taps = torch.arange(-width, width + orig, dtype=torch.float64) / orig
    phase = -torch.arange(new, dtype=torch.float64)[:, None] / new
    t = ((phase + taps) * base).clamp(-6, 6)
    window = torch.cos(t * math.pi / 12) ** 2
    kernel = torch.special.sinc(t) * window * (base / orig)
    return kernel.T.float().contiguous().to(device), width


def resample(x: Tensor, orig_hz: int, new_hz: int) -> Tensor:
    """x: [B, n] -> [B, ceil(n * new / orig)]; rows must be zero beyond their own length."""
    divisor = math.gcd(orig_hz, new_hz)
    orig, new = orig_hz // divisor, new_hz // divisor
    kernel, width = _sinc_kernel(orig, new, str(x.device))
    windows = F.pad(x, (width, width + orig)).unfold(1, len(kernel), orig)  # [B, steps, K]
    with exact_float32():
        return (windows @ kernel).flatten(1)[:, : -(-x.shape[1] * new // orig)]


def resampled_length(samples: Tensor, orig_hz: int, new_hz: int) -> Tensor:
    divisor = math.gcd(orig_hz, new_hz)
    orig, new = orig_hz // divisor, new_hz // divisor
    return -(-samples * new // orig)


def reflect_rows(x: Tensor, lengths: Tensor, pad: int) -> Tensor:
    """Pad each row by reflection at its own two ends: [B, n], [B] -> [B, n + 2 pad]; what follows is garbage."""
    t = (torch.arange(x.shape[1] + 2 * pad, device=x.device) - pad).abs()[None]
    last = (lengths - 1)[:, None]
    t = torch.where(t > last, 2 * last - t, t).clamp(min=0)
    return x.gather(1, t.clamp(max=x.shape[1] - 1))


def _slaney_hz_to_mel(hz: Tensor) -> Tensor:
    linear = hz * 3 / 200
    return torch.where(hz < 1000, linear, 15 + 27 * torch.log(hz.clamp(min=1e-9) / 1000) / math.log(6.4))


def _slaney_mel_to_hz(mel: Tensor) -> Tensor:
    return torch.where(mel < 15, mel * 200 / 3, 1000 * torch.exp((mel - 15) * math.log(6.4) / 27))


@lru_cache(maxsize=16)
def slaney_filters(rate_hz: int, n_fft: int, bins: int, f_max: float, device: str) -> Tensor:
    """Area-normalised triangles on the Slaney scale: [n_fft / 2 + 1, bins]."""
    limits = _slaney_hz_to_mel(torch.tensor([0.0, f_max], dtype=torch.float64))
    edges = _slaney_mel_to_hz(
        torch.linspace(float(limits[0]), float(limits[1]), bins + 2, dtype=torch.float64)
    )
    bin_hz = torch.arange(n_fft // 2 + 1, dtype=torch.float64)[:, None] * rate_hz / n_fft
    rising = (bin_hz - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - bin_hz) / (edges[2:] - edges[1:-1])
    weights = torch.minimum(rising, falling).clamp(min=0) * 2 / (edges[2:] - edges[:-2])
    return weights.float().to(device)


def whisper_log10_mel(x16: Tensor, lengths: Tensor) -> Tensor:
    """16 kHz rows -> log10 mel power [B, T, 128] before Whisper's floor and scale; T = n // 160 valid a row."""
    padded = reflect_rows(x16, lengths, 200)
    window = torch.hann_window(400, device=x16.device)
    power = torch.stft(padded, 400, 160, window=window, center=False, return_complex=True).abs() ** 2
    mel = power.transpose(1, 2) @ slaney_filters(16_000, 400, 128, 8000.0, str(x16.device))
    return mel.clamp(min=1e-10).log10()[:, : x16.shape[1] // 160]


def whisper_scale(log10_mel: Tensor, largest: Tensor) -> Tensor:
    """Whisper's floor 8 decades below the clip's largest value, then its scale; largest broadcasts."""
    return (torch.maximum(log10_mel, largest - 8.0) + 4.0) / 4.0


def log_mel(x24: Tensor, lengths: Tensor, bins: int = 80, f_max: float = 8000.0) -> Tensor:
    """24 kHz rows -> natural-log mel magnitude [B, frames, bins], 50 a second; frames = n // 480 valid a row."""
    padded = reflect_rows(x24, lengths, 720)
    window = torch.hann_window(1920, device=x24.device)
    spectrum = torch.stft(padded, 1920, 480, window=window, center=False, return_complex=True)
    magnitude = (spectrum.real**2 + spectrum.imag**2 + 1e-9).sqrt().transpose(1, 2)
    mel = magnitude @ slaney_filters(24_000, 1920, bins, f_max, str(x24.device))
    return mel.clamp(min=1e-5).log()


@lru_cache(maxsize=4)
def _kaldi_filters(device: str) -> Tensor:
    """Kaldi's 80 triangles, straight on its mel scale, 20 Hz to 8 kHz: [257, 80]."""
    low, high = (1127 * math.log(1 + hz / 700) for hz in (20.0, 8000.0))
    edges = low + torch.arange(82, dtype=torch.float64) * (high - low) / 81
    bin_mel = 1127 * torch.log(1 + torch.arange(257, dtype=torch.float64)[:, None] * (16_000 / 512) / 700)
    rising = (bin_mel - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - bin_mel) / (edges[2:] - edges[1:-1])
    weights = torch.minimum(rising, falling).clamp(min=0)
    weights[256] = 0  # Kaldi leaves the Nyquist bin out
    return weights.float().to(device)


def kaldi_fbank(x16: Tensor) -> Tensor:
    """16 kHz rows -> log filter bank [B, 1 + (n - 400) // 160, 80], no dither, edges snipped, mean not removed."""
    frames = x16.unfold(1, 400, 160)  # [B, T, 400]
    frames = frames - frames.mean(-1, keepdim=True)
    before = torch.cat([frames[..., :1], frames[..., :-1]], -1)
    window = torch.hann_window(400, periodic=False, device=x16.device) ** 0.85
    power = torch.fft.rfft((frames - 0.97 * before) * window, n=512).abs() ** 2
    return (power @ _kaldi_filters(str(x16.device))).clamp(min=torch.finfo(torch.float32).eps).log()
