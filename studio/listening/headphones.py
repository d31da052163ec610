"""Whether somebody wears headphones: six rounds of three tones of 200 Hz, one of them in opposite phase.

The opposite phases cancel in the air before loudspeakers, so that there the wrong tone seems softest; over headphones
the one that is 6 dB softer does. Five right of six count as headphones. (Woods et al. 2017, Attention, Perception &
Psychophysics 79.)
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from random import Random

import numpy as np
import soundfile

ROUNDS, RIGHT_MIN = 6, 5
_RATE_HZ, _HZ = 24_000, 200.0
_TONE_S, _RAMP_S, _PAUSE_S = 1.0, 0.1, 0.5
_LEVEL, _SOFTER = 0.25, 10 ** (-6 / 20)


def softest(rater: str, number: int) -> tuple[int, int]:
    """Places, from 0, of the softer tone and of the one in opposite phase, in a round from 1."""
    soft, opposite = Random(f"headphones/{rater}/{number}").sample(range(3), 2)
    return soft, opposite


def tones(rater: str, number: int) -> bytes:
    """A stereo WAV of one round. Rounds are counted over all tries, so that another try has other tones."""
    soft, opposite = softest(rater, number)
    time = np.arange(round(_TONE_S * _RATE_HZ)) / _RATE_HZ
    ramp = np.clip(np.minimum(time, _TONE_S - time) / _RAMP_S, 0, 1)
    tone = _LEVEL * np.sin(2 * np.pi * _HZ * time) * ramp
    pause = np.zeros((round(_PAUSE_S * _RATE_HZ), 2))
    parts = []
    for place in range(3):
        left = tone * (_SOFTER if place == soft else 1.0)
        parts += [np.stack([left, -left if place == opposite else left], axis=1), pause]
    buffer = io.BytesIO()
    soundfile.write(buffer, np.concatenate(parts[:-1]), _RATE_HZ, format="WAV", subtype="PCM_16")
    return buffer.getvalue()


def right(rater: str, chosen: Sequence[int]) -> int:
    """How many rounds of the last try were answered rightly. chosen: the place from 0, of every round so far."""
    numbered = list(enumerate(chosen, 1))[-ROUNDS:]
    return sum(place == softest(rater, number)[0] for number, place in numbered)
