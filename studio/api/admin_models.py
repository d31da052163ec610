"""/admin/models: the known checkpoints, which are loaded, what each holds or would need; loading and unloading."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from studio.admin.fitting import Fit
from studio.admin.model_desk import ModelDesk
from studio.api.errors import language_of
from studio.errors import StudioError
from studio.registry.models import Entry

NO_STORE = {"Cache-Control": "no-store"}


class LoadWanted(BaseModel):
    """force: although the planner says that it does not fit."""

    force: bool = False


class UnloadWanted(BaseModel):
    """running: what becomes of those who listen."""

    running: Literal["drain", "abort"] = "drain"


def include_models(router: APIRouter, desk: ModelDesk, who: Callable[[Request], str]) -> None:
    """The routes; the router's guard lets nobody but administrators in."""

    @router.get("/models")
    async def known_models(request: Request) -> JSONResponse:
        language = language_of(request)
        rows = [await row(entry, desk, language) for entry in desk.models.entries.values()]
        return JSONResponse({"models": rows}, headers=NO_STORE)

    @router.post("/models/{name:path}/load")
    async def load(name: str, wanted: LoadWanted, request: Request) -> JSONResponse:
        found = await desk.begin_load(name, who(request), force=wanted.force)
        return JSONResponse({"state": desk.models.find(name).state, "fit": wire(found)}, 202, NO_STORE)

    @router.post("/models/{name:path}/unload")
    async def unload(name: str, wanted: UnloadWanted, request: Request) -> JSONResponse:
        desk.begin_unload(name, who(request), abort=wanted.running == "abort")
        return JSONResponse({"state": desk.models.find(name).state}, 202, NO_STORE)


async def row(entry: Entry, desk: ModelDesk, language: str) -> dict[str, object]:
    """A model as the page sees it. held_mb: of its workers now; fit: of one that may be loaded, null where unknown."""
    default, fit, reason = entry.name == desk.models.default.name, None, entry.reason
    if entry.loaded is None and entry.state in ("unloaded", "failed"):
        try:
            fit = await desk.fit_of(entry)
        except StudioError as error:
            reason = reason or error.message(language)
    state = None if entry.loaded is None else entry.loaded.engine.state()
    return {
        "name": entry.name, "place": entry.place, "default": default, "state": entry.state, "reason": reason,
        "fraction": round(entry.fraction, 3), "held_mb": desk.memory_mb(entry.name), "fit": wire(fit),
        "running": state.running if state else 0, "waiting": state.waiting if state else 0,
        "ready": state.ready if state else False,
    }  # fmt: skip


def wire(fit: Fit | None) -> dict[str, object] | None:
    return None if fit is None else asdict(fit) | {"fits": fit.fits}
