"""F0 of many clips at once: windowed autocorrelation candidates and a best path over time, on any device.

The method and its costs are those of Boersma (1993): the autocorrelation of a Hann-windowed frame divided by that of
the window, candidates at its peaks, and dynamic programming over octave and voicing changes.
"""

from __future__ import annotations

import torch
from torch import Tensor

RATE_HZ = 24_000
HOP_SAMPLES = 480
WINDOW_SAMPLES = 1200
"""Three periods of 60 Hz."""
F0_MIN_HZ, F0_MAX_HZ = 60.0, 450.0
CANDIDATES = 6
SILENCE_THRESHOLD, VOICING_THRESHOLD = 0.03, 0.45
OCTAVE_COST, OCTAVE_JUMP_COST, VOICING_COST = 0.01, 0.35, 0.14
FRAMES_AT_ONCE = 1 << 16


def _candidates(frames: Tensor, clip_peak: Tensor) -> tuple[Tensor, Tensor]:
    """frames: [n, 1200], clip_peak: [n] -> Hz [n, K + 1] and strength [n, K + 1]; the last candidate is
    unvoiced (0)."""
    window = torch.hann_window(WINDOW_SAMPLES, device=frames.device)
    frames = frames - frames.mean(1, keepdim=True)
    local_peak = frames.abs().amax(1)
    n_fft = 2048
    power = torch.fft.rfft(frames * window, n=n_fft).abs() ** 2
    window_power = torch.fft.rfft(window, n=n_fft).abs() ** 2
    lag_max = int(RATE_HZ / F0_MIN_HZ) + 1
    correlation = torch.fft.irfft(power)[:, : lag_max + 1]
    window_correlation = torch.fft.irfft(window_power)[: lag_max + 1]
    r = correlation / correlation[:, :1].clamp(min=1e-12) / (window_correlation / window_correlation[0])
    left, middle, right = r[:, :-2], r[:, 1:-1], r[:, 2:]
    lags = torch.arange(1, lag_max, device=frames.device)
    is_peak = (middle > left) & (middle >= right) & (lags >= RATE_HZ / F0_MAX_HZ)
    curvature = (left - 2 * middle + right).clamp(max=-1e-9)
    shift = (0.5 * (left - right) / curvature).clamp(-0.5, 0.5)
    height = (middle - 0.25 * (left - right) * shift).clamp(max=1.0)
    hz = RATE_HZ / (lags + shift)
    strength = torch.where(
        is_peak, height - OCTAVE_COST * torch.log2(F0_MIN_HZ / hz), torch.full_like(hz, -9.0)
    )
    best, index = strength.topk(CANDIDATES, dim=1)
    relative = local_peak / clip_peak.clamp(min=1e-6)
    quiet = (2.0 - relative / (SILENCE_THRESHOLD / (1 + VOICING_THRESHOLD))).clamp(min=0.0)
    unvoiced = VOICING_THRESHOLD + quiet
    return (
        torch.cat([hz.gather(1, index), torch.zeros_like(unvoiced)[:, None]], 1),
        torch.cat([best, unvoiced[:, None]], 1),
    )


def _best_path(hz: Tensor, strength: Tensor, lengths: Tensor) -> Tensor:
    """hz, strength: [B, T, K] -> Hz of the best path [B, T]; frames beyond a row's length carry its last choice."""
    rows, frames, _ = hz.shape
    total = strength[:, 0]
    log_hz = hz.clamp(min=1.0).log2()
    voiced = hz > 0
    back = torch.empty(hz.shape, dtype=torch.long, device=hz.device)
    for t in range(1, frames):
        both = voiced[:, t - 1, :, None] & voiced[:, t, None, :]
        change = voiced[:, t - 1, :, None] ^ voiced[:, t, None, :]
        jump = (log_hz[:, t - 1, :, None] - log_hz[:, t, None, :]).abs()
        cost = 0.5 * (
            OCTAVE_JUMP_COST * jump * both + VOICING_COST * change
        )  # a hop is 20 ms, the costs are for 10 ms
        score, back[:, t] = (total[:, :, None] - cost).max(1)
        total = torch.where((t < lengths)[:, None], score + strength[:, t], total)
    choice = total.argmax(1)
    path = torch.empty((rows, frames), dtype=torch.long, device=hz.device)
    for t in range(frames - 1, -1, -1):
        path[:, t] = choice
        if t:
            choice = torch.where(t < lengths, back[:, t].gather(1, choice[:, None])[:, 0], choice)
    return hz.gather(2, path[:, :, None])[:, :, 0]


def track_f0(x24: Tensor, lengths: Tensor) -> Tensor:
    """x24: [B, n] padded rows -> Hz [B, n // 480], 0 where unvoiced; frame k is centred on sample 480 k + 240."""
    frames = x24.shape[1] // HOP_SAMPLES
    beyond = torch.arange(x24.shape[1], device=x24.device)[None] >= lengths[:, None]
    x24 = x24.masked_fill(beyond, 0.0)
    before = WINDOW_SAMPLES // 2 - HOP_SAMPLES // 2
    padded = torch.nn.functional.pad(x24, (before, WINDOW_SAMPLES))
    windows = padded.unfold(1, WINDOW_SAMPLES, HOP_SAMPLES)[:, :frames]  # [B, T, 1200]
    peak = x24.abs().amax(1)[:, None].expand(-1, frames)
    flat_windows, flat_peak = windows.reshape(-1, WINDOW_SAMPLES), peak.reshape(-1)
    pieces = [
        _candidates(flat_windows[i : i + FRAMES_AT_ONCE], flat_peak[i : i + FRAMES_AT_ONCE])
        for i in range(0, len(flat_windows), FRAMES_AT_ONCE)
    ]
    hz = torch.cat([piece[0] for piece in pieces]).view(len(x24), frames, -1)
    strength = torch.cat([piece[1] for piece in pieces]).view(len(x24), frames, -1)
    return _best_path(hz, strength, lengths // HOP_SAMPLES)
