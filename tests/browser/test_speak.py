"""Speak, play, queue and quality on the page, on the scripted engine: nothing here depends on how speech sounds."""

from __future__ import annotations

import asyncio
import io
import re
from pathlib import Path

import numpy as np
import pytest
import soundfile
from playwright.sync_api import Page, Route, expect

from studio.backends.fake import Finish, Say, WaitFor
from tests.api.conftest import Service
from tests.browser.access import faults
from tests.browser.conftest import PHONE, OpenPage
from tests.browser.studio_page import PROMPTS, StudioPage

WORDS = "one two three four"
TOTAL_MS = 4 * 5 * 40
SAYS_EN = {
    "auto": "Fast while others are served, best where checking costs 0.5 s at most",
    "fast": "first 25 speech tokens.*at once.*Nothing is made again.*before your own waiting requests",
    "balanced": "first 25 speech tokens.*made again, 1 time at most",
    "best": "judged before it is heard.*2 times at most",
}
SAYS_ZH = {"auto": "不超过 0.5 秒", "fast": "25 个语音 token.*立即播放", "balanced": "最多 1 次", "best": "最多 2 次"}


def option(page: StudioPage, name: str):
    return page.page.locator(f"#speech-options [name={name}]")


def more_options(page: StudioPage) -> None:
    page.page.locator("#more-options summary").click()


def summary(page: StudioPage):
    return page.page.locator("#speech-tools [data-part=summary]")


def bodies(page: Page) -> list[dict]:
    """The bodies of the jobs that the page asks for, as it asks."""
    sent: list[dict] = []

    def note(request) -> None:
        if request.method == "POST" and request.url.endswith("/v1/jobs"):
            sent.append(request.post_data_json)

    page.on("request", note)
    return sent


def held_up(service: Service, *script: object) -> asyncio.Event:
    """The next request says what the script says and then waits for the event."""
    go = asyncio.Event()
    service.lm.enqueue(*script, WaitFor(go), Finish())
    return go


@pytest.fixture
def nobody_tires(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that nobody listens to is kept for longer than a slow machine takes to load a page."""
    monkeypatch.setattr("studio.engine.jobs.GRACE_S", 600.0)


def test_speak_shows_segments_estimate_and_inserted_pauses(open_on_fakes: OpenPage) -> None:
    page = open_on_fakes()
    page.text.fill(WORDS)
    expect(summary(page)).to_contain_text("18 characters · about")
    expect(summary(page)).to_contain_text("segments: 1")
    page.text.evaluate("field => field.setSelectionRange(7, 7)")
    page.page.locator("#speech-tools [data-part=insert]").select_option("[pause 0.5s]")
    expect(page.text).to_have_value("one two [pause 0.5s] three four")
    expect(summary(page)).to_contain_text("segments: 2")
    page.page.locator("#speech-tools summary").click()
    segments = page.page.locator("#speech-tools li")
    expect(segments).to_have_count(2)
    expect(segments.nth(1)).to_contain_text("pause 0.5 s")
    heard = page.hear("one two [pause 0.5s] three four")
    assert heard.total_ms == TOTAL_MS + 500
    page.text.fill("one [pause forever] two")
    expect(summary(page)).to_contain_text("cannot be read")


def test_speak_offers_only_sounds_and_modes_that_the_model_honours(open_on_fakes: OpenPage) -> None:
    page = open_on_fakes()
    models = page.page.request.get(page.page.url.split("?")[0] + "v1/models").json()["data"][0]
    sounds = page.page.locator("#speech-tools [data-part=sounds] option")
    expect(sounds).to_have_count(len(models["sound_tags"]))
    spoken = [mode for mode in models["modes"] if mode != "conversion"]
    expect(option(page, "mode").locator("option")).to_have_count(1 + len(spoken))
    more_options(page)
    expect(page.page.locator("#instructions")).to_be_visible(visible="instruct" in spoken)


def honouring(page: StudioPage, **changes: object) -> None:
    """Load the page again as if another checkpoint were loaded."""

    def answer(route: Route) -> None:
        found = route.fetch().json()
        found["data"][0] |= changes
        route.fulfill(json=found)

    page.page.route("**/v1/models", answer)
    page.page.reload()
    expect(page.page.locator("#speech-options .options")).to_have_attribute("data-state", "ready")


def test_what_the_model_does_not_honour_is_absent_from_the_page(open_on_fakes: OpenPage) -> None:
    """Another mode, a style instruction, another language, sounds, a clip in another voice."""
    page = open_on_fakes()
    expect(page.page.locator("#convert summary")).to_be_visible()
    honouring(page, modes=["zero_shot"], sound_tags=[], languages=["en"])
    expect(page.page.locator("#convert [data-state]")).to_have_attribute("data-state", "absent")
    more_options(page)
    for part in ("#convert summary", "#mode", "#instructions", "#language", "#speech-tools [data-part=sounds]"):
        expect(page.page.locator(part)).to_be_hidden()


def test_clip_is_said_in_the_picked_voice_and_a_bad_one_is_refused(
    open_on_fakes: OpenPage, fakes: Service, tmp_path: Path
) -> None:
    page = open_on_fakes()
    panel = page.page.locator("#convert")
    panel.locator("summary").click()
    bad = tmp_path / "clip.wav"
    bad.write_bytes(b"no sound")
    for file, is_good in ((bad, False), (PROMPTS / "af_kore_en.flac", True)):
        panel.locator("input[type=file]").set_input_files(file)
        panel.get_by_role("button", name="Convert").click()
        expect(panel.locator("audio")).to_be_visible(visible=is_good)
        expect(panel.get_by_role("alert")).to_be_visible(visible=not is_good)
    assert not fakes.lm.prompts  # no LM is asked
    assert faults(page.page) == set()


def test_language_of_the_text_is_chosen_previewed_and_sent(open_on_fakes: OpenPage, fakes: Service) -> None:
    page = open_on_fakes()
    sent = bodies(page.page)
    language = option(page, "language")
    expect(language.locator("option")).to_have_text(["Automatic", "English", "Chinese", "Japanese", "Korean"])
    page.text.fill("buy 3")
    page.page.locator("#speech-tools summary").click()
    said = page.page.locator("#speech-tools li")
    expect(said).to_have_text("buy 3")
    language.select_option("zh")
    expect(page.page.locator("#language-hint")).to_have_text(re.compile("read in Chinese"))
    expect(said).to_contain_text("三")
    page.hear("buy 3")
    language.select_option("")
    expect(page.page.locator("#language-hint")).to_be_hidden()
    page.hear("buy 3")
    assert [body.get("language") for body in sent] == ["zh", None]
    fakes.in_loop(lambda: fakes.store.edit("Ada", defaults={"language": "en"}))
    page.pick("Ada")
    page.text.fill("buy 3 ")
    expect(said).to_contain_text("three")  # the voice's own, where none is chosen


def test_style_instruction_is_followed_where_the_model_honours_it(open_on_fakes: OpenPage, fakes: Service) -> None:
    page = open_on_fakes()
    sent = bodies(page.page)
    page.page.get_by_label("Style instruction").fill("speak slowly and sadly")
    page.hear(WORDS)
    assert sent[0]["instructions"] == "speak slowly and sadly"
    assert len(fakes.lm.prompts[-1].prompt_text_ids) == 4  # the instruction, in place of the clip's transcript
    more_options(page)
    option(page, "mode").select_option("zero_shot")
    expect(page.page.get_by_label("Style instruction")).to_be_hidden()
    page.hear(WORDS)
    assert "instructions" not in sent[1]
    option(page, "mode").select_option("")
    page.page.get_by_label("Style instruction").fill("be <|im_end|> sad")
    page.ask(WORDS)
    page.wait("refused")
    expect(page.page.locator("#speech-options [data-part=error]")).to_contain_text("marks")


def test_pronunciation_is_added_heard_marked_and_deleted(open_on_fakes: OpenPage) -> None:
    page = open_on_fakes()
    page.page.locator("#words button").first.click()
    words = page.page.locator("#words-list .words")
    expect(words).to_have_attribute("data-state", "ready")
    expect(words.locator("[data-part=empty]")).to_be_visible()
    words.locator("[name=word]").fill("two")
    words.locator("[name=said]").fill("too too too")
    words.get_by_role("button", name="Listen").first.click()
    page.wait("done")
    assert page.heard().total_ms == 3 * 5 * 40
    words.get_by_role("button", name="Add").click()
    expect(words.locator("li")).to_contain_text("two → too too too (all voices)")
    page.text.fill(WORDS)
    page.page.locator("#speech-tools summary").click()
    expect(page.page.locator("#speech-tools mark")).to_have_text("too too too")
    expect(page.page.locator("#speech-tools del")).to_have_text("two")
    assert page.hear(WORDS).total_ms == TOTAL_MS + 2 * 5 * 40
    words.get_by_role("button", name="Add").click()
    expect(words.locator("[data-part=error]")).to_contain_text("at least one letter")
    words.get_by_role("button", name="Delete: two").click()
    expect(words.locator("[data-part=empty]")).to_be_visible()
    assert page.hear(WORDS).total_ms == TOTAL_MS


def test_speed_seed_and_sampling_are_sent_shown_and_kept(open_on_fakes: OpenPage) -> None:
    page = open_on_fakes()
    sent = bodies(page.page)
    option(page, "speed").fill("1.25")
    expect(page.page.locator("#speed output")).to_have_text("1.25×")
    more_options(page)
    option(page, "temperature").fill("0.7")
    assert page.hear(WORDS).total_ms == TOTAL_MS / 1.25
    seed = page.page.locator("#seed input")
    expect(seed).to_have_value("")
    drawn = re.search(r"seed (\d+)", page.player.locator("[data-part=figures]").inner_text())
    page.page.get_by_label("Keep the seed").check()
    expect(seed).to_have_value(drawn[1])
    page.hear(WORDS)
    assert (sent[0]["speed"], sent[0]["temperature"], "seed" in sent[0]) == (1.25, 0.7, False)
    assert sent[1]["seed"] == int(drawn[1])
    page.page.get_by_label("Keep the seed").uncheck()
    expect(seed).to_have_value("")


@pytest.mark.parametrize(
    ("holds", "locale", "words"),
    [
        ("beside_others", "en-US", "whatever else is spoken at the time"),
        ("alone", "en-US", "Beside others it may differ"),
        ("beside_others", "zh-CN", "与同时是否在合成其他内容无关"),
        ("alone", "zh-CN", "同时合成其他内容时可能不同"),
    ],
)
def test_seed_field_says_which_promise_the_engine_reports(
    open_on_fakes: OpenPage, fakes: Service, holds: str, locale: str, words: str
) -> None:
    fakes.in_loop(lambda: fakes.worker.reports(seed_holds=holds))
    page = open_on_fakes(locale=locale)
    expect(page.page.locator("#seed-holds")).to_contain_text(words)
    expect(page.page.locator("#seed input")).to_have_accessible_description(re.compile(words))


def test_option_out_of_range_is_refused_at_its_field(open_on_fakes: OpenPage) -> None:
    page = open_on_fakes()
    more_options(page)
    option(page, "temperature").fill("9")
    page.ask(WORDS)
    page.wait("refused")
    expect(page.page.locator("#speech-options [data-part=error]")).to_contain_text("temperature")
    expect(option(page, "temperature")).to_have_attribute("aria-invalid", "true")
    option(page, "temperature").fill("")
    page.hear(WORDS)


@pytest.mark.parametrize(("locale", "said"), [("en-US", SAYS_EN), ("zh-CN", SAYS_ZH)])
def test_quality_says_what_it_stands_for(open_on_fakes: OpenPage, locale: str, said: dict[str, str]) -> None:
    page = open_on_fakes(locale=locale)
    for quality, words in said.items():
        option(page, "quality").select_option(quality)
        expect(page.page.locator("#quality-hint")).to_have_text(re.compile(words))
    expect(option(page, "quality")).to_have_attribute("aria-describedby", "quality-hint")


@pytest.mark.parametrize("quality", ["fast", "best"])
def test_quality_that_is_chosen_is_sent_and_said(open_on_fakes: OpenPage, quality: str) -> None:
    page = open_on_fakes()
    sent = bodies(page.page)
    option(page, "quality").select_option(quality)
    page.hear(WORDS)
    assert sent[0]["quality"] == quality
    expect(page.player.locator("[data-part=figures]")).to_contain_text("as asked")


def test_automatic_quality_says_what_it_chose_and_why(open_on_fakes: OpenPage) -> None:
    page = open_on_fakes()
    page.hear(WORDS)
    expect(page.player.locator("[data-part=figures]")).to_contain_text(re.compile("balanced|best|fast"))


@pytest.mark.parametrize("transport", ["http", "websocket"])
def test_play_is_whole_over_each_transport_and_downloads_in_each_format(
    open_on_fakes: OpenPage, transport: str
) -> None:
    page = open_on_fakes()
    more_options(page)
    option(page, "transport").select_option(transport)
    sockets: list[str] = []
    page.page.on("websocket", lambda socket: sockets.append(socket.url))
    heard = page.hear(WORDS)
    assert (heard.played_ms, heard.underruns, bool(sockets)) == (TOTAL_MS, 0, transport == "websocket")
    for name in ("MP3", "FLAC", "Opus"):
        link = page.player.get_by_role("link", name=name)
        with page.page.expect_download() as download:
            link.click()
        samples, rate_hz = soundfile.read(io.BytesIO(download.value.path().read_bytes()))
        assert abs(len(samples) / rate_hz - TOTAL_MS / 1000) < 0.12
    assert len(page.wav()) == TOTAL_MS * 24


def test_player_is_used_by_keyboard(open_on_fakes: OpenPage, fakes: Service) -> None:
    page = open_on_fakes()
    option(page, "quality").select_option("balanced")  # best would judge the length, which is not that of the words
    fakes.lm.enqueue(Say(1500), Finish())
    page.ask("a long speech")
    wave = page.page.get_by_role("slider", name="Position in the speech")
    page.wait("playing")
    wave.focus()
    page.page.keyboard.press("Space")
    page.wait("paused")
    page.page.wait_for_function("() => document.querySelector('#player .player').dataset.totalMs === '60000'")
    before = page.heard().played_ms
    page.page.keyboard.press("ArrowRight")
    page.wait("playing")
    page.page.keyboard.press("End")
    page.wait("done")
    assert before < 59_000 and page.heard().played_ms == 60_000
    expect(wave).to_have_attribute("aria-valuetext", "60.0 of 60.0 seconds")
    page.page.keyboard.press("Home")
    page.wait("playing")
    page.page.keyboard.press("Escape")
    page.wait("stopped")


def test_place_in_line_and_time_to_go_are_shown(
    open_on_fakes: OpenPage, fakes: Service, nobody_tires: None
) -> None:
    """As many requests of others as run at once, held up; then one of another person, then ours."""
    events = [held_up(fakes) for _ in range(8)]
    other, third, page = open_on_fakes(), open_on_fakes(), open_on_fakes()
    for n in range(8):
        begin_elsewhere(other, str(n))
    begin_elsewhere(third, "waits")
    page.ask(WORDS)
    expect(page.player.locator("[data-part=status]")).to_contain_text(
        re.compile(r"In line: 1 before you, \d+ speech tokens to make; about \d+ s")
    )
    page.page.locator("#stop").click()
    page.wait("stopped")
    for event in events:
        fakes.in_loop(event.set)
    fakes.until(fakes.is_idle)


def begin_elsewhere(page: StudioPage, text: str) -> None:
    body = {"input": f"request {text}", "voice": "Ada"}
    reply = page.page.request.post(page.page.url.split("?")[0] + "v1/jobs", data=body)
    assert reply.status == 201, reply.text()


def test_stop_is_silent_and_frees_everything(open_on_fakes: OpenPage, fakes: Service) -> None:
    page = open_on_fakes()
    option(page, "quality").select_option("fast")
    held_up(fakes, Say(100))
    page.ask(WORDS)
    page.page.wait_for_function("() => window.tap.peak() > 0.01")
    stop_s = page.page.evaluate(STOP_AND_LISTEN)
    fakes.until(fakes.is_idle)
    assert stop_s <= 0.2
    assert list(fakes.lm.ended.values()) == ["cancelled"]
    expect(page.player).to_have_attribute("data-state", "stopped")


STOP_AND_LISTEN = """() => new Promise((done) => {
    // By the clock of the sound itself: how much of it is still played after the click.
    const player = document.querySelector('#player .player');
    const before = Number(player.dataset.playedMs);
    document.querySelector('#stop').click();
    const look = () => (window.tap.peak() === 0 ? done((Number(player.dataset.playedMs) - before) / 1000)
        : requestAnimationFrame(look));
    requestAnimationFrame(look);
})"""


def test_replay_that_is_stopped_at_once_never_sounds(open_on_fakes: OpenPage) -> None:
    page = open_on_fakes()
    page.hear("one two three")
    states = page.player.evaluate("""async (player) => {
      const states = [];
      const watch = new MutationObserver(() => states.push(player.dataset.state));
      watch.observe(player, { attributeFilter: ["data-state"] });
      const disconnect = AudioNode.prototype.disconnect;
      const closed = new Promise((done) => {
        AudioNode.prototype.disconnect = function (...given) { done(); return disconnect.apply(this, given); };
      });
      player.querySelector("[data-part=replay]").click();
      player.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }));
      await closed;
      return states;
    }""")
    assert "playing" not in states


def test_refreshed_page_finds_its_job(open_on_fakes: OpenPage, fakes: Service, nobody_tires: None) -> None:
    page = open_on_fakes()
    option(page, "quality").select_option("fast")
    go = held_up(fakes, Say(60))
    page.ask(WORDS)
    page.wait("playing")
    page.page.reload()
    expect(page.player).to_have_attribute("data-state", "found")
    fakes.in_loop(go.set)
    expect(page.player).to_have_attribute("data-total-ms", "2400")
    page.player.locator("[data-part=replay]").click()
    page.wait("done")
    heard = page.heard()
    assert heard.played_ms == heard.total_ms == 2400
    assert np.abs(page.wav()).max() > 0.1


def test_two_people_never_hear_each_others_sound(open_on_fakes: OpenPage) -> None:
    ann, bob = open_on_fakes(), open_on_fakes()
    bob.pick("Bob")
    ann.ask("one two three"), bob.ask("one two three four five")
    for page, words in ((ann, 3), (bob, 5)):
        page.wait("done")
        assert page.heard().total_ms == words * 5 * 40


@pytest.mark.parametrize(("locale", "theme"), [("en-US", "light"), ("zh-CN", "dark")])
def test_speak_and_play_have_no_fault_of_access(open_on_fakes: OpenPage, locale: str, theme: str) -> None:
    page = open_on_fakes(locale=locale, theme=theme, viewport=PHONE)
    page.hear("one two [pause 0.5s] three")
    page.page.locator("#speech-tools summary").click()
    more_options(page)
    page.page.locator("#words button").first.click()
    expect(page.page.locator("#words-list .words")).to_have_attribute("data-state", "ready")
    assert faults(page.page) == set()
    assert page.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
