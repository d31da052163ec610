"""Compare, restore from a file and script export in Chromium on the real engine."""

from __future__ import annotations

import io
import re
from pathlib import Path

import soundfile
from playwright.sync_api import expect

from tests.browser.studio_page import WAIT_MS, StudioPage
from tests.browser.test_script_tab import exported, pasted
from tests.browser.test_takes_tab import drop, open_takes, spoken, take

TEXT = "The old lighthouse keeper climbed the narrow stairs every evening to light the lamp."
"""Long enough to be met while it sounds."""


def test_takes_are_compared_replayed_and_restored_from_a_file(page: StudioPage, tmp_path: Path) -> None:
    spoken(page, TEXT, voice="Clara", seed=5)
    spoken(page, f"{TEXT} And so it was.", voice="Owen", seed=5)
    takes = open_takes(page)
    for box in takes.get_by_label("Compare").all():
        box.check()
    takes.locator(".compare").get_by_role("button", name="Play").click()
    page.page.wait_for_function("window.tap.peak() > 0.01")
    takes.locator(".compare").press("2")
    expect(takes.locator(".compare")).to_have_attribute("data-heard", "B")
    row = take(takes, re.compile(f"{re.escape(TEXT)}$"))
    row.get_by_role("button", name="Voice again").click()
    expect(row).to_have_attribute("data-difference", re.compile("^[01]$"), timeout=WAIT_MS)
    row.locator("summary").click()
    with page.page.expect_download() as download:
        row.get_by_role("link", name="flac").click()
    download.value.save_as(tmp_path / "x.flac")
    drop(page, tmp_path / "x.flac")
    expect(page.text).to_have_value(TEXT)
    expect(page.voice).to_have_value(re.compile("Clara"))


def test_script_is_exported_by_the_page(page: StudioPage) -> None:
    script = pasted(page, "Clara: Good evening.\nOwen: Good night.")
    script.locator("[data-part=speak]").click()
    expect(script.locator(".script-line[data-status=done]")).to_have_count(2, timeout=WAIT_MS)
    sound, rate_hz = soundfile.read(io.BytesIO(exported(page, script, "WAV")))
    assert rate_hz == 24000 and len(sound) > rate_hz and abs(sound).max() > 0.05
    assert exported(page, script, "SRT").decode().count("-->") == 2
