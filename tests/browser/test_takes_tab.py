"""The Takes tab in Chromium on the scripted engine: history, compare, exact replay, settings in files."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urljoin

import pytest
from playwright.sync_api import Locator, expect

from studio.backends.fake import Finish, Say
from tests.api.conftest import Service, clip_bytes, clip_samples
from tests.browser.access import faults
from tests.browser.conftest import PHONE, OpenPage
from tests.browser.studio_page import StudioPage
from tests.browser.test_speak import bodies, option


def open_takes(page: StudioPage) -> Locator:
    page.open_tab("Takes", "录音")
    takes = page.page.locator("#takes .takes")
    expect(takes).to_have_attribute("data-state", re.compile("ready|empty"))
    return takes


def spoken(page: StudioPage, *texts: str, voice: str = "Ada", **more: object) -> None:
    """Takes of this page's person, made by the API so that nothing has to be listened to."""
    for text in texts:
        body = {"input": text, "voice": voice, "response_format": "pcm", **more}
        made = page.page.request.post(urljoin(page.page.url, "/v1/audio/speech"), data=body)
        assert made.ok, made.text()


def speaks_for_a_minute(service: Service, times: int) -> None:
    """The next so many requests, whatever their texts: no look from outside is too late for what they do."""
    for _ in range(times):
        service.lm.enqueue(Say(1500), Finish())


def take(takes: Locator, text: str | re.Pattern[str]) -> Locator:
    return takes.locator(".take").filter(has=takes.page.locator(".take-text", has_text=text))


def test_takes_history_is_searched_starred_and_deleted(open_on_fakes: OpenPage) -> None:
    page = open_on_fakes()
    takes = open_takes(page)
    expect(takes).to_have_attribute("data-state", "empty")
    expect(takes.locator(".takes-empty")).to_contain_text("compare takes at the same loudness")
    page.page.get_by_role("tab", name="Studio").click()
    spoken(page, "The old lighthouse")
    page.hear("Good morning")
    takes = open_takes(page)
    expect(takes.locator(".take-text")).to_have_text(["Good morning", "The old lighthouse"])
    expect(takes.locator(".takes-usage")).to_contain_text(re.compile(r"Takes of yours: 2, 0\.\d MB.*of 2000 MB"))
    star = take(takes, "lighthouse").get_by_role("button", name="Star")
    over = {"status": 400, "json": {"error": {"message": "enough stars"}}}
    page.page.route("**/star", lambda route: route.fulfill(**over))
    star.click()
    expect(takes.locator(".takes-said")).to_have_text("enough stars")
    expect(star).to_have_attribute("aria-pressed", "false")
    page.page.unroute_all()
    star.click()
    expect(star).to_have_attribute("aria-pressed", "true")
    expect(takes.locator(".takes-usage")).to_contain_text(re.compile(r"0\.\d of at most 1000 MB with a star"))
    takes.get_by_label("With a star").check()
    expect(takes.locator(".take-text")).to_have_text(["The old lighthouse"])
    takes.get_by_label("With a star").uncheck()
    takes.get_by_label("Search text or voice").fill("MORN")
    expect(takes.locator(".take-text")).to_have_text(["Good morning"])
    page.page.on("dialog", lambda dialog: dialog.accept())
    take(takes, "morning").get_by_role("button", name="Delete").click()
    expect(takes.locator(".takes-said")).to_have_text("No take has these words.")
    takes.get_by_label("Search text or voice").fill("")
    expect(takes.locator(".take-text")).to_have_text(["The old lighthouse"])


def test_take_of_a_voice_without_a_name_says_that_it_is_that_of_a_clip(open_on_fakes: OpenPage, fakes: Service) -> None:
    page, drafts = open_on_fakes(), []
    fakes.in_loop(lambda: drafts.append(fakes.store.add(clip_samples(3.0), 24_000, "good day")))
    spoken(page, "Who am I", voice=drafts[0].id)
    spoken(page, "I am Ada")
    takes = open_takes(page)
    expect(take(takes, "Who am I").locator(".take-about")).to_contain_text(" · Voice of a clip · ")
    expect(take(takes, "I am Ada").locator(".take-about")).to_contain_text(" · Ada · ")
    for text in ("Who", "Ada"):
        take(takes, text).get_by_label("Compare").check()
    expect(takes.locator(".compare-choice")).to_contain_text(["A Voice of a clip · Who am I", "B Ada · I am Ada"])


def test_nobody_sees_the_takes_of_another(open_on_fakes: OpenPage) -> None:
    one, other = open_on_fakes(), open_on_fakes()
    spoken(one, "Only mine")
    expect(open_takes(one).locator(".take-text")).to_have_text(["Only mine"])
    expect(open_takes(other)).to_have_attribute("data-state", "empty")


def test_takes_are_compared_side_by_side_equally_loud_and_switching_keeps_the_place(
    open_on_fakes: OpenPage, fakes: Service
) -> None:
    page = open_on_fakes()
    speaks_for_a_minute(fakes, 2)
    spoken(page, "one")
    spoken(page, "two", voice="Bob")
    takes = open_takes(page)
    for box in takes.get_by_label("Compare").all():
        box.check()
    panel = takes.locator(".compare")
    expect(panel).to_be_visible()
    panel.get_by_role("button", name="Play").click()
    expect(panel).to_have_attribute("data-playing", "true")
    page.page.wait_for_function("document.querySelector('.compare').dataset.position > 0.5 && window.tap.peak() > 0.1")
    before = float(panel.get_attribute("data-position") or 0)
    panel.press("2")
    expect(panel).to_have_attribute("data-heard", "B")
    expect(panel.locator(".compare-choice").nth(1)).to_have_attribute("aria-pressed", "true")
    page.page.wait_for_function(f"document.querySelector('.compare').dataset.position > {before}")
    gains = "([a, b]) => import(new URL('web/compare.js', location.href)).then((m) => m.gainsDb([a, b]))"
    quiet, loud = {"lufs": -30, "peak_dbfs": -10}, {"lufs": -20, "peak_dbfs": -5}
    lifted, lowered = page.page.evaluate(gains, [quiet, loud])
    assert quiet["lufs"] + lifted == loud["lufs"] + lowered and quiet["peak_dbfs"] + lifted <= -1
    panel.get_by_role("button", name="Pause").click()
    expect(panel).to_have_attribute("data-playing", "false")
    page.page.wait_for_function("window.tap.peak() === 0")


def test_comparison_lets_a_paused_player_be_and_tells_what_does_not_come(
    open_on_fakes: OpenPage, fakes: Service
) -> None:
    page = open_on_fakes()
    option(page, "quality").select_option("balanced")  # best would judge the length, which is not that of the words
    speaks_for_a_minute(fakes, 3)
    spoken(page, "one")
    page.ask("two")
    page.wait("playing")
    page.player.locator("[data-part=pause]").click()
    page.wait("paused")
    spoken(page, "three")
    takes = open_takes(page)
    before = page.heard().played_ms
    for box in takes.get_by_label("Compare").all()[:2]:
        box.check()
    panel = takes.locator(".compare")
    gone = {"status": 404, "json": {"error": {"message": "gone"}}}
    page.page.route("**/v1/audio/takes/*/audio", lambda route: route.fulfill(**gone))
    panel.get_by_role("button", name="Play").click()
    expect(takes.locator(".takes-said")).to_have_text("gone")
    page.page.unroute_all()
    panel.get_by_role("button", name="Play").click()
    page.page.wait_for_function("document.querySelector('.compare').dataset.position > 0.5 && window.tap.peak() > 0.1")
    assert (page.state(), page.heard().played_ms) == ("paused", before)


def test_take_is_voiced_again_exactly_from_its_tokens(open_on_fakes: OpenPage, fakes: Service) -> None:
    page = open_on_fakes()
    spoken(page, "one two three four")
    takes, asked = open_takes(page), len(fakes.lm.prompts)
    take(takes, "one two").get_by_role("button", name="Voice again").click()
    expect(takes.locator(".takes-said")).to_have_text("Voiced again from its tokens: the same in every sample.")
    assert len(fakes.lm.prompts) == asked


@pytest.mark.parametrize("form", ["wav", "json"])
def test_file_with_settings_that_is_dropped_on_the_page_restores_the_form(
    open_on_fakes: OpenPage, tmp_path: Path, form: str
) -> None:
    page = open_on_fakes()
    spoken(page, "“Remember me”, 你好", voice="Bob", seed=4711, speed=0.83, pitch=-1.25)
    takes = open_takes(page)
    takes.locator(".take-files summary").click()
    with page.page.expect_download() as download:
        takes.get_by_role("link", name=form).click()
    assert download.value.suggested_filename.startswith("Bob_")
    file = tmp_path / f"x.{form}"
    download.value.save_as(file)
    drop(page, file)
    expect(page.text).to_have_value("“Remember me”, 你好")
    expect(page.voice).to_have_value(re.compile("Bob"))
    page.page.locator("#advanced").get_by_role("button").first.click()
    expect(page.page.locator("#seed input")).to_have_value("4711")
    expect(page.page.locator("#restore .restore")).to_have_text("The form has the settings of this take again.")
    expect(page.page.locator("#pitch output")).to_have_text("-1.25 semitones")
    expect(page.page.locator("#speed output")).to_have_text("0.83×")
    sent = bodies(page.page)
    page.speak_button.click()
    page.wait("done")
    assert (sent[0]["pitch"], sent[0]["speed"], sent[0]["seed"]) == (-1.25, 0.83, 4711)


def test_file_without_settings_says_which_files_have_them(open_on_fakes: OpenPage, tmp_path: Path) -> None:
    page = open_on_fakes()
    page.text.fill("Stay here")
    (tmp_path / "x.wav").write_bytes(b"RIFF....WAVE")
    drop(page, tmp_path / "x.wav")
    expect(page.page.locator("#restore .restore[role=alert]")).to_contain_text("wav, flac, opus or mp3")
    expect(page.text).to_have_value("Stay here")


def test_settings_of_a_take_come_back_into_the_form(open_on_fakes: OpenPage, fakes: Service) -> None:
    page = open_on_fakes()
    spoken(page, "Use me again", voice="Bob", language="zh", quality="best", seed=11, pitch=2, speed=1.5)
    page.text.fill("Something else")
    page.page.locator("#pitch input").fill("-3")
    page.pick("Ada")
    takes = open_takes(page)
    take(takes, "Use me").get_by_role("button", name="Use settings").click()
    expect(page.text).to_have_value("Use me again")
    expect(page.text).to_be_visible()
    expect(page.voice).to_have_value(re.compile("Bob"))
    expect(page.page.locator("#pitch output")).to_have_text("+2 semitones")
    expect(page.page.locator("#speed output")).to_have_text("1.50×")
    for name, value in {"language": "zh", "quality": "best", "seed": "11"}.items():
        expect(page.page.locator(f"#speech-options [name={name}]")).to_have_value(value)


def test_converted_clip_is_in_the_history_and_leaves_the_form_as_it_is(open_on_fakes: OpenPage) -> None:
    page = open_on_fakes()
    clip = {"name": "clip.wav", "mimeType": "audio/wav", "buffer": clip_bytes(3.0)}
    url = urljoin(page.page.url, "/v1/audio/conversions")
    assert page.page.request.post(url, multipart={"voice": "Bob", "audio_sample": clip}).ok
    page.text.fill("Stay here")
    takes = open_takes(page)
    converted = take(takes, "A clip in another voice")
    converted.get_by_role("button", name="Voice again").click()
    expect(takes.locator(".takes-said")).to_have_text("Voiced again from its tokens: the same in every sample.")
    converted.get_by_role("button", name="Use settings").click()
    told = page.page.locator("#restore .restore[role=alert]")
    expect(told).to_contain_text("It has no text, so the form stays as it is.")
    expect(page.text).to_have_value("Stay here")


@pytest.mark.parametrize(("locale", "theme"), [("en-US", "light"), ("zh-CN", "dark")])
def test_takes_tab_has_no_fault_of_access_and_fits_a_phone(open_on_fakes: OpenPage, locale: str, theme: str) -> None:
    page = open_on_fakes(locale=locale, theme=theme, viewport=PHONE)
    spoken(page, "a b c d e", "f g h i")
    takes = open_takes(page)
    boxes = takes.locator(".take input[type=checkbox]")
    boxes.nth(0).check()
    boxes.nth(1).check()
    takes.locator(".take-files summary").first.click()
    expect(takes.locator(".compare")).to_be_visible()
    assert page.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert faults(page.page) == set()
    assert not re.search(r"takes\.[a-z]", takes.inner_text())


def drop(page: StudioPage, file: Path) -> None:
    """Drop a file on the page's title."""
    page.page.wait_for_selector("#restore [data-ready]", state="attached")
    page.drop(file, page.page.locator("#title"))
