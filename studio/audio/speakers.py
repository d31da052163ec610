"""How many people speak in a clip, from speaker embeddings of its parts. Makes no embeddings itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from studio.audio.check import speech_runs
from studio.audio.decode import ReferenceClip
from studio.audio.denoise import with_less_noise
from studio.audio.resample import resample
from studio.speech import PROMPT_RATE_HZ, SAMPLE_RATE_HZ, Float32

_PART_S, _STEP_S = 1.5, 0.5
_MOST_S = 30.0
_ROUNDS = 10
SAME_VOICE, OTHER_VOICE = 0.62, 0.40
"""Likeness of the two halves that a clip falls into best. Below the second they are two people; above the first one;
between, two only if their pitches differ: one person's expression moves the embedding, two people's pitch as well."""
PITCH_APART_SEMITONES = 1.5
_FRAME, _FFT, _HOP = 640, 2048, 160
_VOICED = 0.45


def parts_of(clip: ReferenceClip) -> list[Float32]:
    """The speech of a clip without pauses and noise, in overlapping parts of 1.5 s at 16 kHz; none of a shorter one.

    Noise that comes and goes with the voice's loudness would make it sound like two.
    """
    runs = speech_runs(clip)
    if not runs:
        return []
    heard = clip.part(0.0, min(runs[-1][1], runs[0][0] + _MOST_S))
    clear = with_less_noise(resample(heard.samples, heard.sample_rate_hz, SAMPLE_RATE_HZ))
    quiet = ReferenceClip(clear, SAMPLE_RATE_HZ, SAMPLE_RATE_HZ, len(clear) / SAMPLE_RATE_HZ)
    spoken = [quiet.part(start_s, end_s).samples for start_s, end_s in speech_runs(quiet)]
    if not spoken:
        return []
    samples = resample(np.concatenate(spoken), SAMPLE_RATE_HZ, PROMPT_RATE_HZ)
    size, step = round(_PART_S * PROMPT_RATE_HZ), round(_STEP_S * PROMPT_RATE_HZ)
    return [samples[at : at + size] for at in range(0, len(samples) - size + 1, step)]


def count_speakers(parts: Sequence[Float32], embeddings: Float32) -> int:
    """1 or 2: whether the parts fall into two groups that no one voice would give.

    Args:    embeddings: unit vectors [n, d], one of each part.
    """
    if len(parts) < 3:
        return 1
    group, likeness = _two_groups(embeddings)
    if likeness < OTHER_VOICE:
        return 2
    if likeness >= SAME_VOICE:
        return 1
    low, high = (median_pitch_hz(np.concatenate([parts[k] for k in np.flatnonzero(group == g)])) for g in (0, 1))
    if low is None or high is None:
        return 1
    return 2 if abs(12 * np.log2(low / high)) > PITCH_APART_SEMITONES else 1


def _two_groups(embeddings: Float32) -> tuple[np.ndarray, float]:
    """Group 0 or 1 of each by two means, begun at the pair least alike, and the likeness of the means."""
    alike = embeddings @ embeddings.T
    centres = embeddings[list(np.unravel_index(alike.argmin(), alike.shape))]
    for _ in range(_ROUNDS):
        group = (embeddings @ centres.T).argmax(axis=1)
        if len(set(group.tolist())) < 2:
            return group, 1.0
        centres = np.stack([embeddings[group == g].mean(axis=0) for g in (0, 1)])
        centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    return group, float(centres[0] @ centres[1])


def median_pitch_hz(samples: Float32) -> float | None:
    """Median of the voiced frames, float32 [n] at 16 kHz, by autocorrelation; None if nothing is voiced."""
    if len(samples) < _FRAME:
        return None
    frames = np.lib.stride_tricks.sliding_window_view(samples, _FRAME)[::_HOP]
    frames = frames[frames.std(axis=1) > 0.1 * samples.std()]
    frames = (frames - frames.mean(axis=1, keepdims=True)) * np.hanning(_FRAME)
    again = np.fft.irfft(np.abs(np.fft.rfft(frames, _FFT)) ** 2)[:, :_FRAME]
    again = again / np.maximum(again[:, :1], 1e-12)
    shortest, longest = PROMPT_RATE_HZ // 400, PROMPT_RATE_HZ // 65
    lags = again[:, shortest:longest].argmax(axis=1) + shortest
    voiced = np.take_along_axis(again, lags[:, None], axis=1)[:, 0] > _VOICED
    return float(PROMPT_RATE_HZ / np.median(lags[voiced])) if voiced.any() else None
