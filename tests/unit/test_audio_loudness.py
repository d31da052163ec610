"""Loudness by BS.1770: known levels, short and silent sounds, and gains that match without clipping."""

import numpy as np
import pytest

from studio.audio.loudness import PEAK_DBFS, SILENT_LUFS, loudness_of, matching_gains_db

RATE_HZ = 24_000


def tone(level: float, seconds: float = 2.0, hertz: float = 997.0) -> np.ndarray:
    return (level * np.sin(2 * np.pi * hertz / RATE_HZ * np.arange(int(seconds * RATE_HZ)))).astype(np.float32)


def test_full_scale_tone_of_1_khz_is_three_lufs_below_zero() -> None:
    found = loudness_of(tone(1.0), RATE_HZ)
    assert found.lufs == pytest.approx(-3.01, abs=0.1)  # the reference tone of BS.1770
    assert found.peak_dbfs == pytest.approx(0.0, abs=0.01)


def test_half_the_level_is_six_decibels_less() -> None:
    whole, half = loudness_of(tone(0.4), RATE_HZ), loudness_of(tone(0.2), RATE_HZ)
    assert whole.lufs - half.lufs == pytest.approx(6.02, abs=0.05)


def test_sound_shorter_than_a_block_is_as_loud_as_a_long_one() -> None:
    assert loudness_of(tone(0.3, 0.1), RATE_HZ).lufs == pytest.approx(loudness_of(tone(0.3), RATE_HZ).lufs, abs=0.3)


@pytest.mark.parametrize("samples", [np.zeros(0), np.zeros(100), np.zeros(24_000), tone(1e-5)])
def test_silence_of_any_length_has_the_least_loudness(samples: np.ndarray) -> None:
    assert loudness_of(samples.astype(np.float32), RATE_HZ).lufs == SILENT_LUFS


def test_gains_make_sounds_equally_loud_and_clip_none() -> None:
    click = tone(0.05)
    click[1000] = 0.9  # a high peak on a quiet sound: it cannot be raised far
    sounds = [tone(0.5), tone(0.05), click, np.zeros(24_000, np.float32)]
    gains_db = matching_gains_db([loudness_of(s, RATE_HZ) for s in sounds], target_lufs=-16)
    changed = [loudness_of(s * np.float32(10 ** (g / 20)), RATE_HZ) for s, g in zip(sounds, gains_db, strict=True)]
    assert max(s.lufs for s in changed[:3]) - min(s.lufs for s in changed[:3]) < 0.05
    assert all(s.peak_dbfs <= PEAK_DBFS + 0.01 for s in changed)
    assert gains_db[3] == 0.0


def test_target_is_met_where_the_peaks_allow_it() -> None:
    gain_db = matching_gains_db([loudness_of(tone(0.05), RATE_HZ)], target_lufs=-20)[0]
    assert loudness_of(tone(0.05 * 10 ** (gain_db / 20)), RATE_HZ).lufs == pytest.approx(-20, abs=0.05)
