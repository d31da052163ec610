"""Judging reference clips by their loudness: what is refused, what is trimmed, which part is best."""

import io

import numpy as np
import pytest
import soundfile

from studio.audio.check import best_span, judge_clip, speech_runs, usable_clip
from studio.audio.decode import ReferenceClip, decode_clip
from studio.errors import UnusablePromptSpeech

RATE_HZ = 16_000


def speech(seconds: float, level: float = 0.3) -> np.ndarray:
    """A buzz that wavers like syllables, never quiet for 0.2 s."""
    t = np.arange(round(seconds * RATE_HZ)) / RATE_HZ
    buzz = sum(np.sin(2 * np.pi * 140 * k * t) / k for k in range(1, 8))
    return (level * buzz / 2 * (0.6 + 0.4 * np.sin(2 * np.pi * 4 * t))).astype(np.float32)


def pause(seconds: float) -> np.ndarray:
    rng = np.random.default_rng(0)
    return (1e-4 * rng.standard_normal(round(seconds * RATE_HZ))).astype(np.float32)


def clip_of(*parts: np.ndarray, rate_hz: int = RATE_HZ) -> ReferenceClip:
    samples = np.concatenate(parts)
    return ReferenceClip(samples, rate_hz, rate_hz, len(samples) / rate_hz)


def refusal(clip: ReferenceClip) -> UnusablePromptSpeech:
    with pytest.raises(UnusablePromptSpeech) as refused:
        judge_clip(clip)
    assert refused.value.message("en") and refused.value.message("zh")
    return refused.value


def test_good_clip_is_trimmed_to_its_speech():
    verdict = judge_clip(clip_of(pause(1.0), speech(2.0), pause(0.6), speech(3.0), pause(2.0)))
    assert verdict.start_s == pytest.approx(0.85, abs=0.03) and verdict.end_s == pytest.approx(6.75, abs=0.03)
    assert verdict.clip.seconds == pytest.approx(5.9, abs=0.05)
    assert verdict.speech_s == pytest.approx(5.0, abs=0.08)


@pytest.mark.parametrize("samples", [
    np.zeros(80_000, np.float32), pause(5.0), np.full(80_000, 0.3, np.float32), np.zeros(100, np.float32)],
    ids=["digital silence", "room noise", "constant offset", "shorter than a frame"])
def test_silent_clip_is_refused(samples):
    assert refusal(clip_of(samples)).key == "clip.silent"


def test_under_one_second_of_speech_is_refused_however_long_the_clip():
    refused = refusal(clip_of(pause(3.0), speech(0.8), pause(3.0)))
    assert refused.key == "clip.too_short" and refused.values["seconds"] == pytest.approx(0.8, abs=0.05)


def test_one_second_of_speech_is_enough():
    assert judge_clip(clip_of(pause(0.5), speech(1.1))).clip.seconds == pytest.approx(1.25, abs=0.05)


def test_steady_noise_before_and_behind_is_not_speech():
    rng = np.random.default_rng(1)
    noise = (0.03 * rng.standard_normal(7 * RATE_HZ)).astype(np.float32)
    noise[2 * RATE_HZ:5 * RATE_HZ] += speech(3.0)
    verdict = judge_clip(clip_of(noise))
    assert verdict.start_s == pytest.approx(1.85, abs=0.1) and verdict.end_s == pytest.approx(5.15, abs=0.1)


def test_clicks_are_not_speech():
    click = np.zeros(RATE_HZ, np.float32)
    click[100] = 0.9
    assert refusal(clip_of(*[click] * 6)).key == "clip.silent"


def test_quiet_speech_over_a_quieter_floor_is_found():
    quiet = clip_of(pause(1.0), speech(2.0, level=0.01), pause(1.0))
    assert judge_clip(quiet).speech_s == pytest.approx(2, abs=0.1)


@pytest.mark.parametrize("rate_hz", [8_000, 11_025, 15_999])
def test_low_rate_is_refused_though_the_samples_were_resampled(rate_hz):
    buffer = io.BytesIO()
    soundfile.write(buffer, speech(3.0), rate_hz, format="WAV")
    refused = refusal(decode_clip(buffer.getvalue()))
    assert refused.key == "clip.low_rate" and refused.values["rate_hz"] == rate_hz


def test_long_clip_is_refused_with_its_best_part():
    sentences = [part for i in range(12) for part in (speech(3.2, 0.5 if 5 <= i < 8 else 0.1), pause(0.5))]
    clip = clip_of(*sentences)
    refused = refusal(clip)
    assert refused.key == "clip.too_long" and refused.values["seconds"] == pytest.approx(44.4, abs=0.1)
    start_s, end_s = refused.values["start"], refused.values["end"]
    # two of the three loud sentences fit into ten seconds with the pauses between
    assert 18.3 < start_s < 22.3 and end_s - start_s <= 10.0
    part = clip.part(*best_span(clip))
    assert part.seconds == pytest.approx(end_s - start_s, abs=0.01)
    assert judge_clip(part).clip.seconds == pytest.approx(part.seconds, abs=0.1)
    quiet_end = np.abs(part.samples[-int(0.1 * RATE_HZ):]).max()
    assert quiet_end < 0.01


def test_best_part_of_speech_without_pauses_is_the_loudest_ten_seconds():
    start_s, end_s = best_span(clip_of(speech(20.0, 0.1), speech(12.0, 0.4), speech(10.0, 0.1)))
    assert start_s >= 19.3 and end_s <= 32.7 and end_s - start_s == pytest.approx(10, abs=0.1)


def test_thirty_seconds_of_speech_in_a_longer_clip_are_enough():
    verdict = judge_clip(clip_of(pause(5.0), speech(29.0), pause(5.0)))
    assert verdict.clip.seconds == pytest.approx(29.3, abs=0.1)


def test_pauses_part_the_runs():
    runs = speech_runs(clip_of(speech(1.0), pause(0.1), speech(1.0), pause(0.5), speech(1.0)))
    assert [round(start, 1) for start, _ in runs] == [0.0, 2.6]


def test_usable_clip_goes_from_bytes_to_trimmed_samples():
    buffer = io.BytesIO()
    soundfile.write(buffer, np.concatenate([pause(1.0), speech(2.0), pause(1.0)]), RATE_HZ, format="FLAC")
    assert usable_clip(buffer.getvalue()).seconds == pytest.approx(2.3, abs=0.05)
