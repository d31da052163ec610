"""Debian's Chromium on the real studio. A missing browser or weight fails; nothing here is skipped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import soundfile
import uvicorn
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.api.conftest import Service, clip_samples, serve, stop
from tests.browser.studio_page import PROMPTS, WAIT_MS, StudioPage
from tests.fake_studio import FakeStudio
from tests.real_studio import ADMIN_PASSWORD, RealStudio
from tests.simulated_rater import Owner

CHROMIUM = "/usr/bin/chromium"
MICROPHONE_CLIP = PROMPTS / "am_onyx_en.flac"
PHONE = {"width": 390, "height": 844}
DESKTOP = {"width": 1200, "height": 900}
TAP = Path(__file__).with_name("tap.js")
OpenPage = Callable[..., StudioPage]
OpenOwner = Callable[..., Page]

PATIENCE_MS = 120_000
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="session")
def microphone_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the microphone hears: a prompt, again and again, as Chromium reads it."""
    samples, rate_hz = soundfile.read(MICROPHONE_CLIP, dtype="float32")
    file = tmp_path_factory.mktemp("microphone") / "speech.wav"
    soundfile.write(file, samples, rate_hz, subtype="PCM_16")
    return file


@pytest.fixture(scope="module")
def chromium(microphone_file: Path) -> Iterator[Browser]:
    """One for a file: while it is open, Playwright's loop runs in this thread, and a coroutine's test could not."""
    flags = [
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--use-fake-ui-for-media-stream",
        "--use-fake-device-for-media-stream",
        f"--use-file-for-fake-audio-capture={microphone_file}",
    ]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield browser
        browser.close()


def context_of(chromium: Browser, **how: Any) -> BrowserContext:
    """A person's browser, on a machine that may be busy."""
    context = chromium.new_context(**how)
    context.set_default_timeout(PATIENCE_MS)
    return context


@contextmanager
def opening(chromium: Browser, url: str) -> Iterator[OpenPage]:
    """Opens pages, each as a person of its own; an uncaught error in any of them fails the test.

    beside: open another tab of that page's browser instead.
    """
    contexts: list[BrowserContext] = []
    errors: list[str] = []

    def open_one(
        locale: str = "en-US",
        theme: str = "light",
        viewport: dict[str, int] = DESKTOP,
        ready: bool = True,
        beside: Page | None = None,
    ) -> StudioPage:
        if beside is None:
            context = context_of(chromium, locale=locale, viewport=viewport, permissions=["microphone"])
            contexts.append(context)
            context.add_init_script(path=TAP)
        else:
            context = beside.context
        page: Page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(f"{url}/?__theme={theme}")
        page.wait_for_selector("#player [data-ready]", state="attached", timeout=WAIT_MS)
        opened = StudioPage(page)
        if ready:
            expect(opened.engine).to_have_attribute("data-state", "ready", timeout=WAIT_MS)
            expect(opened.voice).not_to_have_value("")
        return opened

    yield open_one
    for context in contexts:
        context.close()
    assert not errors


@contextmanager
def opening_raters(chromium: Browser, url: str) -> Iterator[Callable[..., Page]]:
    """Opens raters' pages, each in a browser of its own; an uncaught error in any of them fails the test."""
    contexts: list[BrowserContext] = []
    errors: list[str] = []

    def open_one(
        token: str,
        locale: str = "en-US",
        viewport: dict[str, int] = DESKTOP,
        watch: Callable[[Page], object] = lambda page: None,
        **how: object,
    ) -> Page:
        """watch: sees the page before anything is loaded."""
        context = context_of(chromium, locale=locale, viewport=viewport, **how)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        watch(page)
        page.goto(f"{url}/listen/{token}")
        expect(page.locator("body")).not_to_have_attribute("data-phase", "loading")
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert not errors


@pytest.fixture
def open_page(chromium: Browser, studio: RealStudio) -> Iterator[OpenPage]:
    """Opens pages on the real engine."""
    with opening(chromium, studio.url) as open_one:
        yield open_one


@pytest.fixture(scope="session")
def running_fakes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    running: list[tuple[uvicorn.Server, threading.Thread]] = []
    yield serve(tmp_path_factory.mktemp("fakes"), running, "--admin-password", ADMIN_PASSWORD)
    stop(running)


@pytest.fixture
def fakes(running_fakes: Service) -> Service:
    """The page on the scripted engine, idle, with the voices Ada and Bob."""
    running_fakes.until(running_fakes.is_idle)
    running_fakes.in_loop(running_fakes.forget)
    running_fakes.in_loop(lambda: running_fakes.store.add(clip_samples(3.0), 24000, "good day", name="Bob"))
    return running_fakes


@pytest.fixture
def owner(fakes: Service) -> Owner:
    """The owner of listening tests on the scripted engine."""
    return Owner(fakes.url)


@pytest.fixture
def open_rater(chromium: Browser, fakes: Service) -> Iterator[Callable[..., Page]]:
    """Opens raters' pages on the scripted engine."""
    with opening_raters(chromium, fakes.url) as open_one:
        yield open_one


@pytest.fixture
def open_on_fakes(chromium: Browser, fakes: Service) -> Iterator[OpenPage]:
    """Opens pages on the scripted engine: for what does not depend on how speech sounds."""
    with opening(chromium, fakes.url) as open_one:
        yield open_one


@pytest.fixture(scope="session")
def fake_studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeStudio]:
    """The studio on scripted models with ears that hear, in a process that a test may kill and start again."""
    studio = FakeStudio(tmp_path_factory.mktemp("fake_studio"))
    studio.start()
    yield studio
    studio.stop()


@pytest.fixture
def open_on_fake_studio(chromium: Browser, fake_studio: FakeStudio) -> Iterator[OpenPage]:
    """Opens pages on it."""
    with opening(chromium, fake_studio.url) as open_one:
        yield open_one


@pytest.fixture
def page(open_page: OpenPage) -> StudioPage:
    """The page in English on a desk."""
    return open_page()


@pytest.fixture
def open_owner(chromium: Browser, fakes: Service) -> Iterator[OpenOwner]:
    """Opens the tab, each time as an owner of its own; an uncaught error fails the test."""
    contexts: list[BrowserContext] = []
    errors: list[str] = []

    def open_one(locale: str = "en-US", viewport: dict[str, int] = DESKTOP, theme: str = "light") -> Page:
        context = context_of(chromium, locale=locale, viewport=viewport)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(f"{fakes.url}/?__theme={theme}")
        StudioPage(page).open_tab("Listening tests", "听音测试")
        expect(page.locator(".listening")).to_have_attribute("data-state", "empty")
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert not errors
