"""Clips are made comparable: trimmed, equally loud, padded; anchors keep the limits of BS.1534."""

from __future__ import annotations

import io
import tracemalloc

import numpy as np
import pytest
import soundfile

from studio.audio.loudness import loudness_of
from studio.errors import InvalidRequest
from studio.listening.answers import Kind
from studio.listening.design import Condition, Design, Source
from studio.listening.folders import read_folders
from studio.listening.intake import NamedFile, uploads
from studio.listening.material import anchor, comparable, ready, spoilt

RATE_HZ = 24_000


def tone(hertz: float, seconds: float = 1.0, level: float = 0.2, rate_hz: int = RATE_HZ) -> np.ndarray:
    time = np.arange(int(seconds * rate_hz)) / rate_hz
    return (level * np.sin(2 * np.pi * hertz * time)).astype(np.float32)


def silence(seconds: float) -> np.ndarray:
    return np.zeros(int(seconds * RATE_HZ), np.float32)


@pytest.mark.parametrize(("cutoff_hz", "stop_hz", "end_hz"), [(3500, 4000, 4500), (7000, 8000, 9000)])
@pytest.mark.parametrize("rate_hz", [24_000, 48_000])
def test_anchor_passes_and_stops_as_bs1534_says(cutoff_hz: float, stop_hz: float, end_hz: float, rate_hz: int) -> None:
    click = np.zeros(8192, np.float32)
    click[4096] = 1
    response = 20 * np.log10(np.abs(np.fft.rfft(anchor(click, rate_hz, cutoff_hz))) + 1e-9)
    hertz = np.fft.rfftfreq(8192, 1 / rate_hz)
    assert np.abs(response[hertz <= cutoff_hz]).max() <= 0.1
    assert response[hertz >= stop_hz].max() <= -25
    assert response[hertz >= end_hz].max() <= -50


def test_anchor_is_as_long_as_its_source_and_not_shifted() -> None:
    source = np.concatenate([silence(0.3), tone(500, 0.4), silence(0.3)])
    made = anchor(source, RATE_HZ, 3500)
    assert len(made) == len(source) and np.abs(made - source).max() < 0.02


def test_all_clips_are_equally_loud_and_none_overdriven() -> None:
    clips = {("s1", "a"): (tone(300, level=0.01), RATE_HZ), ("s1", "b"): (tone(900, level=0.9), RATE_HZ)}
    # A click among silence is loud in its peak and soft on the whole: it sets how loud all can be.
    peaky = tone(300, 2.0, 0.001)
    peaky[::4000] = 0.9
    clips["s2", "a"] = (peaky, RATE_HZ)
    made, rate_hz = comparable(clips)
    levels = [loudness_of(clip, rate_hz).lufs for clip in made.values()]
    assert max(levels) - min(levels) < 0.2
    assert max(np.abs(clip).max() for clip in made.values()) <= 10 ** (-1 / 20) + 1e-4


def test_silence_around_a_clip_goes_but_for_50_ms() -> None:
    padded = np.concatenate([silence(0.5), tone(300), silence(0.7)])
    clips = {("s", "a"): (padded, RATE_HZ), ("s", "b"): (tone(300, 1.2), RATE_HZ)}
    made, rate_hz = comparable(clips)
    assert len(made["s", "a"]) / rate_hz == pytest.approx(1.1, abs=0.02)


def test_versions_of_one_recording_stay_aligned() -> None:
    """Equal lengths mean one sound treated differently: cutting each on its own would shift them apart."""
    body = np.concatenate([silence(0.5), tone(300), silence(0.5)])
    late = np.concatenate([silence(0.7), tone(300, 0.8), silence(0.5)])
    made, _ = comparable({("s", "a"): (body, RATE_HZ), ("s", "b"): (late, RATE_HZ)})
    assert len(made["s", "a"]) == len(made["s", "b"])


def test_one_rate_for_all_the_higher_where_they_differ() -> None:
    clips = {("s", "a"): (tone(300), RATE_HZ), ("s", "b"): (tone(300, rate_hz=48_000), 48_000)}
    assert comparable(clips)[1] == 48_000
    assert comparable({("s", "a"): (tone(300, rate_hz=16_000), 16_000)})[1] == 24_000


def test_clips_of_a_sentence_get_equal_numbers_of_samples_with_anchors_and_gold() -> None:
    conditions = (Condition("c1", "ref"), Condition("c2", "short"))
    design = Design(Kind.MUSHRA, "t", conditions, reference="c1")
    clips, _ = ready(design, {("s", "c1"): (tone(300, 1.5), RATE_HZ), ("s", "c2"): (tone(300, 1.0), RATE_HZ)})
    assert set(clips) == {("s", "c1"), ("s", "c2"), ("s", "anchor35"), ("s", "anchor70")}
    assert len({len(clip) for clip in clips.values()}) == 1
    gold = Design(Kind.AB, "t", conditions, gold=1)
    clips, _ = ready(gold, {("s", "c1"): (tone(300, 1.5), RATE_HZ), ("s", "c2"): (tone(300, 1.0), RATE_HZ)})
    assert ("s", "gold") in clips


def test_spoilt_clip_has_lost_its_treble_to_noise() -> None:
    clip = tone(300) + tone(4000)
    made = spoilt(clip, RATE_HZ, 1)
    spectrum = np.abs(np.fft.rfft(made))
    assert spectrum[4000] < 0.1 * spectrum[300]
    assert np.sqrt(np.mean(made**2)) == pytest.approx(np.sqrt(np.mean(clip**2)), rel=0.01)


@pytest.mark.parametrize(("clip", "key"), [(silence(2), "clip_silent"), (tone(300, 0.3), "clip_short")])
def test_useless_clip_is_named(clip: np.ndarray, key: str) -> None:
    with pytest.raises(InvalidRequest, match="s-a"):
        comparable({("s", "a"): (clip, RATE_HZ)})


def wav(clip: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, clip, RATE_HZ, format="WAV")
    return buffer.getvalue()


def test_upload_is_never_in_memory_as_a_whole() -> None:
    content, count = wav(tone(300, 30.0)), 20
    clip_bytes = 4 * 30 * RATE_HZ
    tracemalloc.start()
    try:
        found = uploads([NamedFile(f"{number}.wav", content) for number in range(count)])
        seconds = sum(len(one.clip().samples) for one in found) / RATE_HZ
        most_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert seconds == count * 30 == sum(one.samples for one in found) / RATE_HZ
    assert most_bytes < count * clip_bytes / 2


def test_folder_that_two_conditions_ask_for_is_refused_by_both_names() -> None:
    design = Design(Kind.AB, "t", (Condition("c1", "base"), Condition("c2", "tuned", Source(folder="base"))))
    with pytest.raises(InvalidRequest, match='"base" and "tuned" both'):
        read_folders(design, [NamedFile("base/a.wav", b"")])
