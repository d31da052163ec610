"""What can be measured of a clip without a model: level, clipping, noise, bandwidth, silence. Judges nothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from studio.audio.check import FRAME_S, frame_rms, speech_runs
from studio.audio.decode import ReferenceClip
from studio.speech import Float32

_QUIET_RATIO = 0.1              # the quietest frames, which stand for the noise
_DIGITAL_SILENCE = 1e-5         # a gate or padding, not the room
_WINDOW_S = 0.032
_FLAT_RATIO = 2e-4              # neighbours on a cut-off top differ by less than this share of the peak
_NEAR_PEAK_RATIO = 0.985
_IN_BAND_DB = 60.0              # below the strongest band of speech
_ABOVE_NOISE_DB = 6.0
_MOST_SNR_DB = 80.0


@dataclass(frozen=True, slots=True)
class Measures:
    """Of one clip. head_s, tail_s: before and behind all speech; level_db: of its speech, 0 being full scale.

    clipped_ratio: share of samples on cut-off tops; bandwidth_hz: above it there is no speech.
    """

    span_s: float
    speech_s: float
    head_s: float
    tail_s: float
    level_db: float
    clipped_ratio: float
    snr_db: float
    bandwidth_hz: float
    antiphase: bool


def measure(clip: ReferenceClip) -> Measures | None:
    """All of it; None if there is no speech to measure."""
    runs = speech_runs(clip)
    if not runs:
        return None
    power = frame_rms(clip) ** 2
    spoken = np.zeros(len(power), bool)
    for start_s, end_s in runs:
        spoken[round(start_s / FRAME_S) : round(end_s / FRAME_S)] = True
    speech_power, noise_power = float(power[spoken].mean()), _noise_power(power)
    return Measures(
        span_s=runs[-1][1] - runs[0][0],
        speech_s=sum(end - start for start, end in runs),
        head_s=runs[0][0],
        tail_s=max(0.0, clip.seconds - runs[-1][1]),
        level_db=10 * float(np.log10(speech_power)),
        clipped_ratio=clipped_ratio(clip.samples),
        snr_db=_snr_db(speech_power, noise_power),
        bandwidth_hz=bandwidth_hz(clip),
        antiphase=clip.antiphase,
    )


def _noise_power(power: NDArray[np.float64]) -> float:
    heard = np.sort(power[power > _DIGITAL_SILENCE**2])
    return float(heard[: max(1, round(_QUIET_RATIO * len(heard)))].mean()) if len(heard) else 0.0


def _snr_db(speech_power: float, noise_power: float) -> float:
    least = speech_power * 10 ** (-_MOST_SNR_DB / 10)
    return 10 * float(np.log10(max(speech_power - noise_power, least) / max(noise_power, least)))


def clipped_ratio(samples: Float32) -> float:
    """Share of samples that lie flat in threes near the peak, wherever that is: a clip may be turned down later."""
    size = np.abs(samples)
    peak = float(size.max()) if len(size) else 0.0
    if len(size) < 3 or peak == 0.0:
        return 0.0
    near = size >= _NEAR_PEAK_RATIO * peak
    flat = np.abs(np.diff(samples)) <= _FLAT_RATIO * peak
    return float((near[1:-1] & flat[:-1] & flat[1:]).mean())


def bandwidth_hz(clip: ReferenceClip) -> float:
    """The highest frequency that speech reaches: strong enough beside its strongest band, and above the noise."""
    size = round(_WINDOW_S * clip.sample_rate_hz)
    if len(clip.samples) < size:
        return 0.0
    frames = np.lib.stride_tricks.sliding_window_view(clip.samples, size)[:: size // 2]
    power = np.abs(np.fft.rfft(frames * np.hanning(size).astype(np.float32), axis=1)) ** 2 + 1e-12  # [T, F]
    bands = np.lib.stride_tricks.sliding_window_view(np.pad(power, ((0, 0), (2, 2)), "edge"), 5, axis=1).mean(-1)
    loudness = power.sum(1)
    quiet = bands[loudness <= np.quantile(loudness, _QUIET_RATIO)].mean(0)
    strong = np.quantile(bands, 0.95, axis=0)
    reached = (strong > strong.max() / 10 ** (_IN_BAND_DB / 10)) & (strong > quiet * 10 ** (_ABOVE_NOISE_DB / 10))
    return float(np.flatnonzero(reached)[-1] / _WINDOW_S) if reached.any() else 0.0
