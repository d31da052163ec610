"""Speech made faster or slower and higher or lower while it streams, each without the other: docs/decisions/0008."""

from __future__ import annotations

import numpy as np
import soxr

from studio.audio.stretch import TimeStretch
from studio.speech import SAMPLE_RATE_HZ, Float32

MAX_PITCH = 6.0
"""Semitones either way; timbre moves along, and further off it is nobody's."""


class Retime:
    """One stream's state, as `TimeStretch`: `push` sound as it comes, `finish` after the last.

    Sound is 24 kHz. It is stretched once, by both controls together, and then resampled by the pitch alone, which moves
    pitch and timbre like a longer or shorter throat. At speed 1 and pitch 0 it is what went in.
    """

    def __init__(self, speed: float = 1.0, pitch: float = 0.0) -> None:
        """speed: 2.0 is half as long; pitch: semitones, at most MAX_PITCH either way."""
        if not abs(pitch) <= MAX_PITCH:
            raise ValueError(f"pitch {pitch} is beyond {MAX_PITCH} semitones")
        ratio = 2 ** (pitch / 12)
        self._stretch = TimeStretch(speed / ratio)
        self._resample = (
            soxr.ResampleStream(SAMPLE_RATE_HZ * ratio, SAMPLE_RATE_HZ, 1, "float32", "HQ") if pitch else None
        )

    def push(self, samples: Float32) -> Float32:
        """float32 [n] in, as much as is certain out."""
        return self._resampled(self._stretch.push(samples), last=False)

    def finish(self) -> Float32:
        """The rest."""
        return self._resampled(self._stretch.finish(), last=True)

    def _resampled(self, samples: Float32, last: bool) -> Float32:
        if self._resample is None:
            return samples
        moved = self._resample.resample_chunk(np.ascontiguousarray(samples), last=last)
        return np.clip(moved, -1.0, 1.0)
