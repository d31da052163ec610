"""The web application: our routes and static files behind the gate, and the page mounted at /."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI, HTTPException
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from starlette.middleware.cors import CORSMiddleware

from studio import __version__
from studio.admin.lending import Lending
from studio.admin.office import Office
from studio.api import errors
from studio.api.admin import admin_router
from studio.api.arriving import arriving_router
from studio.api.bundles import bundles_router
from studio.api.checks import TakeChecks, checks_router
from studio.api.clips import clips_router
from studio.api.conversion import conversion_router
from studio.api.designs import designs_router
from studio.api.gate import Gate
from studio.api.guard import Guard
from studio.api.jobs import jobs_router
from studio.api.limits import BodyLimit
from studio.api.line_request import LineRequests
from studio.api.listening_room import install_listening
from studio.api.own_routes import OwnRoutes
from studio.api.pronunciations import pronunciations_router
from studio.api.scripts import scripts_router
from studio.api.service import service_router
from studio.api.speaking import Speaking
from studio.api.speech import speech_router
from studio.api.takes import takes_router
from studio.api.text_preview import preview_router
from studio.api.voices import sweep_drafts, voices_router
from studio.engine.jobs import Jobs
from studio.library.pronunciations import Pronunciations
from studio.library.starters import in_order
from studio.library.store import VoiceStore
from studio.listening.room import ListeningRoom
from studio.messages import LANGUAGES
from studio.protocols import Ears
from studio.registry.models import Models
from studio.script.runner import ScriptRunner
from studio.script.store import ScriptStore
from studio.settings import Settings
from studio.takes.recorder import TakeRecorder
from studio.takes.store import TakeStore

ASSETS = Path(__file__).resolve().parents[2] / "assets"
SWEEP_S = 3600.0
ANY_METHOD = ["GET", "POST", "PUT", "PATCH", "DELETE"]
logger = logging.getLogger(__name__)


async def keep_sweeping(store: VoiceStore, models: Models) -> None:
    """Forget old drafts now and every hour, as long as the server runs."""
    while True:
        try:
            sweep_drafts(store, models)
        except (sqlite3.Error, OSError):
            logger.exception("old drafts could not be forgotten; the next try is in an hour")
        await asyncio.sleep(SWEEP_S)


@dataclass(frozen=True, slots=True)
class Rooms:
    """What the application serves, each opened once and closed with it. office: None where there is no /admin."""

    models: Models
    voices: VoiceStore
    settings: Settings
    ears: Ears
    office: Office | None
    guard: Guard
    takes: TakeStore
    scripts: ScriptStore
    pronunciations: Pronunciations
    speaking: Speaking
    runner: ScriptRunner
    jobs: Jobs


def build_web(
    models: Models,
    store: VoiceStore,
    settings: Settings,
    ears: Ears,
    now: Callable[[], float] = time.time,
    office: Office | None = None,
) -> FastAPI:
    """The whole application; the default model's workers start once the server answers, and all end with it.

    now: Unix time, by which invitations expire and listening takes its time. office: what /admin shows and changes;
    without one there is no /admin.
    """
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    rooms = _opened(models, store, settings, ears, office)
    app = FastAPI(title="CosyVoice Studio", version=__version__, lifespan=_lifespan(rooms))
    app.state.rooms = rooms
    errors.install(app)
    _add_routes(app, rooms)
    app.state.listening = listening = _add_listening(app, rooms, now)
    if office is not None:
        app.include_router(admin_router(office, models, listening))
    _add_files(app)
    _add_gates(app, rooms)
    return _with_page(app, rooms) if settings.page else app


def _opened(
    models: Models, voices: VoiceStore, settings: Settings, ears: Ears, office: Office | None
) -> Rooms:
    """What is given, and what stands on it."""
    takes = TakeStore(settings.folder("takes"), settings.takes_max_mb)
    recorder = TakeRecorder(takes, models.default.name)
    scripts = ScriptStore(settings.folder("scripts"))
    pronunciations = Pronunciations(settings.folder("library"))
    speaking = Speaking(models, voices, recorder, pronunciations, settings.max_text_chars)
    engine, lines_at_once = models.default.engine, settings.script_lines_at_once
    runner = ScriptRunner(engine, scripts, takes, recorder, LineRequests(speaking), lines_at_once)
    return Rooms(
        models, voices, settings, ears, office, Guard(settings.api_key, _origins(settings)),
        takes, scripts, pronunciations, speaking, runner, Jobs(),
    )  # fmt: skip


def _lifespan(rooms: Rooms) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    """Everything starts when the server does, and ends with it in the other order."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        sweeping = asyncio.create_task(keep_sweeping(rooms.voices, rooms.models), name="sweep drafts")
        for voice in in_order(rooms.voices, LANGUAGES[0])[:1]:
            rooms.models.expect(voice)  # the one that the page picks at first
        await rooms.ears.start()
        await rooms.models.start()
        rooms.runner.resume()
        if rooms.office is not None:
            rooms.office.start()
        try:
            yield
        finally:
            sweeping.cancel()
            if rooms.office is not None:
                await rooms.office.close()
            for room in (app.state.listening, rooms.runner, rooms.jobs, rooms.models, rooms.ears):
                await room.close()
            for store in (rooms.voices, rooms.pronunciations, rooms.takes, rooms.scripts):
                store.close()

    return lifespan


def _add_routes(app: FastAPI, rooms: Rooms) -> None:
    """/v1 but for listening tests."""
    speaking, settings, client_of = rooms.speaking, rooms.settings, rooms.guard.client_of
    models, voices, takes = rooms.models, rooms.voices, rooms.takes
    for router in (
        speech_router(speaking, client_of),
        arriving_router(speaking, client_of, settings.listener_timeout_s),
        conversion_router(speaking, settings, client_of),
        jobs_router(speaking, rooms.jobs, client_of),
        preview_router(speaking),
        pronunciations_router(rooms.pronunciations, voices),
        checks_router(speaking, takes, TakeChecks(takes, voices, rooms.ears), client_of),
        takes_router(takes, models, voices, client_of),
        scripts_router(rooms.scripts, takes, voices, rooms.runner, client_of),
        clips_router(rooms.ears, settings),
        voices_router(voices, models, settings),
        designs_router(voices, models),
        bundles_router(voices, models.default.prompts),
        service_router(models),
    ):
        app.include_router(router)


def _add_listening(app: FastAPI, rooms: Rooms, now: Callable[[], float]) -> ListeningRoom:
    """/v1/listening and the raters' pages."""
    return install_listening(
        app, rooms.models, rooms.voices, rooms.takes, rooms.settings, rooms.guard, now,
        lending=None if rooms.office is None else Lending(rooms.office.tuning),
    )  # fmt: skip


def _add_files(app: FastAPI) -> None:
    """What does not exist, and the page's own files; after all other routes."""

    # Gradio fetches any public address for anybody at these, which the page never uses.
    @app.api_route("/gradio_api/file=http{path:path}", methods=["GET", "HEAD"], include_in_schema=False)
    @app.api_route("/gradio_api/file/http{path:path}", methods=["GET", "HEAD"], include_in_schema=False)
    @app.api_route("/admin/{path:path}", methods=ANY_METHOD, include_in_schema=False)
    @app.api_route("/v1/{path:path}", methods=ANY_METHOD, include_in_schema=False)
    async def nothing_here(path: str) -> None:
        # Without this the page, mounted at /, would answer for routes that do not exist, in a shape of its own.
        raise HTTPException(404)

    @app.get("/favicon.ico", include_in_schema=False)
    async def favicon() -> FileResponse:
        return FileResponse(ASSETS / "logo.svg", media_type="image/svg+xml")

    app.mount("/web/messages", StaticFiles(directory=ASSETS / "messages"))
    app.mount("/web", StaticFiles(directory=ASSETS / "web"))


def _add_gates(app: FastAPI, rooms: Rooms) -> None:
    """What every request passes; the last one added is the outermost."""
    app.add_middleware(BodyLimit, max_clip_mb=rooms.settings.max_clip_mb)
    app.add_middleware(Gate, guard=rooms.guard)
    # Even with no origin allowed this must be here: it switches off Gradio's own CORS, which echoes every origin.
    app.add_middleware(
        CORSMiddleware,
        allow_origins=_origins(rooms.settings),
        allow_methods=ANY_METHOD,
        allow_headers=["Authorization", "Content-Type"],
    )


def _origins(settings: Settings) -> list[str]:
    return [o.strip() for o in settings.allowed_origins.split(",") if o.strip()]


def _with_page(app: FastAPI, rooms: Rooms) -> FastAPI:
    """The page at /, behind the routes."""
    # Not at the top: a server of the API alone need not have Gradio.
    from studio.ui.blocks import build_page
    from studio.ui.mount import mount_page

    page = build_page(rooms.voices, rooms.models.default.prompts, rooms.settings, rooms.ears, OwnRoutes(app))
    return mount_page(app, page)
