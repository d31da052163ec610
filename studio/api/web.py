"""The web application: our routes, static files, the session cookie, and the page mounted at /."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, HTTPException
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from starlette.middleware.cors import CORSMiddleware

from studio import __version__
from studio.api import errors
from studio.api.guard import SESSION_COOKIE, api_key_guard, new_session
from studio.api.service import service_router
from studio.api.speech import speech_router
from studio.api.voices import voices_router
from studio.engine.engine import Engine
from studio.library.prompts import VoicePrompts
from studio.library.store import VoiceStore
from studio.messages import LANGUAGES
from studio.settings import Settings
from studio.speech import ServedModel
from studio.ui.blocks import build_page
from studio.ui.mount import mount_page
from studio.ui.voices import in_order

ASSETS = Path(__file__).resolve().parents[2] / "assets"
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Asgi = Callable[
    [Scope, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]


class SessionCookie:
    """Gives each browser that loads the page a session: its turn in the fair queue. Plain ASGI, streams pass."""

    def __init__(self, app: Asgi, api_key: str) -> None:
        self._app = app
        self._api_key = api_key

    async def __call__(
        self,
        scope: Scope,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        if scope["type"] != "http" or scope["path"].removeprefix(scope.get("root_path", "")) not in ("/", ""):
            await self._app(scope, receive, send)
            return
        cookies = dict(scope["headers"]).get(b"cookie", b"")
        if f"{SESSION_COOKIE}=".encode() in cookies:
            await self._app(scope, receive, send)
            return
        cookie = f"{SESSION_COOKIE}={new_session(self._api_key)}; Path=/; HttpOnly; SameSite=Lax"

        async def send_with_cookie(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"set-cookie", cookie.encode())]
            await send(message)

        await self._app(scope, receive, send_with_cookie)


def build_web(
    engine: Engine, store: VoiceStore, prompts: VoicePrompts, settings: Settings, model: ServedModel
) -> FastAPI:
    """The whole application; the engine's workers start once the server answers, and end with it."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        store.forget_drafts()
        engine.on_ready(prompts.prepare_expected)
        for voice in in_order(store, LANGUAGES[0])[:1]:
            prompts.expect(voice)  # the one that the page picks at first
        await engine.start()
        try:
            yield
        finally:
            await engine.close()
            store.close()

    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    app = FastAPI(title="CosyVoice Studio", version=__version__, lifespan=lifespan)
    guard = api_key_guard(settings.api_key)
    errors.install(app)
    app.include_router(speech_router(engine, store, prompts, model, guard))
    app.include_router(voices_router(store, prompts, settings, guard))
    app.include_router(service_router(engine, model.name, guard))

    @app.api_route(
        "/v1/{path:path}", methods=["GET", "POST", "PUT", "PATCH", "DELETE"], include_in_schema=False
    )
    async def nothing_here(path: str) -> None:
        # Without this the page, mounted at /, would answer for routes that do not exist, in a shape of its own.
        raise HTTPException(404)

    @app.get("/favicon.ico", include_in_schema=False)
    async def favicon() -> FileResponse:
        return FileResponse(ASSETS / "logo.svg", media_type="image/svg+xml")

    app.mount("/web/messages", StaticFiles(directory=ASSETS / "messages"))
    app.mount("/web", StaticFiles(directory=ASSETS / "web"))
    origins = [o.strip() for o in settings.allowed_origins.split(",") if o.strip()]
    # Even with no origin allowed this must be here: it switches off Gradio's own CORS, which echoes every origin.
    app.add_middleware(
        CORSMiddleware,
        allow_origins=origins,
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["Authorization", "Content-Type"],
    )
    app.add_middleware(SessionCookie, api_key=settings.api_key)
    return mount_page(app, build_page(store, prompts, settings))
