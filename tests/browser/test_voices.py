"""The Voices tab on fakes: the library as people keep it, and voices designed in a grid of variants."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.access import faults
from tests.browser.conftest import DESKTOP, PHONE, OpenPage
from tests.browser.studio_page import StudioPage
from tests.fake_studio import FakeStudio

OpenTab = Callable[..., Page]


@pytest.fixture
def open_tab(open_on_fake_studio: OpenPage) -> OpenTab:
    """Opens pages at the Voices tab."""

    def open_one(**how: Any) -> Page:
        page = open_on_fake_studio(**how).page
        page.locator("#tab-library-button").click()
        expect(page.locator("#voices .voices")).to_have_attribute("data-state", "ready")
        return page

    return open_one


@pytest.fixture
def page(open_tab: OpenTab) -> Page:
    return open_tab()


def part(page: Page, name: str, panel: str = "voices") -> Locator:
    return page.locator(f"#{panel} [data-part={name}]")


def field(page: Page, name: str, panel: str = "voices") -> Locator:
    return page.locator(f"#{panel} [data-part=form] [name={name}]")


def pick(page: Page, name: str) -> None:
    page.locator("#voices .voice-pick").filter(has_text=name).first.click()
    expect(part(page, "title")).to_have_text(name)


def add(page: Page, fake_studio: FakeStudio, name: str) -> None:
    """One more voice, by somebody else: a design of Ada alone. The page sees it when it is looked at again."""
    body = {"voices": [{"voice": "Ada"}], "name": name, "consent": "agreed", "defaults": {"seed": 3}}
    assert httpx.post(f"{fake_studio.url}/v1/audio/voice-designs", json=body).status_code == 200
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def named(page: Page) -> Locator:
    return page.locator("#voices [data-part=list] .voice-name")


def test_voice_is_edited_found_and_kept_through_a_restart_and_in_two_tabs(
    open_tab: OpenTab, page: Page, fake_studio: FakeStudio
) -> None:
    add(page, fake_studio, "Edith")
    other = open_tab(beside=page)
    pick(page, "Edith")
    field(page, "name").fill("Edith P.")
    field(page, "tags").fill("warm, audiobook")
    field(page, "notes").fill("for the book")
    field(page, "pitch").fill("-1.5")
    part(page, "save").click()
    expect(part(page, "told")).to_have_text('"Edith P." is saved.')
    expect(named(other).filter(has_text="Edith P.")).to_be_visible()  # the other tab, unasked
    part(other, "query").fill("BOOK edith")
    expect(named(other)).to_have_text(["Edith P."])
    part(other, "query").fill("")
    other.locator("#voices [data-part=tags]").get_by_text("warm").click()
    expect(named(other)).to_have_text(["Edith P."])
    fake_studio.kill()
    fake_studio.start()
    again = open_tab()
    pick(again, "Edith P.")
    expect(field(again, "notes")).to_have_value("for the book")
    expect(field(again, "pitch")).to_have_value("-1.5")
    part(again, "try").click()
    expect(part(again, "tried")).to_be_visible()
    part(again, "use").click()
    expect(StudioPage(again).voice).to_have_value("Edith P.")


def test_bad_edit_is_told_at_its_field_and_nothing_typed_is_lost(page: Page, fake_studio: FakeStudio) -> None:
    add(page, fake_studio, "Frank")
    pick(page, "Frank")
    field(page, "name").fill("Ada")
    field(page, "notes").fill("my notes")
    part(page, "save").click()
    expect(page.locator("#voices [data-error=name]")).to_contain_text('A voice named "Ada" exists')
    expect(field(page, "name")).to_be_focused()
    expect(field(page, "notes")).to_have_value("my notes")


def test_voice_keeps_the_language_of_its_texts(page: Page, fake_studio: FakeStudio) -> None:
    add(page, fake_studio, "Tessa")
    pick(page, "Tessa")
    language = page.get_by_label("Language of its texts")
    expect(language.locator("option")).to_have_count(5)
    language.select_option("ja")
    part(page, "save").click()
    expect(part(page, "told")).to_contain_text("is saved")
    with page.expect_request("**/v1/audio/speech") as asked:
        part(page, "try").click()
    assert (asked.value.post_data_json["language"], asked.value.post_data_json["keep_take"]) == ("ja", False)
    pick(page, "Ada")
    expect(language).to_have_value("")
    pick(page, "Tessa")
    expect(language).to_have_value("ja")
    language.select_option("")
    part(page, "save").click()
    expect(part(page, "save")).to_be_disabled()
    (found,) = [v for v in httpx.get(f"{fake_studio.url}/v1/audio/voices").json()["data"] if v["name"] == "Tessa"]
    assert found["defaults"] == {"seed": 3}


def test_deleted_voice_comes_back_by_undo_or_from_the_bin(page: Page, fake_studio: FakeStudio) -> None:
    add(page, fake_studio, "Gina")
    pick(page, "Gina")
    part(page, "delete").click()
    expect(part(page, "undo")).to_be_focused()
    expect(named(page).filter(has_text="Gina")).to_have_count(0)
    page.keyboard.press("Enter")
    expect(part(page, "told")).to_have_text('"Gina" is back.')
    pick(page, "Gina")
    part(page, "delete").click()
    part(page, "bin-title").click()
    part(page, "binned").get_by_role("button", name="Restore").first.click()
    expect(named(page).filter(has_text="Gina")).to_be_visible()


def test_voice_leaves_as_a_file_and_comes_back_with_consent(page: Page, fake_studio: FakeStudio) -> None:
    add(page, fake_studio, "Hal")
    pick(page, "Hal")
    with page.expect_download() as download:
        part(page, "export").click()
    assert download.value.suggested_filename == "Hal.zip"
    httpx.delete(f"{fake_studio.url}/v1/audio/voices/Hal?forever=true")
    part(page, "file").set_input_files(
        {"name": "Hal.zip", "mimeType": "application/zip", "buffer": download.value.path().read_bytes()}
    )
    taking = part(page, "taking").get_by_role("button", name="Import")
    taking.click()
    expect(part(page, "told")).to_contain_text("Confirm that the speaker agrees")
    part(page, "taking-consent").check()
    taking.click()
    expect(part(page, "told")).to_have_text("Taken in: Hal.")
    expect(named(page).filter(has_text="Hal")).to_be_visible()


def test_file_that_is_no_bundle_is_refused_in_plain_words(page: Page) -> None:
    part(page, "file").set_input_files({"name": "x.zip", "mimeType": "application/zip", "buffer": b"x"})
    part(page, "taking-consent").check()
    part(page, "taking").get_by_role("button", name="Import").click()
    expect(part(page, "told")).to_contain_text("not a zip file that can be read")


def test_lists_that_are_empty_say_what_to_do(page: Page) -> None:
    expect(part(page, "unpicked")).to_contain_text("Pick a voice to hear its clip")
    part(page, "query").fill("nobody is called that")
    expect(part(page, "empty")).to_contain_text("Search for fewer words")
    page.locator("#tab-design-button").click()
    expect(part(page, "empty", "design")).to_contain_text("Variants appear here")


class HeldSpeech:
    """Speech requests that wait for one another: none is answered before so many are asked; one fails."""

    def __init__(self, count: int) -> None:
        self.waiting: list[Route] = []
        self._count = count

    def __call__(self, route: Route) -> None:
        self.waiting.append(route)
        if len(self.waiting) == self._count:
            failed, *others = self.waiting
            failed.fulfill(status=500, json={"error": {"message": "The model gave no speech.", "param": None}})
            for other in others:
                other.continue_()


def test_variants_are_made_in_parallel_to_pick_refine_and_keep(page: Page, fake_studio: FakeStudio) -> None:
    add(page, fake_studio, "Third")  # the newest, so that neither row begins with the voice that the other is to have
    page.locator("#tab-design-button").click()
    expect(page.locator("#design .design")).to_have_attribute("data-state", "ready")
    selects = page.locator("#design [data-part=rows] select")
    for number, name in enumerate(("Ada", "Bob")):
        selects.nth(number).select_option(label=name)
    weights = page.locator("#design [data-part=rows] input[type=range]")
    weights.nth(0).fill("25")
    expect(page.locator("#design [data-part=rows] output")).to_have_text(["33 %", "67 %"])
    weights.nth(1).fill("75")
    page.locator("#design [data-part=rows] input[type=radio]").nth(1).check()
    field(page, "speed", "design").fill("0.9")
    field(page, "sentence", "design").fill("One sentence for all.")
    held = HeldSpeech(7)
    page.route("**/v1/audio/speech", held)
    part(page, "make", "design").click()
    expect(part(page, "told", "design")).to_have_text("6 of 7 variants are made.")
    assert len({route.request.post_data_json["seed"] for route in held.waiting}) == 1
    page.unroute("**/v1/audio/speech")
    cards = page.locator("#design article")
    expect(cards.get_by_role("heading")).to_have_text(
        ["As set", "More Ada", "More Bob", "Higher", "Lower", "Faster", "Slower"]
    )
    failed = page.locator("#design article[data-state=failed]")
    expect(failed).to_contain_text("The model gave no speech.")
    failed.get_by_role("button", name="Again").click()
    expect(page.locator("#design article[data-state=made]")).to_have_count(7)
    cards.filter(has_text="More Ada").get_by_role("button", name="Refine").click()
    expect(weights.nth(0)).to_have_value("50")  # 25 x 0.7 + 30 = 47.5, in steps of 5
    lower = cards.filter(has=page.get_by_role("heading", name="Lower", exact=True))
    lower.get_by_role("button", name="Keep").click()
    form = lower.locator("form")
    form.get_by_label("Name").fill("Dawn")
    form.get_by_role("button", name="Keep").click()
    expect(form).to_contain_text("Confirm that the speaker agrees")
    form.get_by_label("All of its speakers agree").check()
    form.get_by_role("button", name="Keep").click()
    expect(page.locator("#design article[data-state=kept]")).to_contain_text('Saved as "Dawn"')
    kept = httpx.get(f"{fake_studio.url}/v1/audio/voices/Dawn").json()
    assert kept["blend"] == [{"name": "Ada", "weight": 0.25}, {"name": "Bob", "weight": 0.75}]
    assert kept["defaults"] == {"pitch": -1.5, "speed": 0.9}
    page.locator("#design article[data-state=kept]").get_by_role("button", name="Use in the Studio").click()
    expect(StudioPage(page).voice).to_have_value("Dawn")


def test_design_that_cannot_be_made_is_told_at_its_field(page: Page) -> None:
    page.locator("#tab-design-button").click()
    expect(page.locator("#design .design")).to_have_attribute("data-state", "ready")
    field(page, "sentence", "design").fill("")
    part(page, "make", "design").click()
    expect(page.locator("#design [data-error=input]")).to_contain_text("There is no text to speak")
    field(page, "sentence", "design").fill("Hello.")
    for weight in page.locator("#design [data-part=rows] input[type=range]").all():
        weight.fill("0")
    part(page, "make", "design").click()
    expect(page.locator("#design [data-error=voices]")).to_contain_text("one of them is above 0")


@pytest.mark.parametrize(("theme", "locale", "viewport"), [("light", "en-US", DESKTOP), ("dark", "zh-CN", PHONE)])
def test_voices_tab_has_no_fault_of_access_and_fits_a_phone(
    open_tab: OpenTab, theme: str, locale: str, viewport: dict[str, int]
) -> None:
    page = open_tab(theme=theme, locale=locale, viewport=viewport)
    page.locator("#voices .voice-pick").first.click()
    found = faults(page)
    page.locator("#tab-design-button").click()
    expect(page.locator("#design .design")).to_have_attribute("data-state", "ready")
    part(page, "make", "design").click()
    expect(page.locator("#design article[data-state=made]")).to_have_count(7)
    assert (found | faults(page)) == set()
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    if locale == "zh-CN":
        expect(part(page, "told", "design")).to_have_text(re.compile("版本中已生成"))
