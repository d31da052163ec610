"""Faster and slower speech: exact lengths, the same whatever the chunks, the same pitch, no clicks."""

from __future__ import annotations

import numpy as np
import pytest

from studio.audio.stretch import TimeStretch, stretched_samples
from studio.speech import SAMPLE_RATE_HZ, Float32

SPEEDS = (0.25, 0.5, 0.8, 0.97, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0)


def voice(seconds: float, hertz: float = 140.0) -> Float32:
    """A buzz with vowels: harmonics whose strengths change, float32."""
    time = np.arange(round(seconds * SAMPLE_RATE_HZ)) / SAMPLE_RATE_HZ
    waves = [
        np.sin(2 * np.pi * hertz * k * time) * (1 + np.sin(2 * np.pi * k * time)) / k for k in range(1, 8)
    ]
    return (0.15 * np.sum(waves, axis=0)).astype(np.float32)


def stretched(samples: Float32, speed: float, chunk: int) -> Float32:
    stretch = TimeStretch(speed)
    parts = [stretch.push(samples[at : at + chunk]) for at in range(0, len(samples), chunk)]
    return np.concatenate([*parts, stretch.finish()])


@pytest.mark.parametrize("speed", SPEEDS)
@pytest.mark.parametrize("count", [0, 1, 359, 960, 1201, 24_000, 57_345])
def test_length_is_exact_for_any_speed_and_any_input(speed: float, count: int) -> None:
    given = stretched(voice(count / SAMPLE_RATE_HZ)[:count], speed, 4800)
    assert len(given) == stretched_samples(count, speed) == int(count / speed + 0.5)


@pytest.mark.parametrize("speed", [0.5, 0.9, 1.3, 2.0])
def test_chunks_change_nothing(speed: float) -> None:
    samples = voice(1.5)
    whole = stretched(samples, speed, len(samples))
    for chunk in (1, 479, 960, 24_000):
        np.testing.assert_array_equal(
            stretched(samples[: 4 * 960], speed, chunk), stretched(samples[: 4 * 960], speed, 4 * 960)
        )
    np.testing.assert_array_equal(stretched(samples, speed, 12_345), whole)


def test_speed_one_is_what_went_in() -> None:
    samples = voice(0.7)
    np.testing.assert_array_equal(stretched(samples, 1.0, 1000), samples)


@pytest.mark.parametrize("speed", [0.5, 0.8, 1.25, 2.0])
def test_pitch_is_kept_and_nothing_clicks(speed: float) -> None:
    samples = voice(3.0, 140.0)
    given = stretched(samples, speed, 960)
    spectrum = np.abs(np.fft.rfft(given * np.hanning(len(given))))
    hertz = np.fft.rfftfreq(len(given), 1 / SAMPLE_RATE_HZ)
    assert hertz[np.argmax(spectrum)] == pytest.approx(140.0, abs=1.5)
    assert np.abs(np.diff(given)).max() <= 1.2 * np.abs(np.diff(samples)).max()


def test_streaming_gives_sound_long_before_the_end() -> None:
    stretch = TimeStretch(1.25)
    given = stretch.push(voice(1.0))
    assert stretched_samples(SAMPLE_RATE_HZ, 1.25) - len(given) <= 0.06 * SAMPLE_RATE_HZ


def test_silence_stays_silent() -> None:
    assert not stretched(np.zeros(30_000, np.float32), 1.4, 960).any()


@pytest.mark.parametrize("speed", [0.0, -1.0, float("nan")])
def test_impossible_speed_is_refused(speed: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        TimeStretch(speed)
