"""Kaldi's log mel filter bank in numpy, which the speaker encoder reads where there is no torch. Knows no model.

`models/prompt/features.py` has it in torch; a parity test compares the two.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from studio.speech import PROMPT_RATE_HZ, Float32

BINS = 80
_WINDOW, _STEP, _FFT = 400, 160, 512
_LOW_HZ = 20.0
_PREEMPHASIS = 0.97


def speaker_features(samples: Float32) -> Float32:
    """float32 [n] at 16 kHz, n at least 400 -> log mel energies less their mean over time, [(n - 240) // 160, 80]."""
    frames = np.lib.stride_tricks.sliding_window_view(samples, _WINDOW)[::_STEP]
    frames = frames - frames.mean(axis=1, keepdims=True)
    frames = frames - _PREEMPHASIS * np.concatenate([frames[:, :1], frames[:, :-1]], axis=1)
    power = np.abs(np.fft.rfft(frames * np.hanning(_WINDOW) ** 0.85, _FFT)) ** 2
    features = np.log(np.maximum(power @ _filters(), np.finfo(np.float32).eps)).astype(np.float32)
    return features - features.mean(axis=0)


@cache
def _filters() -> Float32:
    """Triangles of height 1 in mel, the topmost bin unused: [257, 80]."""
    low, top = _mel(np.array([_LOW_HZ, PROMPT_RATE_HZ / 2]))
    edges, points = np.linspace(low, top, BINS + 2), _mel(np.linspace(0, PROMPT_RATE_HZ / 2, _FFT // 2 + 1))
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    at = points[:, None]
    filters = np.minimum((at - left) / (centre - left), (right - at) / (right - centre)).clip(0)
    filters[-1] = 0
    return filters.astype(np.float32)


def _mel(hz: np.ndarray) -> np.ndarray:
    return 1127 * np.log1p(hz / 700)
