"""A checkpoint in the official layout on the page: each mode that it honours is asked for by hand and is heard.

The weights are random, so it speaks noise; one start of the real engine serves all. Sizes are mini, or the official
ones with OFFICIAL_SIZE=full, which takes 12 GB of memory and some ten minutes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from studio.speech import SOUND_TAGS
from tests.browser.access import faults
from tests.browser.conftest import PHONE, OpenPage, opening
from tests.browser.studio_page import WAIT_MS, StudioPage
from tests.browser.test_admin import enter
from tests.browser.test_speak import bodies, more_options, option
from tests.engine.real import VOICE_FOLDER
from tests.official_layout import write_official
from tests.parity.conftest import FIXTURES
from tests.real_studio import RealStudio

TEXT = "Hi."
PRESET = "中文女"
TOKEN_MS = 40
DURATION = "a => new Promise(is => a.duration ? is(a.duration) : a.onloadedmetadata = () => is(a.duration))"
CLIP = FIXTURES / "signal_16k.wav"
ENGINE = ("--kv-cache-gib", "0.1", "--max-num-seqs", "2", "--max-model-len", "2048", "--log-level", "warning")
FULL = os.environ.get("OFFICIAL_SIZE") == "full"


@pytest.fixture(scope="module")
def official(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealStudio]:
    folder = write_official(tmp_path_factory.mktemp("checkpoint") / "official", "full" if FULL else "small")
    known = ("--model-dir", str(folder), "--models", f"embedded={VOICE_FOLDER}", "--load-models", "false")
    few = ("--flow-steps", "2") if FULL else ()  # ten take a CPU minutes
    studio = RealStudio(tmp_path_factory.mktemp("studio"), *known, *ENGINE, *few)
    try:
        studio.start()
        studio.wait_ready()
        yield studio
    finally:
        studio.stop()


@pytest.fixture
def open_official(chromium: Browser, official: RealStudio) -> Iterator[OpenPage]:
    with opening(chromium, official.url) as open_one:
        yield open_one


def test_official_layout_speaks_on_the_page_in_every_mode_it_honours(open_official: OpenPage) -> None:
    page = open_official()
    sent = bodies(page.page)
    expect(page.page.locator("#speech-tools [data-part=sounds] option")).to_have_count(len(SOUND_TAGS))
    more_options(page)
    offered = option(page, "mode").locator("option").evaluate_all("all => all.map(one => one.value)")
    assert offered == ["", "zero_shot", "cross_lingual", "instruct", "preset"]
    for mode in ("zero_shot", "cross_lingual"):
        option(page, "mode").select_option(mode)
        assert_heard(page)
    option(page, "mode").select_option("instruct")
    option(page, "instructions").fill("Speak slowly.")
    assert_heard(page)
    option(page, "mode").select_option("")
    option(page, "instructions").fill("")
    page.pick(PRESET)
    assert_heard(page)
    asked = [(body.get("mode"), body.get("instructions")) for body in sent]
    expected = [("zero_shot", None), ("cross_lingual", None), ("instruct", "Speak slowly."), (None, None)]
    assert asked == expected and len({body["voice"] for body in sent[:3]}) == 1 != sent[3]["voice"]


def test_official_layout_says_a_clip_in_another_voice_on_the_page(open_official: OpenPage) -> None:
    page = open_official()
    panel = page.page.locator("#convert")
    panel.locator("summary").click()
    panel.get_by_role("button", name="Convert").click()
    expect(panel.get_by_role("alert")).to_contain_text("No clip was sent")
    panel.locator("input[type=file]").set_input_files(CLIP)
    panel.get_by_role("button", name="Convert").click()
    sound = panel.locator("audio")
    expect(sound).to_be_visible(timeout=WAIT_MS)
    expect(panel.get_by_role("alert")).to_be_hidden()
    seconds = sound.evaluate(DURATION)
    assert seconds > 0.5 and round(seconds * 1000) % TOKEN_MS == 0
    expect(panel.get_by_role("link")).to_have_attribute("href", sound.get_attribute("src") or "")


def test_second_model_is_loaded_from_the_admin_tab_picked_on_the_page_and_heard(
    open_official: OpenPage,
) -> None:
    page = open_official()
    expect(option(page, "instructions")).to_be_visible()
    expect(option(page, "model")).to_be_hidden()  # one is no choice
    admin = enter(page)
    row = admin.locator("#admin [data-part=models] tbody tr", has_text="embedded")
    expect(row).to_contain_text("GB free")
    row.get_by_role("button", name="Load embedded", exact=True).click()
    expect(row).to_contain_text("being loaded")
    expect(row.get_by_role("button", name="Unload embedded", exact=True)).to_be_visible(timeout=WAIT_MS)
    expect(admin.locator("#admin [data-part=log] tbody tr").first).to_contain_text("model embedded = loaded")
    shown = admin.locator("#admin [data-part=model]")
    shown.select_option("embedded")
    expect(shown).to_be_visible()
    page.open_tab("Studio")
    option(page, "model").select_option("embedded")
    for part in ("#instructions", "#speech-tools [data-part=sounds]"):  # what this model does not honour
        expect(page.page.locator(part)).to_be_hidden()
    sent = bodies(page.page)
    page.pick("Clara")
    heard = page.hear("I am the other one.")
    assert heard.played_ms == heard.total_ms > 500
    assert [body["model"] for body in sent] == ["embedded"]
    assert faults(page.page) == set()

    phone = open_official(locale="zh-CN", viewport=PHONE)
    expect(phone.page.locator("#model")).to_contain_text("模型")
    assert phone.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    there = enter(phone)
    expect(there.locator("#admin [data-part=models] tbody tr").nth(1)).to_contain_text("已加载")
    assert there.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert faults(phone.page) == set()
    there.locator("#admin").get_by_role("button", name="卸载 embedded").click()
    expect(there.get_by_role("button", name="加载 embedded")).to_be_visible(timeout=WAIT_MS)
    expect(option(page, "model")).to_be_visible()  # this page has not looked since
    page.ask("Are you still there?")
    expect(page.page.locator("#speech-options [data-part=error]")).to_contain_text("is not loaded")


def assert_heard(page: StudioPage) -> None:
    """Sound in whole tokens, heard to its end; what it says is up to random weights."""
    heard = page.hear(TEXT)
    assert heard.played_ms == heard.total_ms >= 2 * TOKEN_MS and heard.total_ms % TOKEN_MS == 0
