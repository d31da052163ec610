"""While the checkpoint is fetched the port answers, the page tells how far it is, and then the studio takes over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from studio.api.arrival import Arrival
from studio.errors import CheckpointError, HubError, StudioError
from studio.hub.download import Download, Progress
from studio.hub.listing import Repository


class SlowDownload(Download):
    """A download that stands where the test puts it, until the test ends it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(Repository("a/b"), folder)
        self.progress = Progress(600_000_000, 2_400_000_000, "llm.pt")
        self.outcome: asyncio.Future[StudioError | None] = asyncio.Future()

    async def run(self) -> Path:
        if error := await self.outcome:
            raise error
        return self.folder


class Studio:
    """Stands for the studio: what it was built on, and whether its lifespan is open."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.open = False

    def build(self, folder: Path) -> FastAPI:
        @asynccontextmanager
        async def lifespan(_: FastAPI) -> AsyncIterator[None]:
            self.open = True
            yield
            self.open = False

        self.folder, app = folder, FastAPI(lifespan=lifespan)
        app.get("/health")(lambda: {"status": "ok", "workers": []})
        return app


@pytest.fixture
def studio() -> Studio:
    return Studio()


@asynccontextmanager
async def served(download: Download, build: Callable[[Path], FastAPI]) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the application, its lifespan open."""
    arrival = Arrival(download, build)
    async with (
        arrival.waiting_room.router.lifespan_context(arrival.waiting_room),
        httpx.AsyncClient(transport=httpx.ASGITransport(arrival), base_url="http://studio") as client,
    ):
        yield client


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0)


async def test_page_and_health_tell_how_far_the_download_is(tmp_path, studio):
    download = SlowDownload(tmp_path)
    async with served(download, studio.build) as client:
        page = await client.get("/")
        assert page.status_code == 200 and "arrival.js" in page.text
        assert (await client.get("/web/arrival.js")).status_code == 200
        reply = await client.get("/health", headers={"Accept-Language": "en"})
        (worker,) = reply.json()["workers"]
        assert (reply.status_code, reply.json()["status"]) == (503, "starting")
        assert (worker["name"], worker["fraction"], worker["reason"]) == ("checkpoint", 0.25, "0.60 of 2.40 GB")
        download.progress = replace(download.progress, trouble="huggingface.co: HTTP 502")
        (worker,) = (await client.get("/health", headers={"Accept-Language": "zh"})).json()["workers"]
        assert "HTTP 502" in worker["reason"] and "等待重试" in worker["reason"]


async def test_everything_else_is_told_to_come_back_in_the_shape_of_openai(tmp_path, studio):
    async with served(SlowDownload(tmp_path), studio.build) as client:
        for path in ("/v1/audio/speech", "/v1/models", "/gradio_api/info"):
            reply = await client.post(path, json={})
            assert reply.status_code == 503 and int(reply.headers["Retry-After"]) >= 1
            assert reply.json()["error"]["code"] == "engine_not_ready"
            assert "fetching the checkpoint" in reply.json()["error"]["message"]


async def test_the_studio_is_built_on_the_folder_takes_over_and_is_closed_at_the_end(tmp_path, studio):
    download = SlowDownload(tmp_path)
    async with served(download, studio.build) as client:
        download.outcome.set_result(None)
        await until(lambda: studio.open)
        assert studio.folder == download.folder
        assert (await client.get("/health")).json()["status"] == "ok"
    assert not studio.open


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (HubError("hub.unreachable", host="hf", reason="HTTP 503"), "What came is kept"),
        (CheckpointError("checkpoint.damaged", file="llm.pt", folder="/there"), "llm.pt in /there"),
    ],
)
async def test_a_failure_is_shown_with_its_remedy(tmp_path, studio, error, words):
    download = SlowDownload(tmp_path)

    def refuse(_: Path) -> FastAPI:
        raise error

    in_hub = isinstance(error, HubError)
    async with served(download, studio.build if in_hub else refuse) as client:
        download.outcome.set_result(error if in_hub else None)
        await until(download.outcome.done)
        await asyncio.sleep(0)
        body = (await client.get("/health")).json()
        assert body["status"] == "failed" and words in body["workers"][0]["reason"]
        reply = await client.get("/v1/models")
        assert reply.status_code == 503 and words in reply.json()["error"]["message"]


async def test_leaving_in_the_middle_ends_the_download(tmp_path, studio):
    download = SlowDownload(tmp_path)
    async with served(download, studio.build):
        await asyncio.sleep(0)
    assert download.outcome.cancelled() and not studio.open
