"""The objective companion reads a test's export, and says what it cannot measure."""

from __future__ import annotations

import io
import json
import zipfile

import numpy as np
import pytest
import soundfile

from studio.evaluate import companion
from studio.evaluate.companion import judges, measure, read_export
from studio.speech import Float32

RATE_HZ = 24_000


def flac(seconds: float) -> bytes:
    out = io.BytesIO()
    tone = 0.1 * np.sin(2 * np.pi * 440 * np.arange(int(seconds * RATE_HZ)) / RATE_HZ)
    soundfile.write(out, tone, RATE_HZ, format="FLAC")
    return out.getvalue()


def exported(**design: object) -> bytes:
    """As `studio.listening.export` writes it: clips as they came, and as raters heard them with the anchors."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        told = {"texts": ["one two three", "four"], "language": "en", "reference": ""} | design
        archive.writestr("design.json", json.dumps(told))
        archive.writestr("given/c1 Name of it/s01.0.flac", flac(1.0))
        archive.writestr("ready/c1 Name of it/s01.0.flac", flac(2.0))
        archive.writestr("ready/anchor35/s01.1.flac", flac(2.0))
        archive.writestr("../../escape/c1/s01.9.flac", b"not read")
    return out.getvalue()


def no_listener() -> None:
    raise ImportError("faster_whisper: not installed")


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without the judges' packages."""
    monkeypatch.setattr(companion, "Listener", no_listener)
    monkeypatch.setattr(companion, "QualityJudge", no_listener)


def test_clips_are_measured_as_they_came_and_anchors_as_they_were_heard() -> None:
    _, sounds = read_export(exported())
    lengths = {(sound.item, sound.condition): len(sound.samples) / RATE_HZ for sound in sounds}
    assert lengths == {("s01", "c1"): 1.0, ("s01", "anchor35"): 2.0}
    assert {sound.text for sound in sounds} == {"one two three"}


def test_an_archive_that_is_no_export_is_refused() -> None:
    with pytest.raises(zipfile.BadZipFile):
        read_export(b"nothing")


def test_judges_that_are_not_installed_are_left_out_and_the_rest_is_measured(bare: None) -> None:
    design, sounds = read_export(exported())
    found, absent = judges(design, sounds, None)
    assert absent == {
        "error_ratio": "faster_whisper: not installed",
        "similarity": "the test has no reference clip",
        "dnsmos": "faster_whisper: not installed",
    }
    clip = next(measure(sounds, found))
    assert clip.rate == 3.0  # three words in a second
    assert clip.loudness_lufs == pytest.approx(
        -23.7, abs=0.5
    )  # a sine of 0.1: −23 dBFS, less K-weighting at 440 Hz
    assert (clip.error_ratio, clip.similarity, clip.dnsmos) == (None, None, None)


def test_a_test_without_texts_has_neither_errors_nor_a_rate(bare: None) -> None:
    design, sounds = read_export(exported(texts=[]))
    found, absent = judges(design, sounds, None)
    assert absent["error_ratio"] == companion.NO_TEXTS
    assert next(measure(sounds, found)).rate is None


def test_likeness_is_to_the_reference_of_the_same_sentence(
    bare: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ByLength:
        """Embeds a clip as a direction that its length gives."""

        def embed(self, samples: Float32) -> np.ndarray:
            return np.array([1.0, 0.0]) if len(samples) > 1.5 * 16_000 else np.array([0.6, 0.8])

    monkeypatch.setattr(companion, "VoiceJudge", ByLength)
    design, sounds = read_export(exported(reference="anchor35"))
    found, absent = judges(design, sounds, None)
    assert "similarity" not in absent
    assert {clip.condition: clip.similarity for clip in measure(sounds, found)} == {
        "c1": 0.6,
        "anchor35": 1.0,
    }
