"""The web application: our routes and static files behind the gate, and the page mounted at /."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
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
from studio.api.client_functions import ClientFunctions
from studio.api.clips import clips_router
from studio.api.conversion import conversion_router
from studio.api.designs import designs_router
from studio.api.gate import Gate
from studio.api.guard import Guard
from studio.api.jobs import jobs_router
from studio.api.limits import BodyLimit
from studio.api.line_request import LineRequests
from studio.api.listening_room import install_listening
from studio.api.pronunciations import pronunciations_router
from studio.api.scripts import scripts_router
from studio.api.service import service_router
from studio.api.speaking import Speaking
from studio.api.speech import speech_router
from studio.api.takes import takes_router
from studio.api.text_preview import preview_router
from studio.api.voices import sweep_drafts, voices_router
from studio.engine.engine import Engine
from studio.engine.jobs import Jobs
from studio.library.prompts import VoicePrompts
from studio.library.pronunciations import Pronunciations
from studio.library.starters import in_order
from studio.library.store import VoiceStore
from studio.messages import LANGUAGES
from studio.protocols import Ears
from studio.script.runner import ScriptRunner
from studio.script.store import ScriptStore
from studio.settings import Settings
from studio.speech import ServedModel
from studio.takes.recorder import TakeRecorder
from studio.takes.store import TakeStore

ASSETS = Path(__file__).resolve().parents[2] / "assets"
SWEEP_S = 3600.0
ANY_METHOD = ["GET", "POST", "PUT", "PATCH", "DELETE"]
logger = logging.getLogger(__name__)


async def keep_sweeping(store: VoiceStore, prompts: VoicePrompts) -> None:
    """Forget old drafts now and every hour, as long as the server runs."""
    while True:
        try:
            sweep_drafts(store, prompts)
        except (sqlite3.Error, OSError):
            logger.exception("old drafts could not be forgotten; the next try is in an hour")
        await asyncio.sleep(SWEEP_S)


def build_web(
    engine: Engine,
    store: VoiceStore,
    prompts: VoicePrompts,
    settings: Settings,
    model: ServedModel,
    ears: Ears,
    now: Callable[[], float] = time.time,
    office: Office | None = None,
) -> FastAPI:
    """The whole application; the engine's workers start once the server answers, and end with it.

    now: Unix time, by which invitations expire and listening takes its time. office: what /admin shows and changes;
    without one there is no /admin.
    """

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        sweeping = asyncio.create_task(keep_sweeping(store, prompts), name="sweep drafts")
        engine.on_ready(prompts.show_presets)
        engine.on_ready(prompts.prepare_expected)
        for voice in in_order(store, LANGUAGES[0])[:1]:
            prompts.expect(voice)  # the one that the page picks at first
        await ears.start()
        await engine.start()
        runner.resume()
        if office is not None:
            office.start()
        try:
            yield
        finally:
            sweeping.cancel()
            if office is not None:
                await office.close()
            await listening.close()
            await runner.close()
            await jobs.close()
            await engine.close()
            await ears.close()
            store.close()
            pronunciations.close()
            takes.close()
            scripts.close()

    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    app = FastAPI(title="CosyVoice Studio", version=__version__, lifespan=lifespan)
    origins = [o.strip() for o in settings.allowed_origins.split(",") if o.strip()]
    guard = Guard(settings.api_key, origins)
    takes = TakeStore(settings.folder("takes"), settings.takes_max_mb)
    recorder = TakeRecorder(takes, model.name)
    scripts = ScriptStore(settings.folder("scripts"))
    pronunciations = Pronunciations(settings.folder("library"))
    speaking = Speaking(engine, store, prompts, model, recorder, pronunciations, settings.max_text_chars)
    runner = ScriptRunner(engine, scripts, takes, recorder, LineRequests(speaking), settings.script_lines_at_once)
    errors.install(app)
    jobs = Jobs()
    app.include_router(speech_router(speaking, guard.client_of))
    app.include_router(arriving_router(speaking, guard.client_of, settings.listener_timeout_s))
    app.include_router(conversion_router(speaking, settings, guard.client_of))
    app.include_router(jobs_router(speaking, jobs, guard.client_of))
    app.include_router(preview_router(speaking))
    app.include_router(pronunciations_router(pronunciations, store))
    app.include_router(checks_router(speaking, takes, TakeChecks(takes, store, ears), guard.client_of))
    app.include_router(takes_router(takes, engine, store, prompts, guard.client_of))
    app.include_router(scripts_router(scripts, takes, store, runner, guard.client_of))
    app.include_router(clips_router(ears, settings))
    app.include_router(voices_router(store, prompts, settings))
    app.include_router(designs_router(store, prompts))
    app.include_router(bundles_router(store, prompts))
    app.include_router(service_router(engine, model))
    listening = app.state.listening = install_listening(
        app, engine, store, prompts, takes, settings, model, guard, now,
        lending=None if office is None else Lending(office.tuning),
    )  # fmt: skip

    if office is not None:
        app.include_router(admin_router(office, engine, listening))

    @app.api_route("/admin/{path:path}", methods=ANY_METHOD, include_in_schema=False)
    @app.api_route(
        "/v1/{path:path}", methods=ANY_METHOD, include_in_schema=False
    )
    async def nothing_here(path: str) -> None:
        # Without this the page, mounted at /, would answer for routes that do not exist, in a shape of its own.
        raise HTTPException(404)

    @app.get("/favicon.ico", include_in_schema=False)
    async def favicon() -> FileResponse:
        return FileResponse(ASSETS / "logo.svg", media_type="image/svg+xml")

    app.mount("/web/messages", StaticFiles(directory=ASSETS / "messages"))
    app.mount("/web", StaticFiles(directory=ASSETS / "web"))
    # The last one added is the outermost.
    app.add_middleware(BodyLimit, max_clip_mb=settings.max_clip_mb)
    app.add_middleware(Gate, guard=guard)
    # Even with no origin allowed this must be here: it switches off Gradio's own CORS, which echoes every origin.
    app.add_middleware(
        CORSMiddleware,
        allow_origins=origins,
        allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
        allow_headers=["Authorization", "Content-Type"],
    )
    if not settings.page:
        return app
    # Not at the top: a server of the API alone need not have Gradio.
    from studio.ui.blocks import build_page
    from studio.ui.mount import mount_page

    functions = ClientFunctions(speaking, store, guard.client_of)
    return mount_page(app, build_page(store, prompts, settings, ears, functions))
