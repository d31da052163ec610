"""A whole clip moved in pitch, its length kept; timbre moves along. Streams are never moved: docs/decisions/0008."""

from __future__ import annotations

import numpy as np

from studio.audio.resample import resample
from studio.audio.stretch import TimeStretch
from studio.speech import SAMPLE_RATE_HZ, Float32


def shift_pitch(samples: Float32, rate_hz: int, semitones: float) -> tuple[Float32, int]:
    """The clip moved by so many semitones, and its rate: 24 kHz, all that the models read; untouched for 0.

    Args: samples: float32 [n] mono.
    """
    if not semitones:
        return samples, rate_hz
    ratio = 2 ** (semitones / 12)
    clip = resample(samples, rate_hz, SAMPLE_RATE_HZ)
    stretch = TimeStretch(1 / ratio)
    longer = np.concatenate([stretch.push(clip), stretch.finish()])
    moved = resample(longer, round(SAMPLE_RATE_HZ * ratio), SAMPLE_RATE_HZ)
    return np.clip(moved, -1.0, 1.0), SAMPLE_RATE_HZ
