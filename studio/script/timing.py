"""When each line is heard: places in samples, and the times of subtitles. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from studio.speech import SAMPLE_RATE_HZ, Float32

_FRAME_SAMPLES = SAMPLE_RATE_HZ // 50
_AUDIBLE_BELOW_PEAK_DB = 40.0


@dataclass(frozen=True, slots=True)
class Voiced:
    """What timing needs of a line with a take: its length, the silence after it, and its earliest begin, if any."""

    samples: int
    pause_s: float
    at_s: float | None = None


def starts(lines: Sequence[Voiced]) -> list[int]:
    """The first sample of each line: after the line before and its pause, and no earlier than its own time."""
    found: list[int] = []
    free = 0
    for line in lines:
        start = max(free, round((line.at_s or 0.0) * SAMPLE_RATE_HZ))
        found.append(start)
        free = start + line.samples + round(line.pause_s * SAMPLE_RATE_HZ)
    return found


def audible(samples: Float32) -> tuple[int, int]:
    """First and last sample (exclusive) of what can be heard, by frames of 20 ms; all of it if nothing can."""
    frames = [samples[n : n + _FRAME_SAMPLES] for n in range(0, len(samples), _FRAME_SAMPLES)]
    levels = np.array([np.sqrt(np.mean(np.square(frame, dtype=np.float64))) for frame in frames] or [0.0])
    heard = np.flatnonzero(levels > levels.max() * 10 ** (-_AUDIBLE_BELOW_PEAK_DB / 20))
    if not len(heard):
        return 0, len(samples)
    return int(heard[0]) * _FRAME_SAMPLES, min(len(samples), (int(heard[-1]) + 1) * _FRAME_SAMPLES)
