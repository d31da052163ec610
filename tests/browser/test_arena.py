"""The arena in real browsers, on the scripted engine: blind to the last byte, a vote, the leaderboard."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, Response, WebSocket, expect

from tests.api.conftest import Service
from tests.browser.access import faults
from tests.browser.conftest import PHONE, opening_raters
from tests.simulated_rater import Owner, SimulatedRater, higher_is_better, pitch_of

NAMES = {"Zebrafish": ("Ada", 0.5125), "Quicksand": ("Bob", 1.2375)}
TEXT = "one two three four"
RANDOM = re.compile(r"[\w-]{22,32}")
"""Tokens, addresses and keys, in which any two signs may stand by chance."""
OpenVisitor = Callable[..., Page]


@pytest.fixture
def open_visitor(chromium: Browser, fakes: Service) -> Iterator[OpenVisitor]:
    fakes.clock.ahead_s += 3601  # the hour of other tests is over
    with opening_raters(chromium, fakes.url) as open_one:
        yield open_one


def opened(fakes: Service, **how: object) -> tuple[Owner, str, str]:
    """An open arena of two voices under two settings: its owner, id and a link's token."""
    owner = Owner(fakes.url)
    conditions = [
        {"name": name, "source": {"kind": "speech", "voice": voice, "settings": {"temperature": heat}}}
        for name, (voice, heat) in NAMES.items()
    ]
    design = {"kind": "ab", "title": "Hidden title", "arena": True, "headphones": "off", "conditions": conditions}
    test = owner.create(**(design | how))["id"]
    assert owner.do(test, "open").status_code == 200
    return owner, test, owner.invite(test)[0]


def begin(page: Page) -> None:
    page.locator("[data-part=begin]").click()
    expect(page.locator("body")).to_have_attribute("data-phase", "text")


def ask_for_pair(page: Page) -> None:
    page.locator("[data-part=own-text]").fill(TEXT)
    page.locator("[data-part=send]").click()
    expect(page.locator("body")).to_have_attribute("data-phase", "trial")


def hear_and_choose(page: Page) -> None:
    for button in page.locator("button.sound").all():
        expect(button).to_be_enabled()
        button.click()
        expect(button).to_have_attribute("data-heard", "true")
    page.locator("[data-part=score1] input").check()
    expect(page.locator("[data-part=next]")).to_be_enabled()


def vote(page: Page) -> None:
    page.locator("[data-part=next]").click()
    expect(page.locator("body")).to_have_attribute("data-phase", "text")


class Traffic:
    """All that a page is told: replies with headers and bodies, frames of sockets, and what the console shows."""

    def __init__(self) -> None:
        self.replies: list[Response] = []
        self.frames: list[str] = []
        self.console: list[str] = []

    def watch(self, page: Page) -> None:
        page.on("response", lambda reply: self.replies.append(reply))
        page.on("console", lambda message: self.console.append(message.text))
        page.on("websocket", self._socket)

    def _socket(self, socket: WebSocket) -> None:
        self.frames.append(socket.url)
        for event in ("framesent", "framereceived"):
            socket.on(event, lambda frame: self.frames.append(str(frame)))

    def clips(self) -> list[Response]:
        return [reply for reply in self.replies if "/clip/" in reply.url]

    def told(self) -> str:
        """Everything but the sounds and the files that are the same for everybody, as one text."""
        parts = [*self.frames, *self.console]
        for reply in self.replies:
            if "/web/" not in reply.url:
                parts += [reply.url, str(reply.status), str(reply.headers_array())]
                parts += [] if "/clip/" in reply.url else [reply.text()]
        return RANDOM.sub("", "\n".join(parts))


def secrets_of(fakes: Service, test: str) -> re.Pattern[str]:
    """What nobody may be told before the vote."""
    room = fakes.app.state.listening
    files = [clip.file for clip in room.store.clips(test, "ready").values()]
    voices = [word for voice in fakes.store.all() for word in (voice.id, voice.name)]
    settings = ["temperature", *(str(heat) for _, heat in NAMES.values())]
    seeds = {str(sampling.seed) for sampling in fakes.lm.samplings}
    words = [*NAMES, *voices, *settings, *files, *seeds, test, "Hidden title", "c1", "c2"]
    assert len(files) == 2 and seeds
    return re.compile("|".join(rf"(?<!\w){re.escape(word)}(?!\w)" for word in words), re.IGNORECASE)


def headers_of(reply: Response) -> list[tuple[str, str]]:
    """Names, values and their order; the time of a reply is when it was asked for."""
    return [(h["name"].lower(), h["value"]) for h in reply.headers_array() if h["name"].lower() != "date"]


def test_nothing_that_a_visitors_browser_receives_before_the_vote_tells_which_is_which(
    fakes: Service, open_visitor: OpenVisitor
) -> None:
    _, test, token = opened(fakes, leaderboard_votes=1, consent="Votes are kept.")
    traffic = Traffic()
    page = open_visitor(token, watch=traffic.watch)
    page.locator("#agree").check()
    begin(page)
    for number in (1, 2, 3):
        ask_for_pair(page)
        hear_and_choose(page)
        secret = secrets_of(fakes, test)
        shown = page.content() + str(page.evaluate("[{...localStorage}, document.cookie, location.href]"))
        assert not secret.search(traffic.told()), secret.search(traffic.told())
        assert not secret.search(RANDOM.sub("", shown))
        clips = traffic.clips()[-2:]
        assert len(traffic.clips()) == 2 * number and all(clip.status == 200 for clip in clips)
        assert headers_of(clips[0]) == headers_of(clips[1])
        first, second = (clip.body() for clip in clips)
        assert len(first) == len(second) and first[:44] == second[:44]
        assert round(pitch_of(first)) != round(pitch_of(second))  # there is something to be found out
        vote(page)
        expect(page.locator("[data-part=leaderboard] tbody tr")).to_have_count(2)
        assert secret.search(traffic.told())  # the recorder does see the names that come after a vote
        traffic.replies = traffic.clips()
    assert traffic.frames == [] and traffic.console == []
    addresses = [reply.url for reply in traffic.clips()]
    assert len(set(addresses)) == 6


def test_files_that_every_page_loads_are_the_same_for_everybody(fakes: Service, open_visitor: OpenVisitor) -> None:
    _, _, token = opened(fakes)
    traffic = Traffic()
    page = open_visitor(token, watch=traffic.watch)
    begin(page)
    ask_for_pair(page)
    static = [reply for reply in traffic.replies if "/web/" in reply.url or reply.url.endswith(token)]
    assert len(static) > 5
    for reply in static:
        anybody = httpx.get(reply.url)
        assert reply.body() == anybody.content
        assert reply.header_value("etag") == anybody.headers.get("etag")


def test_visitor_hears_own_words_votes_and_sees_the_leaderboard_in_chinese_on_a_phone(
    fakes: Service, open_visitor: OpenVisitor
) -> None:
    owner, test, token = opened(fakes, leaderboard_votes=3)
    page = open_visitor(token, locale="zh-CN", viewport=PHONE)
    begin(page)
    expect(page.locator("[data-part=leaderboard]")).to_have_count(0)
    ask_for_pair(page)
    hear_and_choose(page)
    vote(page)
    expect(page.locator("[data-part=voted]")).to_contain_text("1")
    expect(page.locator("[data-part=leaderboard]")).to_contain_text("满 3 票后显示排行榜，现有 1 票")

    def pass_time(seconds: float) -> None:
        fakes.clock.ahead_s += seconds

    other = SimulatedRater(fakes.url, token, pass_time, higher_is_better)
    other.join()
    for _ in range(2):
        other.answer(other.http.post("/text", json={"text": TEXT}).json())
    page.reload()
    board = page.locator("[data-part=leaderboard]")
    expect(board.locator("tbody tr")).to_have_count(2)
    expect(board.locator("thead")).to_contain_text("受喜爱")
    expect(board.locator("tbody tr").first).to_contain_text("%")
    rows: list[dict[str, Any]] = other.http.get("/leaderboard").json()["rows"]
    expect(board.locator("tbody tr").first).to_contain_text(rows[0]["name"])
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert faults(page) == set()
    assert owner.show(test)["counts"]["answers"] == 3


def test_text_is_kept_when_it_cannot_be_spoken_and_a_pair_of_another_page_is_shown(
    fakes: Service, open_visitor: OpenVisitor
) -> None:
    _, _, token = opened(fakes)
    page = open_visitor(token)
    begin(page)
    page.locator("[data-part=own-text]").fill("...")
    page.locator("[data-part=send]").click()
    expect(page.locator("[data-part=refused]")).to_be_visible()
    expect(page.locator("[data-part=own-text]")).to_have_value("...")
    second = page.context.new_page()
    second.goto(page.url)
    ask_for_pair(second)
    expect(second.locator("button.sound").last).to_be_enabled()  # it has its sounds before another asks for them
    page.locator("[data-part=send]").click()
    expect(page.locator("[data-part=refused]")).to_be_visible()
    page.locator("[data-part=own-text]").fill(TEXT)
    page.locator("[data-part=send]").click()
    expect(page.locator("body")).to_have_attribute("data-phase", "trial")
    hear_and_choose(page)
    vote(page)
    expect(page.locator("[data-part=voted]")).to_contain_text("1")
