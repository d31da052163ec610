"""What answers while the checkpoint is being fetched: a page that shows how far that is, and 503 for all else.

Then the studio is built on the checkpoint's folder and takes over, on the same port; the page loads itself again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles

from studio.api import errors
from studio.api.asgi import Asgi, Receive, Scope, Send
from studio.errors import EngineNotReady, StudioError
from studio.hub.download import Download
from studio.messages import MessageKey, render

ASSETS = Path(__file__).resolve().parents[2] / "assets"
STAGE = "stage.downloading"
logger = logging.getLogger(__name__)


class Arrival:
    """An application that becomes another one. build: the studio on a whole folder; it may raise CheckpointError."""

    def __init__(self, download: Download, build: Callable[[Path], FastAPI]) -> None:
        self._download = download
        self._build = build
        self._failure: StudioError | None = None
        self._leave = asyncio.Event()
        self.waiting_room = self._build_waiting_room()
        self._answers: Asgi = self.waiting_room

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self.waiting_room if scope["type"] == "lifespan" else self._answers)(scope, receive, send)

    def _build_waiting_room(self) -> FastAPI:
        room = FastAPI(title="CosyVoice Studio", lifespan=self._lifespan, openapi_url=None)
        errors.install(room)

        @room.get("/")
        async def page() -> FileResponse:
            return FileResponse(ASSETS / "web" / "arrival.html", headers={"Cache-Control": "no-store"})

        @room.get("/health")
        async def health(request: Request) -> JSONResponse:
            return JSONResponse(self._state(errors.language_of(request)), 503, {"Cache-Control": "no-store"})

        @room.get("/favicon.ico")
        async def favicon() -> FileResponse:
            return FileResponse(ASSETS / "logo.svg", media_type="image/svg+xml")

        room.mount("/web/messages", StaticFiles(directory=ASSETS / "messages"))
        room.mount("/web", StaticFiles(directory=ASSETS / "web"))

        @room.api_route("/{path:path}", methods=["GET", "POST", "PUT", "PATCH", "DELETE"])
        async def not_yet(path: str) -> None:
            if self._failure is not None:
                raise EngineNotReady("engine.failed", reason=self._failure)
            seconds = self._download.remaining_s()
            raise EngineNotReady(
                "engine.not_ready", stage=MessageKey(STAGE), seconds=seconds, retry_after_s=seconds
            )

        return room

    def _state(self, language: str) -> dict[str, object]:
        """The download as the body of /health, in the form that the page's status line reads."""
        progress = self._download.progress
        done, total = (f"{size / 1e9:.2f}" for size in (progress.done_bytes, progress.total_bytes))
        key = "hub.waiting" if progress.trouble else "hub.bytes"
        reason = render(key, language, done=done, total=total, trouble=progress.trouble)
        stage = STAGE if self._failure is None else "stage.failed"
        worker = {
            "name": "checkpoint",
            "stage": stage,
            "text": render(stage, language),
            "fraction": round(progress.fraction, 3),
            "reason": reason if self._failure is None else self._failure.message(language),
        }
        status = "starting" if self._failure is None else "failed"
        eta_s = round(self._download.remaining_s(), 1)
        return {"status": status, "workers": [worker], "running": 0, "waiting": 0, "eta_s": eta_s}

    @asynccontextmanager
    async def _lifespan(self, _room: FastAPI) -> AsyncIterator[None]:
        living = asyncio.create_task(self._live(), name="arrival")
        try:
            yield
        finally:
            self._leave.set()
            if self._answers is self.waiting_room:
                living.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await living

    async def _live(self) -> None:
        """Fetch, build, hand over, and keep the studio's own lifespan open in this one task until the end."""
        try:
            began_s = time.monotonic()
            folder = await self._download.run()
            logger.info("the checkpoint is whole in %s after %.0f s", folder, time.monotonic() - began_s)
            studio = self._build(folder)
        except StudioError as error:
            logger.error("no checkpoint: %s", error)
            self._failure = error
            return
        except Exception:
            logger.exception("the studio could not be built")
            self._failure = StudioError("internal")
            return
        async with studio.router.lifespan_context(studio):
            self._answers = studio
            await self._leave.wait()
