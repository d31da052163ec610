"""The clip doctor on clips with known faults, and what one click makes of them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from studio.audio.decode import decode_clip
from studio.audio.denoise import with_less_noise
from studio.audio.doctor import Diagnosis, diagnose
from studio.audio.measure import bandwidth_hz, clipped_ratio, measure
from studio.audio.mend import mend
from studio.audio.resample import resample
from studio.speech import SAMPLE_RATE_HZ
from tests.faulty_clips import CLIPS_PER_FAULT, FAULTS, clean, clean_clips, clips_with, noisy, wav


def found_in(data: bytes) -> dict[str, str]:
    """The severity of each topic."""
    return {finding.topic: finding.severity for finding in diagnose(decode_clip(data)).findings}


def test_clean_clips_have_no_fault() -> None:
    found = {clip.name: set(found_in(clip.data).values()) for clip in clean_clips()}
    assert len(found) == 19 and [name for name in found if found[name] != {"green"}] == []


@pytest.mark.parametrize("fault", FAULTS)
def test_at_least_nine_of_ten_verdicts_on_a_fault_are_right(fault: str) -> None:
    right = Counter(found_in(clip.data)[clip.topic] == clip.severity for clip in clips_with(fault))
    assert right.total() == CLIPS_PER_FAULT and right[True] >= 0.9 * CLIPS_PER_FAULT


def test_signal_to_noise_ratio_is_measured_within_three_decibels() -> None:
    for voice in ("af_kore_en", "bm_george_en", "allison", "zf_xiaoni_zh"):
        for snr_db in (5, 15, 25):
            found = measure(decode_clip(wav(*noisy(voice, snr_db))))
            assert found is not None and found.snr_db == pytest.approx(snr_db, abs=3)


def test_band_is_found_under_a_higher_sample_rate() -> None:
    narrow = resample(resample(clean("af_kore_en")[0], 24_000, 12_000), 12_000, 24_000)
    assert bandwidth_hz(decode_clip(wav(narrow, 24_000))) == pytest.approx(6000, abs=250)


def test_cut_off_tops_are_found_below_full_scale_and_a_loud_tone_is_none() -> None:
    tone = np.sin(2 * np.pi * 200 * np.arange(48_000) / 48_000).astype(np.float32)
    assert clipped_ratio(tone) < 0.0005
    assert clipped_ratio(np.clip(tone, -0.7, 0.7) * 0.5) > 0.2


def test_refused_clip_has_its_refusal_as_finding_and_says_whether_a_click_helps() -> None:
    silent = diagnose(decode_clip(wav(np.zeros(48_000, np.float32), 24_000)))
    assert (silent.usable, silent.mendable, silent.severity) == (False, False, "red")
    long = diagnose(decode_clip(wav(np.tile(clean("af_kore_en")[0], 8), 24_000)))
    assert (long.usable, long.mendable, long.severity) == (False, True, "red")


def test_speakers_are_told_only_when_somebody_could_tell() -> None:
    clip = decode_clip(wav(*clean("af_kore_en")))
    findings = [diagnose(clip, speakers).findings for speakers in (None, 1, 2)]
    told = [[f.severity for f in those if f.topic == "speakers"] for those in findings]
    assert told == [[], ["green"], ["amber"]]


def test_every_finding_has_a_sentence_in_both_languages() -> None:
    for fault in FAULTS:
        for clip in clips_with(fault):
            for finding in diagnose(decode_clip(clip.data), speakers=2).findings:
                assert finding.message("en") and finding.message("zh")


def mended(data: bytes) -> tuple[Diagnosis, Diagnosis]:
    """Before and after one click."""
    clip = decode_clip(data)
    after = mend(clip)
    assert after.sample_rate_hz == SAMPLE_RATE_HZ and np.abs(after.samples).max() <= 0.9
    return diagnose(clip), diagnose(after)


@pytest.mark.parametrize("fault", ["level", "snr 15 dB", "silence", "antiphase"])
def test_one_click_mends(fault: str) -> None:
    for clip in clips_with(fault):
        before, after = mended(clip.data)
        assert before.mendable and not after.mendable and after.usable


def test_drowned_clip_gets_better_by_eight_decibels_between_the_words() -> None:
    for clip in clips_with("snr 5 dB"):
        before, after = measure(decode_clip(clip.data)), measure(mend(decode_clip(clip.data)))
        assert before and after and after.snr_db > before.snr_db + 8


def test_long_clip_is_cut_at_pauses_to_at_most_ten_seconds() -> None:
    sentence = np.concatenate([clean("af_kore_en")[0], np.zeros(12_000, np.float32)])
    after = mend(decode_clip(wav(np.tile(sentence, 8), 24_000)))
    assert 3 <= after.seconds <= 10
    assert np.abs(after.samples[-480:]).max() < 0.01 and np.abs(after.samples[:480]).max() < 0.01


def test_less_noise_comes_nearer_to_the_clean_clip_and_leaves_that_alone() -> None:
    for voice in ("allison", "af_kore_en", "zf_xiaoni_zh"):
        clear, _ = clean(voice)
        dirty = noisy(voice, 10)[0].astype(np.float32)
        distance = [float(np.square(out - 0.7 * clear).mean()) for out in (dirty, with_less_noise(dirty))]
        assert distance[1] < 0.6 * distance[0]
        assert np.square(with_less_noise(clear) - clear).mean() < 1e-3 * np.square(clear).mean()
