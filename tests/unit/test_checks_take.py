"""A take's clicks, loudness and likeness, what is left without a recogniser, and which take is kept."""

from __future__ import annotations

import numpy as np
import pytest

from studio.audio.clicks import clicks_at
from studio.audio.resample import resample
from studio.backends.fake import ScriptedEars
from studio.checks.take import Sound, TakeReport, best_of, check_take
from studio.speech import SAMPLE_RATE_HZ, SPEAKER_DIM
from tests.faulty_clips import clean, voices

TEXT = "the cat sat on the mat"


def speech(voice: str) -> np.ndarray:
    return resample(*clean(voice), SAMPLE_RATE_HZ)


def test_clean_speech_does_not_click() -> None:
    assert {voice: clicks_at(speech(voice), SAMPLE_RATE_HZ) for voice in voices()} == {voice: [] for voice in voices()}


@pytest.mark.parametrize("kind", ["impulse", "jump"])
def test_clicks_in_the_quiet_parts_of_speech_are_found_where_they_are(kind: str) -> None:
    for voice in ("am_onyx_en", "bm_george_en", "librivox", "flite_rms"):
        samples = speech(voice).copy()
        size = SAMPLE_RATE_HZ // 100
        levels = samples[: len(samples) // size * size].reshape(-1, size).std(axis=1)
        places = [int(frame) * size + size // 2 for frame in np.argsort(levels)[[5, 25, 45]]]
        for at in places:
            samples[at : at + (1 if kind == "impulse" else 200)] += 0.25
        found = clicks_at(samples, SAMPLE_RATE_HZ)
        assert all(min(abs(second - at / SAMPLE_RATE_HZ) for second in found) < 0.02 for at in places)
        assert len(found) <= 2 * len(places)


async def test_without_a_recogniser_the_rest_is_still_checked() -> None:
    ears = ScriptedEars()
    ears.recogniser = ""
    samples = speech("am_onyx_en").copy()
    samples[100] += 0.5
    report = await check_take(Sound(samples, TEXT, "", clean("am_onyx_en")), ears)
    assert report.heard is None and report.word_error_ratio is None
    assert [mark.kind for mark in report.marks] == ["click"] and report.likeness == pytest.approx(1)
    assert -30 < report.lufs < -15 and report.peak_dbfs < 0


async def test_other_voice_and_quiet_sound_are_told() -> None:
    ears = ScriptedEars()
    ears.enqueue(TEXT)
    ears.voices = np.eye(2, SPEAKER_DIM, dtype=np.float32)
    report = await check_take(Sound(0.01 * speech("am_onyx_en"), TEXT, "", clean("am_onyx_en")), ears)
    assert {note.kind: note.severity for note in report.notes} == {"unlike": "red", "quiet": "amber"}
    assert report.word_error_ratio == 0 and report.reasons("en") and report.reasons("zh")


async def test_sound_of_nothing_is_checked_like_any() -> None:
    report = await check_take(Sound(np.zeros(4800, np.float32), TEXT, "", clean("am_onyx_en")), ScriptedEars())
    assert report.word_error_ratio == 1 and report.likeness is None


def report(word_errors: float | None = 0.0, likeness: float | None = 0.8) -> TakeReport:
    return TakeReport((), -20.0, -3.0, "", word_errors, likeness)


def test_take_with_the_fewest_faults_is_kept_and_of_equal_ones_the_likest() -> None:
    assert best_of([report(0.2), report(0.0), report(0.1)]) == 1
    assert best_of([report(likeness=0.7), report(likeness=0.9)]) == 1
    assert best_of([report(None, None), report(None, None)]) == 0
