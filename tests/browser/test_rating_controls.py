"""The raters' page for ears, keys, fingers and screen readers, each kind of test for itself; on the scripted engine."""

from __future__ import annotations

import io
import itertools
from pathlib import Path

import numpy as np
import pytest
import soundfile
from playwright.sync_api import Page, Request, expect

from studio.listening.answers import Kind
from tests.api.conftest import Service
from tests.browser.access import faults
from tests.browser.conftest import PHONE
from tests.browser.rater_page import PITCHES, OpenRater, answers_of, begin
from tests.simulated_rater import RATE_HZ, Owner

RECORDER = Path(__file__).with_name("recorder.js")
FADE = 288
"""Samples of a switch, 12 ms."""
LEAD_S = 0.03
SEVERAL = [kind for kind in Kind if kind not in (Kind.MOS, Kind.INTELLIGIBILITY)]
"""Kinds whose trials have more than one clip."""
DESIGNS = {
    Kind.MUSHRA: {"reference": "high tone"},
    Kind.SIMILARITY: {"reference": "high tone"},
    Kind.INTELLIGIBILITY: {"texts": ["good morning"]},
}


def chirps(first_hz: float, seconds: float = 8.0) -> bytes:
    """A WAV file of three tones that rise, one for each band of the anchors: each place in it has its own sound."""
    time = np.arange(int(seconds * RATE_HZ)) / RATE_HZ
    tones = [
        np.sin(2 * np.pi * (low_hz * time + (high_hz - low_hz) * time**2 / 2 / seconds))
        for low_hz, high_hz in ((first_hz, 3 * first_hz), (4600 + first_hz, 6000), (8000 + first_hz, 10_000))
    ]
    buffer = io.BytesIO()
    soundfile.write(buffer, 0.1 * np.sum(tones, axis=0), RATE_HZ, format="WAV", subtype="PCM_16")
    return buffer.getvalue()


def served_to(asked: list[Request]) -> list[np.ndarray]:
    """The clips in the order of their buttons, which is the order in which the page asks."""
    replies = [request.response() for request in asked]
    return [np.frombuffer(reply.body()[44:], "<i2") / 32767 for reply in replies if reply]


def crossing(heard: np.ndarray, old: np.ndarray, new: np.ndarray, begun: int) -> tuple[float, int]:
    """How far the sound is from going straight from one clip to the other, and where the other is reached."""
    left = begun + int(np.argmax(np.abs(heard[begun:] - old[begun:]) > 5e-3))
    span = np.arange(max(0, left - FADE), left + 2 * FADE + 1000)
    found = []
    for start in np.arange(left - FADE, left + 1, 0.5):
        share = np.clip((span - start) / FADE, 0, 1)
        expected = (1 - share) * old[span] + share * new[span]
        found.append((float(np.abs(heard[span] - expected).max()), int(start) + FADE))
    return min(found)


@pytest.mark.parametrize("kind", SEVERAL)
def test_switching_while_playing_goes_on_at_the_same_sample_without_a_click(
    owner: Owner, open_rater: OpenRater, kind: Kind
) -> None:
    """What the page itself sends to the loudspeaker is compared with the clips that it was served."""
    conditions = [{"name": name} for name in PITCHES]
    design = {"kind": kind.value, "title": "t", "headphones": "off", "conditions": conditions} | DESIGNS.get(kind, {})
    test = owner.create(**design)["id"]
    for name, hertz in PITCHES.items():
        assert owner.upload(test, name, {"s01.wav": chirps(hertz)}).status_code == 200
    assert owner.do(test, "open").status_code == 200
    asked: list[Request] = []

    def watch(page: Page) -> None:
        page.add_init_script(path=RECORDER)
        page.on("request", lambda request: asked.append(request) if "/clip/" in request.url else None)

    page = open_rater(owner.invite(test)[0], watch=watch)
    begin(page)
    expect(page.locator("[data-part=play-0]")).to_be_enabled()
    sounds = page.locator("button.sound").count()
    order = [0, *range(1, sounds), 0]
    heard = np.array(page.evaluate("order => recorder.press(order, 6000)", order))
    clips = served_to(asked)
    assert len(clips) == sounds >= 2
    begun = int(np.argmax(np.correlate(heard, clips[0][:2400], "valid")))
    heard = heard[begun:][: len(clips[0])]  # where the machine is slow the recorder goes on beyond the clip
    place, switches = 0, 0
    for before, after in itertools.pairwise(order):
        old, new = clips[before][: len(heard)], clips[after][: len(heard)]
        if np.abs(old - new).max() > 0.02:  # X and the hidden reference are another one's copies
            error, place = crossing(heard, old, new, place)
            assert error < 2e-3
            switches += 1
    assert switches >= 2
    leads = page.evaluate("recorder.leads")
    assert min(leads) >= LEAD_S + FADE / RATE_HZ - 1e-6  # what is being computed already is left alone


KEYS = {
    Kind.MOS: ["4"],
    Kind.CMOS: ["2"],
    Kind.AB: ["3"],
    Kind.ABX: ["1"],
    Kind.SIMILARITY: ["3"],
}
KEPT = {Kind.MOS: 4, Kind.CMOS: 2, Kind.AB: 1, Kind.SIMILARITY: 3}
"""What those keys mean; of pairs, whichever stood first."""


@pytest.mark.parametrize("kind", list(Kind))
def test_each_kind_is_answered_with_the_keyboard_alone(owner: Owner, open_rater: OpenRater, kind: Kind) -> None:
    test, token = owner.opened(PITCHES, items=1, kind=kind.value, **DESIGNS.get(kind, {}))
    page = open_rater(token)
    page.locator("[data-part=begin]").focus()
    page.keyboard.press("Enter")
    trials = 2 if kind is Kind.MOS else 1
    for _ in range(trials):
        expect(page.locator("[data-part=play-0]")).to_be_enabled()
        for place, key in enumerate(keys_of(page, kind)):
            page.keyboard.press(key)
            expect(page.locator(f"[data-part=play-{place}]")).to_have_attribute("data-heard", "true")
        answer_by_keys(page, kind)
        before = page.locator("[data-part=progress]").inner_text()
        expect(page.locator("[data-part=next]")).to_be_enabled()
        page.keyboard.press("Enter")
        expect(page.locator("[data-part=progress]")).not_to_have_text(before)
    expect(page.locator("body")).to_have_attribute("data-phase", "finished")
    kept = answers_of(owner, test)
    if kind in KEPT:
        assert {abs(answer.score) for answer in kept} <= {KEPT[kind], 1 - KEPT[kind]}
    assert len(kept) >= trials


def keys_of(page: Page, kind: Kind) -> str:
    """The keys of a trial's sounds, in their order."""
    extra = {Kind.MUSHRA: "r", Kind.SIMILARITY: "r", Kind.ABX: "x"}.get(kind, "")
    return "abcdefgh"[: page.locator("button.sound").count() - len(extra)] + extra


def answer_by_keys(page: Page, kind: Kind) -> None:
    for key in KEYS.get(kind, []):
        page.keyboard.press(key)
    if kind in (Kind.MUSHRA, Kind.MUSHRA_NMR):
        for slider in page.locator("input[type=range]").all():
            slider.focus()
            page.keyboard.press("ArrowRight")
            expect(slider).to_have_attribute("data-set", "true")
            expect(slider).to_have_value("51")
    if kind is Kind.INTELLIGIBILITY:
        page.locator("#typed").focus()
        page.keyboard.type("a good xylophone")  # letters and digits are typed, and play nothing
        expect(page.locator("#typed")).to_have_value("a good xylophone")


@pytest.mark.parametrize("kind", list(Kind))
def test_each_kind_speaks_chinese_fits_a_phone_and_has_no_faults_of_access(
    owner: Owner, open_rater: OpenRater, kind: Kind
) -> None:
    how = {"consent": "同意。", "timeout_s": 600, "traps": 1} | DESIGNS.get(kind, {})
    _, token = owner.opened(PITCHES, items=1, kind=kind.value, **how)
    scheme = "dark" if list(Kind).index(kind) % 2 else "light"
    page = open_rater(token, locale="zh-CN", viewport=PHONE, color_scheme=scheme, has_touch=True)
    assert faults(page) == set()
    page.locator("#agree").check()
    begin(page)
    expect(page.locator("[data-part=play-0]")).to_be_enabled()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    words = page.locator("main").inner_text()
    assert "rate." not in words and "{" not in words
    expect(page.locator("h1")).to_contain_text("？")
    assert faults(page) == set()
    for button in page.locator("main button").all():
        box = button.bounding_box()
        assert box is not None and box["height"] >= 44  # a finger's width


def test_headphone_check_speaks_chinese_fits_a_phone_and_is_taken_again(
    fakes: Service, owner: Owner, open_rater: OpenRater
) -> None:
    test, token = owner.opened(PITCHES, items=1, kind="mos", headphones="require")
    page = open_rater(token, locale="zh-CN", viewport=PHONE)
    page.locator("[data-part=begin]").click()
    expect(page.locator("h2")).to_have_text("第 1 轮，共 6 轮")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth") and faults(page) == set()
    raters = fakes.app.state.listening.raters
    raters.keep_tones(raters.of_test(test)[0].id, [0] * 6, 2)
    page.reload()
    expect(page.locator("main")).to_contain_text("检查显示没有戴")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth") and faults(page) == set()
    page.locator("[data-part=again]").click()
    expect(page.locator("h2")).to_have_text("第 1 轮，共 6 轮")
