"""One click's work on a clip to clone: cut to its best speech, 24 kHz, less noise, an even level. Judges nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from studio.audio.check import BEST_PART_S, best_span, judge_clip, speech_span
from studio.audio.decode import ReferenceClip
from studio.audio.doctor import NOISY_DB
from studio.audio.measure import measure
from studio.audio.resample import resample
from studio.speech import SAMPLE_RATE_HZ, Float32

LEVEL_DB = -20.0
PEAK = 0.89                     # -1 dB
_WINDOW, _STEP = 768, 192       # 32 ms and 8 ms at 24 kHz
_LEAST_GAIN = 0.25              # -12 dB: what is taken for noise may be breath
_MEMORY = 0.96                  # of the share of speech in a band from step to step; less of it rings


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


def with_less_noise(samples: Float32) -> Float32:
    """Steady noise turned down by up to 12 dB, band by band, where the quietest frames say that it lies.

    Each band's share of speech follows Ephraim and Malah's decision-directed estimate, which keeps noise from ringing.
    """
    padded = np.pad(samples, (_WINDOW, 2 * _WINDOW))
    window = np.hanning(_WINDOW + 1)[:-1].astype(np.float32)
    frames = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW)[::_STEP]
    spectra = np.fft.rfft(frames * window, axis=1)                          # [T, F]
    power = np.abs(spectra) ** 2
    heard = np.flatnonzero(power.sum(1) > 1e-6)
    quiet = heard[np.argsort(power[heard].sum(1))[: max(1, len(heard) // 10)]]
    noise = power[quiet].mean(0) + 1e-12
    gains = np.empty_like(power)
    speech = np.zeros(power.shape[1])                                       # of the frame before, by the noise
    for at, ratio in enumerate(power / noise):
        share = _MEMORY * speech + (1 - _MEMORY) * np.maximum(ratio - 1, 0)
        gains[at] = np.maximum(share / (1 + share), _LEAST_GAIN)
        speech = gains[at] ** 2 * ratio
    out = np.zeros(len(padded))
    for at, frame in enumerate(np.fft.irfft(spectra * gains, _WINDOW, axis=1) * window):
        out[at * _STEP : at * _STEP + _WINDOW] += frame
    # squared Hann windows a quarter apart add up to 1.5
    return (out[_WINDOW : _WINDOW + len(samples)] / 1.5).astype(np.float32)
