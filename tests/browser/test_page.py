"""The page itself: languages, dark, phones, keyboards, readers of screens, and what it says of the engine."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Route, expect

from tests.browser.access import faults
from tests.browser.conftest import PHONE, OpenPage
from tests.browser.studio_page import PROMPTS, StudioPage


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
def test_page_has_no_fault_of_access_of_ours(open_page: OpenPage, theme: str, locale: str) -> None:
    page = open_page(locale=locale, theme=theme)
    found = faults(page.page)
    page.open_clone()
    page.give_clip(PROMPTS / "af_kore_en.flac")
    page.ask("")
    expect(page.error_at("text")).to_be_visible()
    assert (found | faults(page.page)) == set()


def test_chinese_page_is_chinese_throughout(open_page: OpenPage) -> None:
    page = open_page(locale="zh-CN")
    expect(page.page.locator("html")).to_have_attribute("lang", re.compile("zh"))
    expect(page.speak_button).to_have_text("生成")
    expect(page.page.get_by_label("要朗读的文字")).to_be_visible()
    expect(page.engine).to_have_text("引擎就绪")
    assert page.said() == "准备就绪。"
    expect(page.voice).to_have_value(re.compile("晓妮"))
    heard = page.hear("你好，很高兴认识你。")
    assert heard.played_ms == heard.total_ms > 0
    assert page.said() == "完成"
    expect(page.player.locator("[data-part=figures]")).to_contain_text("首音")
    expect(page.player.locator("[data-part=replay]")).to_contain_text("重播")


def test_page_begins_with_a_starter_of_its_language(page: StudioPage) -> None:
    expect(page.voice).to_have_value(re.compile("Clara"))
    expect(page.page.locator("#voice-details")).to_contain_text("Starter voice")
    expect(page.page.locator("#voice-details")).to_contain_text("Apache-2.0")
    expect(page.page.locator("#delete-voice")).to_be_hidden()
    seconds = page.page.wait_for_function("document.querySelector('#voice-sample audio').duration || 0")
    assert 4 < seconds.json_value() < 7


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
def test_nothing_is_wider_than_a_phone(open_page: OpenPage, locale: str) -> None:
    page = open_page(locale=locale, viewport=PHONE, theme="dark")
    assert "dark" in page.page.locator("body").get_attribute("class").split()
    width = "document.documentElement.scrollWidth"
    assert page.page.evaluate(width) <= PHONE["width"]
    page.open_clone()
    page.ask("")
    expect(page.error_at("text")).to_be_visible()
    assert page.page.evaluate(width) <= PHONE["width"]


def test_keyboard_alone_speaks_and_stops(page: StudioPage) -> None:
    page.text.focus()
    page.page.keyboard.type("The keyboard is enough to speak and to stop, at any time. ")
    page.page.keyboard.insert_text("As long as this is spoken there is something to stop. " * 6)
    tab_to(page, "speak")
    page.page.keyboard.press("Enter")
    expect(page.player).to_have_attribute("data-state", re.compile("asking|playing"))
    tab_to(page, "stop")
    page.page.keyboard.press("Enter")
    page.wait("stopped")


def tab_to(page: StudioPage, element_id: str) -> None:
    """Press Tab until an element has the focus; a dozen must do."""
    for _ in range(12):
        page.page.keyboard.press("Tab")
        if page.page.evaluate("document.activeElement.id") == element_id:
            return
    raise AssertionError(f"Tab does not lead to #{element_id}")


def test_plain_http_from_elsewhere_plays_without_a_worklet(open_page: OpenPage) -> None:
    """Such a page has no AudioWorklet; back-to-back buffers play instead."""
    page = open_page()
    page.page.evaluate(
        "Object.defineProperty(BaseAudioContext.prototype, 'audioWorklet', {get: () => undefined})"
    )
    heard = page.hear("It works there too.")
    assert heard.played_ms == heard.total_ms > 0 and heard.first_ms > 0


def test_failed_engine_is_told_with_its_reason(page: StudioPage) -> None:
    failed = {
        "status": "failed", "running": 0, "waiting": 0, "eta_s": 0,
        "workers": [
            {"name": "lm", "stage": "stage.failed", "text": "failed", "fraction": 0, "reason": "out of memory"},
            {"name": "token2wav", "stage": "stage.ready", "text": "ready", "fraction": 1, "reason": ""},
        ],
    }  # fmt: skip

    def answer(route: Route) -> None:
        route.fulfill(status=503, json=failed)

    page.page.route("**/health", answer)
    expect(page.engine).to_have_attribute("data-state", "failed")
    expect(page.engine).to_contain_text("speech model: failed out of memory")
    expect(page.engine.locator("progress")).to_be_hidden()


def test_sound_that_is_there_at_once_plays_without_a_gap(page: StudioPage) -> None:
    """The player alone: nothing but itself could make it run dry."""
    two_seconds = b"\x00\x10\x00\xf0" * 24000
    there = {"body": two_seconds, "headers": {"X-Prebuffer-Ms": "2000"}}  # all of it, however late its second half
    page.page.route("**/v1/jobs/*/audio", lambda route: route.fulfill(**there))
    heard = page.hear("Hello there.")
    assert (heard.underruns, heard.played_ms, heard.total_ms) == (0, 2000, 2000)


def test_full_queue_is_told_in_the_player(page: StudioPage) -> None:
    told = "All places are taken (32 waiting). Try again in about 9 s."

    def answer(route: Route) -> None:
        route.fulfill(status=429, json={"error": {"message": told, "code": "queue_full", "param": None}})

    page.page.route("**/v1/jobs", answer)
    page.ask("Hello there.")
    page.wait("failed")
    assert page.said() == told
