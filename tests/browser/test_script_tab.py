"""The Script tab in Chromium on the scripted engine: paste, generate, re-roll, export, and what goes wrong."""

from __future__ import annotations

import asyncio
import io
import re
import zipfile
from pathlib import Path

import pytest
import soundfile
from playwright.sync_api import Locator, expect

from studio.backends.fake import Finish, Raise, Say, WaitFor
from studio.errors import SpeechLMError
from tests.api.conftest import Service
from tests.browser.access import faults
from tests.browser.conftest import PHONE, OpenPage
from tests.browser.studio_page import StudioPage

PLAY = "Ada: One two three.\nBob: Four five.\n[pause 1s]\nAda: Six."


def open_script(page: StudioPage) -> Locator:
    page.open_tab("Script", "脚本")
    script = page.page.locator("#script .script")
    expect(script).to_have_attribute("data-state", re.compile("new|open"))
    return script


def pasted(page: StudioPage, content: str = PLAY) -> Locator:
    script = open_script(page)
    script.locator("[data-part=content]").fill(content)
    script.locator("[data-part=make]").click()
    expect(script).to_have_attribute("data-state", "open")
    return script


def generated(script: Locator, lines: int = 3) -> None:
    script.get_by_role("button", name="Generate all").click()
    expect(script.locator("[data-part=said]")).to_contain_text(f"{lines} of {lines} lines made")
    expect(script).to_have_attribute("data-status", "idle")


def line(script: Locator, number: int) -> Locator:
    return script.locator(".script-line").nth(number - 1)


def exported(page: StudioPage, script: Locator, what: str) -> bytes:
    with page.page.expect_download() as download:
        script.locator("[data-part=files]").get_by_role("link", name=what, exact=True).click()
    return Path(download.value.path()).read_bytes()


def test_script_pasted_play_is_generated_and_exported(open_on_fakes: OpenPage) -> None:
    page = open_on_fakes()
    script = open_script(page)
    expect(script.locator(".script-new")).to_contain_text("Paste a play, a table or subtitles")
    pasted(page)
    expect(script.locator(".script-line textarea")).to_have_count(3)
    expect(line(script, 2).get_by_label("Text, line 2")).to_have_value("Four five.")
    expect(line(script, 2).get_by_label("Pause after, line 2")).to_have_value("1")
    expect(line(script, 2).get_by_label("Voice, line 2").locator("option:checked")).to_have_text("Bob")
    generated(script)
    whole, rate_hz = soundfile.read(io.BytesIO(exported(page, script, "WAV")))
    assert rate_hz == 24000 and len(whole) == 960 * 5 * (3 + 2 + 1) + round(1.3 * 24000)
    srt = exported(page, script, "SRT").decode()
    assert re.findall(r"\w+: .*", srt) == ["Ada: One two three.\r", "Bob: Four five.\r", "Ada: Six.\r"]
    with zipfile.ZipFile(io.BytesIO(exported(page, script, "ZIP"))) as archive:
        assert {"whole.wav", "whole.vtt", "lines/003_Ada.wav", "stems/02_Bob.wav"} <= set(archive.namelist())
    expect(line(script, 3).locator(".line-status")).to_have_text(re.compile(r"Made · 2\.3–2\.5 s"))


def test_script_one_line_is_rolled_again_and_the_first_take_can_be_kept(open_on_fakes: OpenPage) -> None:
    page = open_on_fakes()
    script = pasted(page)
    generated(script)
    takes = line(script, 2).get_by_label("Take, line 2")
    expect(takes).to_be_hidden()
    line(script, 2).get_by_role("button", name="Again").click()
    expect(takes.locator("option")).to_have_count(2)
    expect(takes.locator("option:checked")).to_contain_text("Take 2")
    takes.select_option(index=0)
    expect(takes.locator("option:checked")).to_contain_text("Take 1")
    expect(line(script, 1).get_by_label("Take, line 1").locator("option")).to_have_count(1)


def test_failed_line_tells_why_and_the_others_are_made(open_on_fakes: OpenPage, fakes: Service) -> None:
    page = open_on_fakes()
    script = pasted(page, "text,voice\ngood,Ada\nwho,Nobody\nbad luck,Bob\n")
    expect(line(script, 2).get_by_role("alert")).to_contain_text("no voice named")
    fakes.lm.enqueue(Say(20), Finish())
    fakes.lm.enqueue(Raise(SpeechLMError("speech.lm_failed", reason="scripted")))
    with fakes.in_one_thread():  # else either line may be the first to be spoken
        script.get_by_role("button", name="Generate all").click()
        expect(script.locator("[data-part=said]")).to_contain_text("2 failed, see the lines")
    expect(line(script, 3).get_by_role("alert")).to_contain_text("scripted")
    line(script, 2).get_by_label("Voice, line 2").select_option(label="Bob")
    expect(line(script, 2).get_by_role("alert")).to_be_hidden()
    generated(script)


def test_script_goes_on_while_the_page_is_away_and_is_found_again(open_on_fakes: OpenPage, fakes: Service) -> None:
    page = open_on_fakes()
    go = asyncio.Event()
    for _ in range(3):
        fakes.lm.enqueue(WaitFor(go), Say(20), Finish())
    script = pasted(page)
    script.get_by_role("button", name="Generate all").click()
    expect(script.locator(".script-line[data-status=running]")).to_have_count(3)
    page.page.reload()
    fakes.in_loop(go.set)
    script = open_script(page)
    expect(script.locator("[data-part=said]")).to_contain_text("3 of 3 lines made")


def test_script_lines_are_edited_without_losing_what_is_typed(open_on_fakes: OpenPage, fakes: Service) -> None:
    page = open_on_fakes()
    go = asyncio.Event()
    fakes.lm.enqueue(WaitFor(go), Say(20), Finish())
    script = pasted(page)
    script.get_by_role("button", name="Generate all").click()
    text = line(script, 3).get_by_label("Text, line 3")
    text.fill("Being typed while the others are made")
    fakes.in_loop(go.set)
    expect(script).to_have_attribute("data-status", "idle")
    expect(text).to_have_value("Being typed while the others are made")
    text.blur()
    expect(line(script, 3)).to_have_attribute("data-status", "new")
    line(script, 1).get_by_role("button", name="Add below").click()
    expect(script.locator(".script-line")).to_have_count(4)
    expect(line(script, 2).get_by_label("Text, line 2")).to_be_focused()
    line(script, 2).get_by_role("button", name="Delete").click()
    expect(script.locator(".script-line")).to_have_count(3)


def test_file_that_is_no_script_is_refused_at_its_place(open_on_fakes: OpenPage) -> None:
    page = open_on_fakes()
    script = open_script(page)
    elf = {"name": "x.csv", "mimeType": "text/csv", "buffer": b"\x7fELF\0\0"}
    script.locator("[data-part=file]").set_input_files(elf)
    expect(script.locator("[data-part=error]")).to_contain_text("not text")
    script.locator("[data-part=make]").click()
    expect(script.locator("[data-part=error]")).to_contain_text("no line to speak")
    rows = {"name": "rows.csv", "mimeType": "text/csv", "buffer": "台词\n你好\n".encode("gb18030")}
    script.locator("[data-part=file]").set_input_files(rows)
    expect(line(script, 1).get_by_label("Text, line 1")).to_have_value("你好")


def test_script_by_keyboard_alone(open_on_fakes: OpenPage) -> None:
    page = open_on_fakes()
    script = open_script(page)
    script.locator("[data-part=content]").focus()
    page.page.keyboard.type("Ada: Hello there.")
    while not script.locator("[data-part=make]").evaluate("e => e === document.activeElement"):
        page.page.keyboard.press("Tab")
    page.page.keyboard.press("Enter")
    expect(script.locator("[data-part=speak]")).to_be_focused()
    page.page.keyboard.press("Enter")
    expect(script.locator("[data-part=said]")).to_contain_text("1 of 1 lines made")


@pytest.mark.parametrize(("locale", "theme"), [("en-US", "light"), ("zh-CN", "dark")])
def test_script_tab_has_no_fault_of_access_and_fits_a_phone(open_on_fakes: OpenPage, locale: str, theme: str) -> None:
    page = open_on_fakes(locale=locale, theme=theme, viewport=PHONE)
    script = open_script(page)
    found = faults(page.page)
    pasted(page, PLAY.replace("Bob", "Nobody at all with a long name"))
    script.locator("[data-part=speak]").click()
    expect(script.locator(".script-line[data-status=done]")).to_have_count(2)
    expect(script).to_have_attribute("data-status", "idle")
    assert page.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    found |= faults(page.page)
    assert found == set()
    assert not re.search(r"script\.[a-z]", script.inner_text())
