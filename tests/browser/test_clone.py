"""The clone panel: the doctor's verdicts, one click that mends, and the clip's words. Ears are real, speech is not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.access import faults
from tests.browser.conftest import DESKTOP, PHONE, OpenPage
from tests.browser.studio_page import PROMPTS, StudioPage
from tests.faulty_clips import noisy, of_two, wav

CLIP = PROMPTS / "af_kore_en.flac"
SAID = "The harbor was calm at dawn"
OTHER_TEXT = "Please leave the keys on the kitchen table before you drive back."


@pytest.fixture
def open_clone(open_on_fake_studio: OpenPage) -> OpenPage:
    """Opens pages at the clone panel."""

    def open_one(*args: Any, **how: Any) -> StudioPage:
        opened = open_on_fake_studio(*args, **how)
        opened.open_clone()
        return opened

    return open_one


@pytest.fixture
def noisy_clip(tmp_path: Path) -> Path:
    file = tmp_path / "noisy.wav"
    file.write_bytes(wav(*noisy("af_kore_en", 15)))
    return file


def give(page: StudioPage, file: Path) -> None:
    page.page.locator("#clip input[type=file]").set_input_files(file)


def finding(page: StudioPage, severity: str) -> Locator:
    return page.page.locator(f"#findings [data-severity={severity}]")


def test_clip_doctor_says_what_is_wrong_and_one_click_mends_it_and_takes_that_back(
    open_clone: OpenPage, noisy_clip: Path
) -> None:
    page = open_clone()
    give(page, noisy_clip)
    expect(page.verdict).to_contain_text("could be better")
    expect(finding(page, "amber")).to_have_text(re.compile("take care Noisy: .*Fix the clip"))
    page.page.locator("#mend").click()
    expect(page.verdict).to_contain_text("ready to clone")
    expect(finding(page, "amber")).to_have_count(0)
    expect(page.page.locator("#clip-before")).to_be_visible()  # before and after to hear
    expect(page.page.locator("#mend")).to_be_hidden()
    page.page.locator("#unmend").click()
    expect(finding(page, "amber")).to_have_count(1)
    expect(page.page.locator("#clip-before")).to_be_hidden()
    expect(page.page.locator("#mend")).to_be_visible()


def test_second_speaker_is_told(open_clone: OpenPage, tmp_path: Path) -> None:
    (tmp_path / "two.wav").write_bytes(wav(*of_two("af_kore_en", "am_onyx_en")))
    page = open_clone()
    give(page, tmp_path / "two.wav")
    expect(finding(page, "amber")).to_have_text(re.compile("two speakers"))
    expect(page.page.locator("#mend")).to_be_hidden()  # nothing that a click could better


def test_transcript_is_filled_in_and_a_text_that_differs_is_told_before_it_speaks(open_clone: OpenPage) -> None:
    page = open_clone()
    give(page, CLIP)
    expect(page.transcript).to_have_value(re.compile(SAID))
    agreement = page.page.locator("#agreement")
    expect(agreement).to_contain_text("Filled in by the recogniser")
    page.transcript.fill(OTHER_TEXT)
    expect(agreement.locator("[data-state=differs]")).to_contain_text(SAID)
    page.ask("Hello there.")
    expect(page.error_at("transcript")).to_contain_text("not what is heard in the clip")
    page.wait("refused")
    page.page.locator("#use-heard").click()
    expect(page.transcript).to_have_value(re.compile(SAID))
    # As the note of the text before stands until the server has compared the new one.
    agreement.evaluate("note => note.insertAdjacentHTML('beforeend', '<i data-state=differs></i>')")
    page.speak_button.click()
    page.wait("done")


def test_text_that_differs_speaks_at_the_second_press(open_clone: OpenPage) -> None:
    page = open_clone()
    page.transcript.fill(OTHER_TEXT)
    give(page, CLIP)
    expect(page.page.locator("#agreement [data-state=differs]")).to_be_visible()
    expect(page.transcript).to_have_value(OTHER_TEXT)  # what a person typed stays
    page.ask("Hello there.")
    page.wait("refused")
    page.speak_button.click()
    page.wait("done")


@pytest.mark.parametrize(("locale", "theme", "viewport"), [("zh-CN", "dark", PHONE), ("en-US", "light", DESKTOP)])
def test_doctor_is_readable_by_all(
    open_clone: OpenPage, noisy_clip: Path, locale: str, theme: str, viewport: dict[str, int]
) -> None:
    page = open_clone(locale, theme, viewport)
    give(page, noisy_clip)
    expect(finding(page, "amber")).to_contain_text("噪声" if locale == "zh-CN" else "Noisy")
    page.transcript.fill(OTHER_TEXT)
    expect(page.page.locator("#agreement [data-state=differs]")).to_be_visible()
    assert faults(page.page) == set()
    assert page.page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
