"""The Admin tab's live view on the scripted engine: its figures are the API's, its pictures what was sampled."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from playwright.sync_api import Locator, Page, Route, expect

from studio.admin.monitor import COARSE_EVERY
from studio.backends.fake import Finish, Say, WaitFor
from studio.engine.stats import LAST_REQUESTS, RequestSummary
from studio.protocols import Token2WavStats
from tests.api.conftest import Service, clip_samples
from tests.browser.conftest import PHONE, OpenPage
from tests.browser.test_admin import enter

STAGES = {"waiting": "waiting", "reading": "reading the prompt", "first": "first sound", "speaking": "speaking"}
"""Each colour of the timeline and its name in the legend, in the order of time."""
LINE = """(canvas) => {
  // The share of the canvas's columns that a line crosses.
  const { data, width, height } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const rows = [...Array(height).keys()];
  return [...Array(width).keys()].filter((x) => rows.some((y) => data[4 * (y * width + x) + 3])).length / width;
}"""
BARS = """(canvas) => {
  // Of each bar the colours from its foot up, each with its share of the canvas's height.
  const style = getComputedStyle(canvas), pen = document.createElement("canvas").getContext("2d");
  const names = {};
  for (const name of ["waiting", "reading", "first", "speaking", "failed"]) {
    pen.fillStyle = style.getPropertyValue(`--admin-${name}`);
    pen.fillRect(0, 0, 1, 1);
    names[pen.getImageData(0, 0, 1, 1).data.join()] = name;
  }
  const { data, width, height } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const bars = [];
  let before = false;
  for (let x = 0; x < width; x++) {
    const seen = Boolean(data[4 * ((height - 1) * width + x) + 3]);
    if (seen && !before) {
      const stages = {};
      for (let y = height - 1; y >= 0; y--) {
        const at = 4 * (y * width + x), name = names[data.slice(at, at + 4).join()];
        if (name) stages[name] = (stages[name] ?? 0) + 1 / height;
      }
      bars.push(stages);
    }
    before = seen;
  }
  return bars;
}"""


@pytest.fixture
def told(fakes: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """An engine whose token2wav tells times and pages, and that has spoken."""
    stats = fakes.token2wav.stats

    async def with_pages() -> Token2WavStats:
        return replace(await stats(), flow_pages=96, flow_pages_free=53, flow_pages_shared=7)

    monkeypatch.setattr(fakes.token2wav, "stats", with_pages)
    fakes.token2wav.flow_s, fakes.token2wav.vocoder_s = 0.032, 0.008
    speak(fakes)
    fakes.until(fakes.is_idle)
    yield fakes
    fakes.token2wav.flow_s = fakes.token2wav.vocoder_s = 0.0


def speak(service: Service, voice: str = "Ada") -> None:
    body = {"input": "one two three", "voice": voice, "response_format": "pcm"}
    httpx.post(f"{service.url}/v1/audio/speech", json=body, timeout=120).raise_for_status()


def sample(service: Service, times: int = 1) -> None:
    """What else takes a second each."""

    async def look() -> None:
        for _ in range(times):
            await service.office.monitor.sample()

    asyncio.run_coroutine_threadsafe(look(), service.loop).result(120)


def asked(page: Page, path: str) -> dict[str, Any]:
    """What the API tells the page."""
    told: dict[str, Any] = page.request.get(f"{page.url.split('/?')[0]}/admin/{path}").json()
    return told


def figure(page: Page, name: str) -> Locator:
    """The figure with this name."""
    term = page.locator("dt", has_text=re.compile(f"^{re.escape(name)}$"))
    return page.locator("#admin [data-part=figures] > div", has=term).locator("dd")


def summary(number: int, whole_s: float, reason: str = "stop") -> RequestSummary:
    """A request whose four stages took a tenth, two, three and four tenths of its time."""
    return RequestSummary(
        f"request-{number}", "ada", "client", 10, 1, 50, 2.0, queue_s=whole_s / 10, ttfa_s=0.6 * whole_s, rtf=0.5,
        rate=2.0, ended_s=float(number), reason=reason, first_token_s=0.3 * whole_s, whole_s=whole_s,
    )  # fmt: skip


def remember(service: Service, *requests: RequestSummary) -> None:
    """These and no others are the last requests."""

    def put() -> None:
        service.engine._recorder.last_requests.clear()
        service.engine._recorder.last_requests.extend(requests)

    service.in_loop(put)
    sample(service)


def test_times_of_flow_and_vocoder_stand_beside_the_step(told: Service, open_on_fakes: OpenPage) -> None:
    page = enter(open_on_fakes())
    expect(figure(page, "token2wav step")).to_have_text(re.compile(r"^[\d.]+ ms$"))
    expect(figure(page, "flow in a step")).to_have_text("32 ms")
    expect(figure(page, "vocoder (HiFT) in a step")).to_have_text("8 ms")
    live = asked(page, "live")
    assert (live["flow_s"], live["vocoder_s"]) == (pytest.approx(0.032), pytest.approx(0.008))


def test_times_that_token2wav_does_not_tell_are_not_shown(told: Service, open_on_fakes: OpenPage) -> None:
    opened = open_on_fakes()

    def untold(route: Route) -> None:
        reply = route.fetch()
        nothing = {
            name: [None] * len(of) if isinstance(of, list) else None
            for name, of in reply.json().items()
            if name in ("flow_s", "vocoder_s")
        }
        route.fulfill(response=reply, json=reply.json() | nothing)

    opened.page.route(re.compile("/admin/(live|history)"), untold)
    page = enter(opened)
    expect(figure(page, "token2wav step")).to_be_visible()
    expect(page.locator("#admin [data-chart=step_s]")).to_be_visible()
    for name, chart in (("flow in a step", "flow_s"), ("vocoder (HiFT) in a step", "vocoder_s")):
        expect(figure(page, name)).to_have_count(0)
        expect(page.locator(f"#admin [data-chart={chart}]")).to_have_count(0)


def test_pages_of_the_flow_and_gaps_stand_as_the_api_tells_them(told: Service, open_on_fakes: OpenPage) -> None:
    page = enter(open_on_fakes())
    expect(figure(page, "flow and vocoder state")).to_contain_text("43 of 96 pages, 7 of them shared")
    before = asked(page, "live")["underruns"]
    expect(figure(page, "gaps heard")).to_have_text(str(before))
    report = {"underruns": 3, "first_sound_ms": 100, "played_ms": 900}
    httpx.post(f"{told.url}/player/report", json=report).raise_for_status()
    expect(figure(page, "gaps heard")).to_have_text(str(before + 3))
    live = asked(page, "live")
    assert live["underruns"] == before + 3
    assert (live["token2wav"]["flow_pages"], live["token2wav"]["flow_pages_free"]) == (96, 53)


@pytest.mark.parametrize("span", ["10m", "24h"])
def test_charts_draw_a_line_of_what_was_sampled(told: Service, open_on_fakes: OpenPage, span: str) -> None:
    sample(told, 3 * COARSE_EVERY)
    speak(told)
    sample(told, 3 * COARSE_EVERY)
    page = enter(open_on_fakes())
    page.locator("#admin [data-part=span]").select_option(span)
    history = asked(page, f"history?span={span}")
    assert max(history["flow_s"], key=lambda value: value or 0) == pytest.approx(0.032)
    for name, most in (("rss_mb", " MB"), ("running", "≤ 0"), ("kv", "≤ 0.0 %")):
        chart = page.locator(f"#admin [data-chart={name}]")
        expect(chart.locator("figcaption")).to_contain_text(most)
        known = sum(value is not None for value in history[name])
        assert known >= 6 and chart.locator("canvas").evaluate(LINE) > 0.9
    for name, most in (("flow_s", "≤ 32 ms"), ("vocoder_s", "≤ 8 ms")):
        chart = page.locator(f"#admin [data-chart={name}]")
        expect(chart.locator("figcaption")).to_contain_text(most)
        # Steps were made in moments alone, and each of these is seen.
        assert 0 < chart.locator("canvas").evaluate(LINE) < 0.5


def test_timeline_has_a_bar_a_request_coloured_by_stage(fakes: Service, open_on_fakes: OpenPage) -> None:
    remember(fakes, summary(1, 10.0), summary(2, 5.0), summary(3, 10.0, "aborted"))
    page = enter(open_on_fakes())
    legend = page.locator("#admin [data-part=legend] span")
    expect(legend).to_have_text(list(STAGES.values()))
    shades = legend.evaluate_all("items => items.map((item) => item.style.getPropertyValue('--shade'))")
    assert shades == [f"var(--admin-{name})" for name in STAGES]
    expect(page.locator("#admin [data-part=timeline-note]")).to_contain_text("each of 3 requests")
    expect(page.locator("#admin [data-part=timeline-note]")).to_contain_text("10.00 s")
    whole, half, failed = page.locator("#admin [data-part=timeline]").evaluate(BARS)
    for bar, height in ((whole, 1.0), (half, 0.5)):
        assert list(bar) == list(STAGES)  # from the foot up
        assert list(bar.values()) == pytest.approx([0.1 * height, 0.2 * height, 0.3 * height, 0.4 * height], abs=0.05)
    assert next(iter(failed)) == "failed" and "failed" not in whole | half


def test_timeline_keeps_the_last_two_hundred_apart_and_fits_a_phone(fakes: Service, open_on_fakes: OpenPage) -> None:
    remember(fakes, *(summary(number, 4.0) for number in range(LAST_REQUESTS + 5)))
    page = enter(open_on_fakes())
    expect(page.locator("#admin [data-part=timeline-note]")).to_contain_text(f"each of {LAST_REQUESTS} requests")
    bars = page.locator("#admin [data-part=timeline]").evaluate(BARS)
    assert len(bars) == LAST_REQUESTS and all(list(bar) == list(STAGES) for bar in bars)
    phone = enter(open_on_fakes(viewport=PHONE, theme="dark"))
    expect(phone.locator("#admin [data-part=timeline-note]")).to_contain_text(f"each of {LAST_REQUESTS} requests")
    canvas = phone.locator("#admin [data-part=timeline]")
    assert all(list(bar) == list(STAGES) for bar in canvas.evaluate(BARS))
    assert 0.5 < canvas.evaluate(LINE) < 1.0  # a pixel for each of them, and the last is whole


def test_blocks_that_requests_of_a_voice_share_are_marked(fakes: Service, open_on_fakes: OpenPage) -> None:
    held = asyncio.Event()
    transcript = " ".join(["word"] * 40)  # more than a block of the cache
    fakes.in_loop(lambda: fakes.store.add(clip_samples(), 24000, transcript, name="Long"))
    for _ in range(2):
        fakes.lm.enqueue(Say(40), WaitFor(held), Finish())
    speaking = [threading.Thread(target=speak, args=(fakes, "Long")) for _ in range(2)]
    for thread in speaking:
        thread.start()
    try:
        fakes.until(lambda: [request.tokens for request in fakes.engine.in_flight()] == [40, 40])
        page = enter(open_on_fakes())
        parts = page.locator("#admin [data-part=pages] span")
        shared = page.locator("#admin [data-part=pages] [data-shared]")
        expect(shared).to_have_count(1)
        first, second = asked(page, "live")["pages"]["shares"]
        assert first["shared"] == 0 < second["shared"]
        expect(shared).to_have_attribute("title", f"{second['request_id']} ({second['shared']})")
        expect(parts).to_have_count(4)  # the first's, the second's shared and own, and what is free
        grown = parts.evaluate_all("parts => parts.map((part) => Number(part.style.flexGrow))")
        assert grown[:3] == [first["blocks"], second["shared"], second["blocks"] - second["shared"]]
        hatched = [part.evaluate("part => getComputedStyle(part).backgroundImage") for part in parts.all()]
        assert [image != "none" for image in hatched] == [False, True, False, False]
        expect(page.locator("#admin [data-part=pages-note]")).to_contain_text("Hatched: shared")
    finally:
        fakes.in_loop(held.set)
        for thread in speaking:
            thread.join(120)
