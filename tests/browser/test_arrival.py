"""The page while a checkpoint is being fetched: how far it is, in the reader's language, and then the studio."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import uvicorn
from fastapi import FastAPI
from fastapi.responses import HTMLResponse
from playwright.sync_api import Browser, expect

from studio.api.arrival import Arrival
from tests.api.test_arrival import SlowDownload
from tests.browser.conftest import PHONE


@dataclass
class Arriving:
    """A served arrival, and the download that the test moves. loop: of the server."""

    url: str
    download: SlowDownload
    loop: asyncio.AbstractEventLoop

    def finish(self) -> None:
        self.loop.call_soon_threadsafe(self.download.outcome.set_result, None)


def build(_: Path) -> FastAPI:
    """Stands for the studio: its page, and a health without a checkpoint that arrives."""
    app = FastAPI()
    app.get("/health")(lambda: {"status": "ok", "workers": []})
    app.get("/")(lambda: HTMLResponse("<h1 id='studio'>here</h1>"))
    return app


@pytest.fixture
def arriving(tmp_path: Path) -> Iterator[Arriving]:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    url, ready = f"http://127.0.0.1:{listener.getsockname()[1]}", threading.Event()
    made: list[Arriving] = []
    servers: list[uvicorn.Server] = []

    async def serve() -> None:
        download = SlowDownload(tmp_path)
        made.append(Arriving(url, download, asyncio.get_running_loop()))
        servers.append(uvicorn.Server(uvicorn.Config(Arrival(download, build), log_level="warning")))
        ready.set()
        await servers[0].serve(sockets=[listener])

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    ready.wait(120)
    yield made[0]
    servers[0].should_exit = True
    thread.join(120)


@pytest.mark.parametrize(("locale", "words"), [("en-US", "fetching the checkpoint"), ("zh-CN", "正在下载模型")])
def test_page_tells_how_far_the_fetch_is_and_opens_the_studio(
    chromium: Browser, arriving: Arriving, locale: str, words: str
) -> None:
    context = chromium.new_context(locale=locale, viewport=PHONE)
    page = context.new_page()
    page.goto(arriving.url)
    status = page.locator("#arrival")
    expect(status).to_contain_text(words)
    expect(status).to_contain_text("0.60")
    assert page.locator("progress").evaluate("bar => bar.value") == 0.25
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    arriving.download.progress = replace(arriving.download.progress, done_bytes=1_200_000_000, trouble="HTTP 502")
    expect(status).to_contain_text("HTTP 502")
    expect(page.locator("#told")).to_contain_text("50 %")
    arriving.finish()
    expect(page.locator("#studio")).to_be_visible()
    context.close()
