"""Speaking on the page, from each source of a voice, with the sound measured in the page."""

from __future__ import annotations

import re

import numpy as np
import pytest
from playwright.sync_api import Route, expect

from studio.audio.resample import resample
from studio.evaluate.asr import Listener, count_errors
from tests.browser.conftest import OpenPage
from tests.browser.studio_page import PROMPTS, Heard, StudioPage
from tests.real_studio import RealStudio

CLIP, TRANSCRIPT = (
    PROMPTS / "bm_george_en.flac",
    "I packed a warm coat, because the forecast promised snow in the mountains tonight.",
)
MICROPHONE_TRANSCRIPT = "Every spring my neighbor plants sunflowers along the wooden fence behind her house."
LONG_TEXT = "The old lighthouse keeper climbed the narrow stairs every evening to light the lamp. " * 6


@pytest.fixture(scope="session")
def listener() -> Listener:
    return Listener()


def check_whole(heard: Heard, page: StudioPage) -> None:
    """All that came was played, first sound was measured, and the download is that same sound."""
    assert heard.first_ms > 0
    assert heard.played_ms == heard.total_ms > 500
    samples = page.wav()
    assert round(1000 * len(samples) / 24000) == heard.total_ms
    assert np.abs(samples).max() > 0.05


def wrong_words(listener: Listener, samples: np.ndarray, text: str) -> float:
    """Share of the words of a text that are not heard in a sound."""
    heard = listener.transcribe(resample(samples, 24000, 16000), "en")
    found = count_errors(text, heard, "en")
    return found.errors / found.length


def after_the_last_sample(route: Route) -> None:
    """Let a player ask for the sound of a job once the job is done."""
    job, page = route.request.url.removesuffix("/audio"), route.request.frame.page
    while page.request.get(job).json()["state"] not in ("done", "failed", "stopped"):
        pass
    route.continue_()


def test_starter_voice_speaks_without_a_gap(page: StudioPage, listener: Listener) -> None:
    """All of it is made before the player asks; whether it comes in time is for tests/load, on an idle machine."""
    text = "The children are playing in the garden."
    page.page.locator("#seed input").fill("1")
    page.page.route("**/v1/jobs/*/audio", after_the_last_sample)
    heard = page.hear(text)
    check_whole(heard, page)
    assert heard.underruns == 0
    assert wrong_words(listener, page.wav(), text) <= 0.5


def test_uploaded_clip_speaks(page: StudioPage) -> None:
    page.open_clone()
    page.give_clip(CLIP, TRANSCRIPT)
    expect(page.verdict).to_contain_text("ready to clone")
    check_whole(page.hear("This is the voice of the clip."), page)


def test_dropped_clip_speaks(page: StudioPage) -> None:
    page.open_clone()
    page.drop(CLIP, page.page.locator("#clip").get_by_text("Drop Audio Here"))
    expect(page.verdict).to_contain_text("ready to clone")
    expect(page.page.locator("#restore .restore")).to_be_hidden()  # what is dropped there is no file of settings
    page.transcript.fill(TRANSCRIPT)
    check_whole(page.hear("This is the voice of the dropped clip."), page)


def test_recording_of_the_microphone_speaks(page: StudioPage) -> None:
    page.open_clone()
    page.record()
    page.transcript.fill(MICROPHONE_TRANSCRIPT)
    check_whole(page.hear("This is the voice of the microphone."), page)


def test_example_is_put_into_the_text_and_spoken(page: StudioPage) -> None:
    page.page.locator("#examples button").nth(2).click()
    expect(page.text).to_have_value("今天天气真好，我们一起去公园散步吧。")
    page.speak_button.click()
    page.wait("done")
    check_whole(page.heard(), page)


def test_same_seed_gives_the_same_length_and_is_shown(page: StudioPage) -> None:
    page.page.locator("#seed input").fill("7")
    first, again = page.hear("Once more, please."), page.hear("Once more, please.")
    assert first.total_ms == again.total_ms
    expect(page.player.locator("[data-part=figures]")).to_contain_text("seed 7")
    expect(page.page.locator("#seed-holds")).to_contain_text("whatever else is spoken at the time")


def test_replay_plays_what_came_without_asking_again(page: StudioPage) -> None:
    heard = page.hear("Play it again.")
    asked: list[str] = []
    page.page.on("request", lambda request: asked.append(request.url))
    states = page.states_until_ended(page.player.locator("[data-part=replay]"))
    assert states[-2:] == ["playing", "done"], states
    assert page.heard().played_ms == heard.total_ms
    assert not any("/v1/jobs" in url or url.endswith("/v1/audio/speech") for url in asked)


def test_stop_is_silent_and_frees_the_engine(page: StudioPage, studio: RealStudio) -> None:
    page.ask(LONG_TEXT)
    page.page.wait_for_function("() => window.tap.peak() > 0.01", timeout=120_000)
    assert studio.metric("studio_kv_cache_usage_ratio") > 0 or studio.metric("studio_requests_running") > 0
    page.page.locator("#stop").click()
    page.wait("stopped")
    page.page.wait_for_function("() => window.tap.peak() === 0")
    stopped_at = page.heard().played_ms
    studio.wait_idle()
    assert page.page.evaluate("window.tap.peak()") == 0
    assert page.heard().played_ms == stopped_at < page.heard().total_ms


def test_leaving_the_page_frees_the_engine(open_page: OpenPage, studio: RealStudio) -> None:
    page = open_page()
    page.ask(LONG_TEXT)
    expect(page.player).to_have_attribute("data-total-ms", re.compile("[1-9]"), timeout=120_000)
    page.page.close()
    studio.wait_idle()


def test_two_pages_at_once_each_hear_their_own_words(open_page: OpenPage, listener: Listener) -> None:
    texts = (
        "My brother repairs bicycles in a small workshop.",
        "Tomorrow we travel to the mountains by train.",
    )
    pages = [open_page(), open_page()]
    for page, text in zip(pages, texts, strict=True):
        page.page.locator("#seed input").fill("1")
        page.ask(text)
    for page in pages:
        page.wait("done")
        check_whole(page.heard(), page)
    for number, page in enumerate(pages):
        own, other = (wrong_words(listener, page.wav(), texts[k]) for k in (number, 1 - number))
        assert own <= 0.5 < 0.8 <= other
