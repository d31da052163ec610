"""Pitch and pace are moved each without the other, and the same however a stream is cut."""

import numpy as np
import pytest

from studio.audio.retime import Retime
from studio.speech import Float32

RATE_HZ = 24000


def tone(hertz: float, seconds: float = 2.0) -> Float32:
    """Five harmonics, so that it has a pitch as a voice has."""
    time = np.arange(int(seconds * RATE_HZ)) / RATE_HZ
    return sum(0.3 / n * np.sin(2 * np.pi * n * hertz * time) for n in range(1, 6)).astype(np.float32)


def pitch_of(samples: Float32) -> float:
    """Hertz by autocorrelation of the middle half."""
    middle = samples[len(samples) // 4 : -len(samples) // 4].astype(np.float64)
    likeness = np.fft.irfft(np.abs(np.fft.rfft(middle, 2 * len(middle))) ** 2)[: len(middle)]
    low, high = RATE_HZ // 500, RATE_HZ // 60
    return RATE_HZ / (low + int(np.argmax(likeness[low:high])))


def retimed(samples: Float32, speed: float, pitch: float, chunk: int = 4800) -> Float32:
    state = Retime(speed, pitch)
    pieces = [state.push(samples[start : start + chunk]) for start in range(0, len(samples), chunk)]
    return np.concatenate([*pieces, state.finish()])


@pytest.mark.parametrize("speed", [0.8, 1.0, 1.25])
@pytest.mark.parametrize("semitones", [-6.0, -2.0, 0.0, 3.0, 6.0])
def test_speech_is_moved_by_the_semitones_and_the_pace_asked_for(semitones: float, speed: float) -> None:
    moved = retimed(tone(180), speed, semitones)
    assert len(moved) == pytest.approx(2 * RATE_HZ / speed, abs=3)
    assert 12 * np.log2(pitch_of(moved) / 180) == pytest.approx(semitones, abs=0.15)
    assert np.abs(moved).max() <= 1.0


def test_what_comes_out_does_not_depend_on_how_the_stream_was_cut() -> None:
    whole = retimed(tone(150), 1.1, 2.5, chunk=10**6)
    for chunk in (700, 4800, 9999):
        np.testing.assert_allclose(retimed(tone(150), 1.1, 2.5, chunk), whole, atol=1e-6)


def test_speech_that_is_moved_by_nothing_is_what_went_in() -> None:
    np.testing.assert_array_equal(retimed(tone(150), 1.0, 0.0), tone(150))


@pytest.mark.parametrize("pitch", [6.5, -7.0, float("nan")])
def test_pitch_out_of_range_is_refused(pitch: float) -> None:
    with pytest.raises(ValueError, match="semitones"):
        Retime(1.0, pitch)
