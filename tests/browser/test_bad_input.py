"""Everything that can be wrong with what a person gives is said in a plain sentence, at the field it belongs to."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from playwright.sync_api import expect

from tests.browser.conftest import OpenPage
from tests.browser.studio_page import PROMPTS, StudioPage

RATE_HZ = 24000
CLIP = PROMPTS / "af_kore_en.flac"
TRANSCRIPT = "The harbor was calm at dawn, and a few small boats were already heading out to sea."
Write = Callable[[Path], None]


def speech(seconds: float) -> np.ndarray:
    """So many seconds of a prompt, over and over."""
    samples, rate_hz = soundfile.read(CLIP, dtype="float32")
    assert rate_hz == RATE_HZ
    return np.resize(samples, round(seconds * RATE_HZ))


def wav(samples: np.ndarray, rate_hz: int = RATE_HZ, subtype: str = "PCM_16") -> Write:
    return lambda file: soundfile.write(file, samples, rate_hz, subtype=subtype, format="WAV")


def raw(data: bytes) -> Write:
    return lambda file: file.write_bytes(data) and None


def broken_header() -> bytes:
    return b"RIFF" + struct.pack("<I", 99) + b"WAVEfmt " + b"\xff" * 60


def with_nan(seconds: float) -> np.ndarray:
    samples = speech(seconds)
    samples[5000] = np.nan
    return samples


BAD_CLIPS: dict[str, tuple[str, Write, str]] = {
    "silent": ("silent.wav", wav(np.zeros(4 * RATE_HZ, np.float32)), "The clip is silent"),
    "short": ("short.wav", wav(speech(0.6)), "at least 1 s are needed"),
    "long": ("long.wav", wav(speech(40)), "at most 30 s are allowed. The best part is"),
    "text": ("notes.wav", raw(b"Dear diary, today I recorded nothing at all.\n" * 40), "is not audio"),
    "broken": ("broken.wav", raw(broken_header()), "damaged|is not audio"),
    "empty": ("empty.wav", raw(b""), "The file is empty"),
    "telephone": ("telephone.wav", wav(speech(12)[::3], 8000), "8000 samples a second"),
    "nan": ("nan.wav", wav(with_nan(4), subtype="FLOAT"), "values that are not numbers"),
}
GOOD_CLIPS: dict[str, tuple[str, Write]] = {
    "stereo": ("stereo.wav", wav(np.stack([speech(4), 0.5 * speech(4)], axis=1))),
    "wrong extension": (
        "really-flac.mp3",
        lambda file: soundfile.write(file, speech(4), RATE_HZ, format="FLAC"),
    ),
}


def check_refused(page: StudioPage, field: str, sentence: str) -> None:
    """The sentence is at its field, once; the player points there and made no sound."""
    expect(page.error_at(field)).to_have_text(re.compile(sentence))
    expect(page.player).to_have_attribute("data-state", "refused")
    assert page.said() == "Not started: see the marked field."
    assert page.heard().total_ms == 0


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "There is no text to speak"),
        ("  \n ", "There is no text to speak"),
        ("?! … 。", "only punctuation"),
        ("word " * 1000, "5,?000 characters; at most 4,?096"),
    ],
    ids=["empty", "blank", "marks", "too long"],
)
def test_text_that_cannot_be_spoken_is_refused_at_the_text(
    page: StudioPage, text: str, sentence: str
) -> None:
    page.ask(text)
    check_refused(page, "text", sentence)
    page.text.press_sequentially("Hello")
    expect(page.error_at("text")).to_be_hidden()


def test_seed_that_is_no_number_is_refused_at_the_seed(page: StudioPage) -> None:
    page.page.locator("#seed input").fill("lucky")
    page.ask("Hello there.")
    expect(page.page.locator("#speech-options [data-part=error]")).to_have_text(re.compile("A seed is a whole number"))
    expect(page.page.locator("#seed input")).to_have_attribute("aria-invalid", "true")
    page.wait("refused")
    page.page.locator("#seed input").press_sequentially("7")
    expect(page.page.locator("#speech-options [data-part=error]")).to_be_hidden()


def test_missing_clip_is_refused_at_the_clip(page: StudioPage) -> None:
    page.open_clone()
    page.ask("Hello there.")
    check_refused(page, "clip", "No clip was sent")


def test_missing_transcript_is_refused_at_the_transcript(page: StudioPage) -> None:
    page.open_clone()
    page.give_clip(CLIP)
    page.ask("Hello there.")
    check_refused(page, "transcript", "Type what is said in the clip")


@pytest.mark.parametrize("kind", BAD_CLIPS)
def test_bad_clip_is_refused_when_given_and_when_used(page: StudioPage, tmp_path: Path, kind: str) -> None:
    name, write, sentence = BAD_CLIPS[kind]
    write(tmp_path / name)
    page.open_clone()
    page.give_clip(tmp_path / name, TRANSCRIPT)
    expect(page.verdict).to_contain_text("⚠")
    page.ask("Hello there.")
    check_refused(page, "clip", sentence)
    expect(page.verdict).to_be_hidden()


@pytest.mark.parametrize("kind", GOOD_CLIPS)
def test_unusual_clip_is_taken(page: StudioPage, tmp_path: Path, kind: str) -> None:
    name, write = GOOD_CLIPS[kind]
    write(tmp_path / name)
    page.open_clone()
    page.give_clip(tmp_path / name, TRANSCRIPT)
    expect(page.verdict).to_contain_text("ready to clone")


def test_best_part_of_a_long_clip_is_offered_and_speaks(page: StudioPage, tmp_path: Path) -> None:
    wav(speech(40))(tmp_path / "long.wav")
    page.open_clone()
    page.give_clip(tmp_path / "long.wav", TRANSCRIPT)
    page.page.locator("#mend").click()
    expect(page.verdict).to_contain_text("ready to clone")
    expect(page.page.locator("#mend")).to_be_hidden()
    heard = page.hear("The best part speaks.")
    assert heard.played_ms == heard.total_ms > 0


def test_voice_is_not_kept_without_name_consent_or_clip(page: StudioPage) -> None:
    page.open_clone()
    page.keep("Nobody")
    expect(page.kept).to_contain_text("No clip was sent")
    page.give_clip(CLIP, TRANSCRIPT)
    page.keep("Nobody", agreed=False)
    expect(page.kept).to_contain_text("Confirm that the speaker agrees")
    page.keep("")
    expect(page.kept).to_contain_text("Give the voice a name")
    page.keep("Clara")
    expect(page.kept).to_contain_text("exists already")


def test_refusals_are_in_the_language_of_the_page(open_page: OpenPage) -> None:
    page = open_page(locale="zh-CN")
    page.ask("")
    expect(page.error_at("text")).to_have_text("没有要朗读的文字，请输入一句话。")
    assert page.said() == "没有开始，请看标红的一栏。"
