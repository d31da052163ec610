"""Raters in real browsers, on a studio of fakes that a test may kill: every kind from link to the last answer."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from studio.listening.answers import Kind
from tests.browser.access import faults
from tests.browser.conftest import DESKTOP, PHONE, context_of, opening_raters
from tests.browser.rater_page import PITCHES, OpenRater, answers_of, begin, hear_all, is_draft
from tests.browser.studio_page import StudioPage
from tests.fake_studio import FakeStudio
from tests.simulated_rater import Owner, SimulatedRater, higher_is_better, tone


@pytest.fixture
def owner(fake_studio: FakeStudio) -> Owner:
    return Owner(fake_studio.url)


@pytest.fixture
def open_owner_of(chromium: Browser) -> Iterator[Callable[[FakeStudio], Page]]:
    """Opens the owner's tab of a studio."""
    context = context_of(chromium, locale="en-US", viewport=DESKTOP)

    def open_one(studio: FakeStudio) -> Page:
        page = context.new_page()
        page.goto(studio.url)
        StudioPage(page).open_tab("Listening tests")
        expect(page.locator(".listening")).to_have_attribute("data-state", "empty")
        return page

    yield open_one
    context.close()


@pytest.fixture
def open_rater(chromium: Browser, fake_studio: FakeStudio) -> Iterator[OpenRater]:
    """Opens raters' pages on that studio."""
    with opening_raters(chromium, fake_studio.url) as open_one:
        yield open_one


def number_of(page: Page) -> str:
    return page.locator("[data-part=progress]").inner_text()


def go_on(page: Page) -> None:
    before = number_of(page)
    expect(page.locator("[data-part=next]")).to_be_enabled()
    page.locator("[data-part=next]").click()
    expect(page.locator("[data-part=progress]")).not_to_have_text(before)


def set_mos(page: Page) -> None:
    page.locator("[data-part=score4] input").check()


def set_sliders(page: Page) -> None:
    for n, slider in enumerate(page.locator("input[type=range]").all()):
        slider.fill(str(30 + 10 * n))


SETTERS: dict[Kind, Callable[[Page], None]] = {
    Kind.MOS: set_mos,
    Kind.CMOS: lambda page: page.locator("[data-part=score-2] input").check(),
    Kind.AB: lambda page: page.locator("[data-part=score1] input").check(),
    Kind.ABX: lambda page: page.locator("[data-part=score0] input").check(),
    Kind.MUSHRA: set_sliders,
    Kind.MUSHRA_NMR: set_sliders,
    Kind.SIMILARITY: lambda page: page.locator("[data-part=score3] input").check(),
    Kind.INTELLIGIBILITY: lambda page: page.locator("[data-part=typed]").fill("good morning"),
}
DESIGNS = {
    Kind.MUSHRA: {"reference": "high tone"},
    Kind.SIMILARITY: {"reference": "high tone"},
    Kind.INTELLIGIBILITY: {"texts": ["good morning"]},
}


def design_in_browser(page: Page, kind: Kind, folder: Path) -> str:
    """Fill the form, upload two conditions, open the test and make a link; gives the link's token."""
    page.locator("[data-part=new]").click()
    page.locator("[data-field=title]").fill(f"Tones {kind}")
    page.locator("[data-field=kind]").select_option(kind.value)
    for row, name in zip(page.locator(".condition").all(), PITCHES, strict=True):
        row.locator("[data-part=name]").fill(name)
        row.locator("select").first.select_option("upload")
    if "reference" in DESIGNS.get(kind, {}):
        page.locator("[data-field=reference]").select_option("high tone")
    page.locator("[data-field=texts]").fill("good morning")
    page.get_by_text("Raters, checks and texts").click()
    page.locator("[data-field=headphones]").select_option("off")
    page.locator("[data-part=keep]").click()
    for name, hertz in PITCHES.items():
        file = folder / name / "s01.wav"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(tone(hertz))
        page.locator(f"[data-upload='{name}']").set_input_files(file)
        expect(page.locator("tbody tr", has_text=name)).to_contain_text("s01")
    page.locator("[data-part=open]").click()
    expect(page.locator("h2 .badge")).to_have_attribute("data-state", "open")
    page.locator("[data-part=invite]").click()
    token = page.locator("[data-link]").first.get_attribute("data-link")
    page.locator("[data-part=back]").click()
    assert token
    return token


def until_answered(page: Page, kind: Kind) -> None:
    """Hear everything and set the answer of the trial that is shown; it is not sent off."""
    expect(page.locator("[data-part=next]")).to_be_disabled()
    hear_all(page)
    SETTERS[kind](page)
    expect(page.locator("[data-part=next]")).to_be_enabled()


def test_each_kind_from_design_to_report_with_several_raters_of_whom_one_lives_through_a_kill_9(
    owner: Owner,
    open_owner_of: Callable[[FakeStudio], Page],
    open_rater: OpenRater,
    fake_studio: FakeStudio,
    tmp_path: Path,
) -> None:
    desk = open_owner_of(fake_studio)
    tokens = {kind: design_in_browser(desk, kind, tmp_path) for kind in Kind}
    with ThreadPoolExecutor() as crowd:
        twice = [token for token in tokens.values() for _ in range(2)]
        others = [SimulatedRater(fake_studio.url, token, time.sleep, higher_is_better) for token in twice]
        assert {view["phase"] for view in crowd.map(SimulatedRater.finish, others)} == {"finished"}
    pages = {kind: open_rater(token) for kind, token in tokens.items()}
    for kind, page in pages.items():
        begin(page)
        until_answered(page, kind)
    fake_studio.kill()
    for page in pages.values():
        page.locator("[data-part=next]").click()
        expect(page.locator("[data-part=connection]")).to_be_visible()
    fake_studio.start()
    for kind, page in pages.items():
        expect(page.locator("[data-part=connection]")).to_be_hidden()
        if kind is Kind.MOS:  # the line is there before what came over it is shown
            expect(page.locator("[data-part=progress]")).to_have_text("2 of 2")
        while kind is Kind.MOS and page.locator("body").get_attribute("data-phase") == "trial":
            until_answered(page, kind)
            go_on(page)
        expect(page.locator("body")).to_have_attribute("data-phase", "finished")
    tests = {test["design"]["kind"]: test for test in desk_tests(desk)}
    for kind in Kind:
        test = tests[kind.value]
        assert test["counts"] == {"joined": 3, "finished": 3, "answers": 3 * ROWS.get(kind, 1), "timeouts": 0}
        desk.goto(f"{fake_studio.url}/v1/listening/tests/{test['id']}/report?language=en")
        expect(desk.locator("h1")).to_contain_text(f"Tones {kind}")
        expect(desk.locator("body")).to_contain_text("3 raters")


ROWS = {Kind.MOS: 2, Kind.MUSHRA: 4, Kind.MUSHRA_NMR: 2}
"""Answers of one rater: two clips of MOS, the sliders of MUSHRA with its anchors."""


def desk_tests(page: Page) -> list[dict[str, Any]]:
    """The owner's tests, as the tab gets them."""
    return page.evaluate("fetch('/v1/listening/tests').then(r => r.json()).then(r => r.data)")


def test_reload_after_kill_9_finds_the_half_set_answer(
    owner: Owner, open_rater: OpenRater, fake_studio: FakeStudio
) -> None:
    test, token = owner.opened(PITCHES, items=2, kind="mushra_nmr")
    page = open_rater(token)
    begin(page)
    hear_all(page)
    with page.expect_response(lambda reply: is_draft(reply, 1, 41)):
        page.locator("#slider-1").fill("41")
    fake_studio.kill()
    fake_studio.start()
    page.reload()
    expect(page.locator("#slider-1")).to_have_value("41")
    expect(page.locator("#slider-1")).to_have_attribute("data-set", "true")
    expect(page.locator("#slider-0")).to_have_attribute("data-set", "false")
    for button in page.locator("button.sound").all():
        expect(button).to_have_attribute("data-heard", "true")
    page.locator("#slider-0").fill("12")
    go_on(page)
    assert sorted(a.score for a in answers_of(owner, test)) == [12, 41]


def test_a_whole_test_is_done_with_the_keyboard_alone(owner: Owner, open_rater: OpenRater) -> None:
    test, token = owner.opened(PITCHES, items=1, kind="abx")
    page = open_rater(token)
    page.locator("[data-part=begin]").focus()
    page.keyboard.press("Enter")
    expect(page.locator("[data-part=play-0]")).to_be_enabled()
    for key, place in (("a", 0), ("b", 1), ("x", 2)):
        page.keyboard.press(key)
        button = page.locator(f"[data-part=play-{place}]")
        expect(button).to_have_attribute("aria-pressed", "true")
        expect(button).to_have_attribute("data-heard", "true")
    page.keyboard.press("2")
    expect(page.locator("[data-part=score1] input")).to_be_checked()
    expect(page.locator("[data-part=next]")).to_be_enabled()
    page.keyboard.press("Enter")
    expect(page.locator("body")).to_have_attribute("data-phase", "finished")
    assert len(answers_of(owner, test)) == 1


def test_the_page_speaks_chinese_and_changes_language_without_losing_what_was_set(
    owner: Owner, open_rater: OpenRater
) -> None:
    _, token = owner.opened(PITCHES, items=1, kind="mushra_nmr")
    page = open_rater(token, locale="zh-CN", viewport=PHONE)
    expect(page.locator("[data-part=begin]")).to_have_text("开始")
    begin(page)
    with page.expect_response(re.compile("/draft$")):
        page.locator("#slider-0").fill("55")
    page.locator("[data-language=en]").click()
    expect(page.locator("h1")).to_have_text("How good is each?")
    expect(page.locator("#slider-0")).to_have_value("55")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_headphone_check_goes_on_after_kill_9_at_the_round_where_it_stopped_and_leads_into_the_test(
    owner: Owner, open_rater: OpenRater, fake_studio: FakeStudio
) -> None:
    test, token = owner.opened(PITCHES, items=1, kind="ab", headphones="ask")
    page = open_rater(token)
    short = {"body": tone(200, 0.1), "content_type": "audio/wav"}  # the true ones take four seconds a round
    page.route(re.compile(r"/headphones/\d$"), lambda route: route.fulfill(**short))
    page.locator("[data-part=begin]").dblclick()
    for number in range(1, 7):
        expect(page.locator("h2")).to_contain_text(f"{number} of 6")
        page.locator("[data-part=tones]").click()
        if number == 4:
            expect(page.locator("[data-part=tone-1]")).to_be_enabled()
            fake_studio.kill()
            page.locator("[data-part=tone-1]").click()  # chosen while the studio is away
            expect(page.locator("[data-part=connection]")).to_be_visible()
            fake_studio.start()
            expect(page.locator("h2")).to_contain_text("5 of 6")
            page.reload()
            continue
        page.locator("[data-part=tone-1]").click()
    expect(page.locator("body")).to_have_attribute("data-phase", "trial")
    assert owner.show(test)["counts"]["joined"] == 1


def test_time_of_a_trial_runs_on_over_a_reload_and_a_kill_9(
    owner: Owner, open_rater: OpenRater, fake_studio: FakeStudio
) -> None:
    _, token = owner.opened(PITCHES, items=1, kind="mos", timeout_s=600)
    page = open_rater(token)
    begin(page)
    clock = page.locator("[data-part=clock]")
    left = lambda: int(re.sub(r"\D", "", clock.inner_text()))  # noqa: E731
    expect(clock).to_have_text(re.compile(r"5\d\d s left"))
    before = left()
    for interrupt in (lambda: None, lambda: (fake_studio.kill(), fake_studio.start())):
        interrupt()
        page.reload()
        expect(clock).to_contain_text("s left")
        assert left() <= before < 600


def test_time_runs_out_and_the_next_trial_comes(owner: Owner, open_rater: OpenRater) -> None:
    test, token = owner.opened(PITCHES, items=1, kind="mos", timeout_s=2)
    page = open_rater(token)
    page.evaluate(CLOCKS)
    page.locator("[data-part=begin]").click()
    expect(page.locator("body")).to_have_attribute("data-phase", "finished")
    assert any("s left" in told for told in page.evaluate("window.clocks"))
    assert owner.show(test)["counts"]["timeouts"] == 2


CLOCKS = """() => {
  // All that the clock said: whoever looks from outside may come too late for two seconds of it.
  window.clocks = [];
  new MutationObserver(() => window.clocks.push(document.querySelector("[data-part=clock]")?.textContent ?? ""))
    .observe(document.body, { subtree: true, childList: true });
}"""


SWITCHING = """async (base) => {
  const { Switcher, FADE_S } = await import(new URL('web/rate/switcher.js', base));
  const rate = 24000, length = rate;
  const context = new OfflineAudioContext(1, length, rate);
  const tone = (hertz) => {
    const buffer = context.createBuffer(1, length, rate);
    const samples = buffer.getChannelData(0);
    for (let n = 0; n < length; n += 1) samples[n] = 0.5 * Math.sin(2 * Math.PI * hertz * n / rate);
    return buffer;
  };
  const buffers = [tone(300), tone(300), tone(700)];
  const player = new Switcher(context, buffers);
  player.play(0, 0);
  player.switchTo(1, 0.25);  // the same sound: nothing may be heard of it
  player.switchTo(2, 0.5);
  const heard = (await context.startRendering()).getChannelData(0);
  const fade = Math.ceil(FADE_S * rate);
  const [first, , last] = buffers.map((buffer) => buffer.getChannelData(0));
  let same = 0, after = 0, step = 0;
  for (let n = 0; n < 0.5 * rate; n += 1) same = Math.max(same, Math.abs(heard[n] - first[n]));
  for (let n = 0.5 * rate + fade; n < length; n += 1) after = Math.max(after, Math.abs(heard[n] - last[n]));
  for (let n = 1; n < length; n += 1) step = Math.max(step, Math.abs(heard[n] - heard[n - 1]));
  return { same, after, step };
}"""


def test_switching_while_playing_is_sample_locked_and_without_a_click(open_rater: OpenRater, owner: Owner) -> None:
    _, token = owner.opened(PITCHES, items=1, kind="ab")
    page = open_rater(token)
    found = page.evaluate(SWITCHING, page.url.split("listen/")[0])
    assert found["same"] < 1e-4  # two copies of one sound cross over without a trace
    assert found["after"] < 1e-4  # and the new sound goes on at the very sample where the old one was
    # The steepest step of a 700 Hz tone of this level is 0.092; a click would be up to 1.
    assert found["step"] < 0.1


def test_no_address_is_asked_for_twice_and_all_sounds_are_there_before_the_first_is_played(
    owner: Owner, open_rater: OpenRater
) -> None:
    _, token = owner.opened(PITCHES, items=1, kind="abx")
    page = open_rater(token)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/clip/" in request.url else None)
    begin(page)
    expect(page.locator("[data-part=play-0]")).to_be_enabled()
    assert len(asked) == len(set(asked)) == 3
    hear_all(page)
    assert len(asked) == 3


def test_raters_pages_have_no_faults_of_access(owner: Owner, open_rater: OpenRater) -> None:
    for kind in ("mos", "mushra_nmr", "intelligibility"):
        _, token = owner.opened(PITCHES, items=1, kind=kind, **DESIGNS.get(Kind(kind), {}))
        for scheme in ("light", "dark"):
            page = open_rater(token, color_scheme=scheme)
            begin(page)
            expect(page.locator("[data-part=play-0]")).to_be_enabled()
            assert faults(page) == set()
