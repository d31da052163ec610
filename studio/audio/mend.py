"""One click's work on a clip to clone: cut to its best speech, 24 kHz, less noise, an even level. Judges nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from studio.audio.check import BEST_PART_S, best_span, judge_clip, speech_span
from studio.audio.decode import ReferenceClip
from studio.audio.denoise import with_less_noise
from studio.audio.doctor import NOISY_DB
from studio.audio.measure import measure
from studio.audio.resample import resample
from studio.speech import SAMPLE_RATE_HZ, Float32

LEVEL_DB = -20.0
PEAK = 0.89                     # -1 dB


def mend(clip: ReferenceClip) -> ReferenceClip:
    """The clip at its best: 3 to 10 s cut at pauses if it has as much, 24 kHz, normalised; less noise if it is noisy.

    Raises:  UnusablePromptSpeech if nothing of it can be cloned.
    """
    start_s, end_s = best_span(clip) if speech_span(clip) > BEST_PART_S else (0.0, clip.seconds)
    # with a second around it, in which the noise is alone
    near_s = max(0.0, start_s - 1.0)
    near = clip.part(near_s, end_s + 1.0)
    found = measure(near)
    samples = resample(near.samples, near.sample_rate_hz, SAMPLE_RATE_HZ)
    if found is not None and found.snr_db < NOISY_DB:
        samples = with_less_noise(samples)
    whole = ReferenceClip(samples, SAMPLE_RATE_HZ, clip.source_rate_hz, len(samples) / SAMPLE_RATE_HZ)
    trimmed = judge_clip(whole.part(start_s - near_s, end_s - near_s)).clip
    return replace(trimmed, samples=_at_level(trimmed))


def _at_level(clip: ReferenceClip) -> Float32:
    found = measure(clip)
    gain = 10 ** ((LEVEL_DB - found.level_db) / 20) if found else 1.0
    peak = float(np.abs(clip.samples).max())
    return (clip.samples * min(gain, PEAK / max(peak, 1e-9))).astype(np.float32)
