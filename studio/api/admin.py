"""/admin: the live view of the engine, its knobs, and changing them; every route but the way in asks for a session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from pydantic import BaseModel, Field

from studio.admin.access import ADMIN_COOKIE
from studio.admin.knobs import imported, rows, tunable
from studio.admin.monitor import Monitor
from studio.admin.office import Office
from studio.admin.planner import Workload
from studio.admin.tuning import Tuning
from studio.api.admin_models import include_models
from studio.api.errors import language_of
from studio.api.lab import include_lab
from studio.api.listening_series import include_series
from studio.api.sign_in import let_in, sign_in_router
from studio.errors import NotFound
from studio.listening.room import ListeningRoom
from studio.registry.models import Models

NO_STORE = {"Cache-Control": "no-store"}
Changes = Annotated[dict[str, bool | int | float | str | None], Field(max_length=50)]
PresetName = Annotated[str, Field(min_length=1, max_length=60)]


class Entry(BaseModel):
    password: Annotated[str, Field(max_length=500)]


class Wanted(BaseModel):
    """A change. running: what becomes of requests that run when a worker must start again."""

    changes: Changes
    running: Literal["drain", "abort"] = "drain"
    force: bool = False


class Previewed(BaseModel):
    """A change to be planned for clips and prompts of such lengths."""

    changes: Changes
    prompt_s: Annotated[float, Field(ge=0.5, le=30)] = 5.0
    clip_s: Annotated[float, Field(ge=0.5, le=60)] = 8.0


class Preset(BaseModel):
    settings: Changes


class SettingsFile(BaseModel):
    """A file's text, in a form of the export."""

    text: Annotated[str, Field(max_length=100_000)]


def admin_router(office: Office, models: Models, listening: ListeningRoom) -> APIRouter:
    """The routes of the Admin tab. The tab itself holds no data; whoever has no session gets 401 from all of these."""

    access = office.access

    def monitor_of(model: str) -> Monitor:
        """The default model's where none is named, or one that is not loaded."""
        return office.desk.monitor_of(model) or office.monitor

    def who(request: Request) -> str:
        return access.who(request.cookies.get(ADMIN_COOKIE, ""))

    open_router = APIRouter(prefix="/admin")
    router = APIRouter(prefix="/admin", dependencies=[Depends(who)])

    @open_router.post("/login")
    async def enter(entry: Entry, request: Request) -> Response:
        cookie = access.enter(entry.password)
        return let_in(JSONResponse({"ok": True}, headers=NO_STORE), request, cookie)

    @router.post("/logout")
    async def leave(request: Request) -> dict[str, bool]:
        access.leave(request.cookies.get(ADMIN_COOKIE, ""))
        return {"ok": True}

    @router.get("/live")
    async def live(model: str = "") -> Response:
        return Response(monitor_of(model).live, media_type="application/json", headers=NO_STORE)

    @router.get("/history")
    async def history(span: Literal["10m", "24h"] = "10m", model: str = "") -> JSONResponse:
        return JSONResponse(monitor_of(model).history(span), headers=NO_STORE)

    @router.post("/requests/{request_id}/abort")
    async def abort(request_id: str) -> dict[str, bool]:
        if not models.abort(request_id):
            raise NotFound("admin.no_request", request=request_id[:40])
        return {"ok": True}

    @router.post("/lm/{action}")
    async def rest(action: Literal["forget-prompts", "sleep", "wake"], request: Request) -> dict[str, object]:
        if action == "forget-prompts":
            await office.rest.forget_prompts()
        elif action == "sleep":
            office.rest.sleep(who(request))
        else:
            await office.rest.wake(who(request))
        return progress(office.tuning)

    include_tuning(router, office, who)
    include_models(router, office.desk, who)
    include_lab(router, office.lab, who)
    include_series(router, listening, who)
    both = APIRouter()
    both.include_router(open_router)
    both.include_router(router)
    if office.sign_in is not None:
        both.include_router(sign_in_router(access, office.sign_in))
    return both


def include_tuning(router: APIRouter, office: Office, who: Callable[[Request], str]) -> None:
    """Knobs, changes, presets, export and import."""

    tuning, log = office.tuning, office.log

    @router.get("/knobs")
    async def knobs(request: Request) -> JSONResponse:
        table = rows(tuning.settings, language_of(request))
        return JSONResponse({"knobs": table, **progress(tuning)}, headers=NO_STORE)

    @router.post("/preview")
    async def preview(wanted: Previewed, request: Request) -> dict[str, object]:
        """reason: why the change does not fit, as it would be refused with; empty where it fits."""
        found = tuning.preview(wanted.changes, Workload(wanted.prompt_s, wanted.clip_s))
        return {
            "names": found.names, "workers": found.workers,
            "before": asdict(found.before),
            "after": asdict(found.after) | {"fits": found.after.fits and found.refusal is None},
            "reason": found.refusal.message(language_of(request)) if found.refusal else "",
        }  # fmt: skip

    @router.post("/apply")
    async def apply(wanted: Wanted, request: Request) -> JSONResponse:
        found = tuning.begin(wanted.changes, who(request), abort=wanted.running == "abort", force=wanted.force)
        return JSONResponse({"names": found.names, "workers": found.workers}, 202, NO_STORE)

    @router.get("/changes")
    async def changes() -> JSONResponse:
        latest = await asyncio.to_thread(log.latest)
        return JSONResponse({"changes": latest, **progress(tuning)}, headers=NO_STORE)

    @router.get("/presets")
    async def presets() -> Mapping[str, object]:
        return await asyncio.to_thread(log.presets)

    @router.put("/presets/{name}")
    async def save_preset(name: PresetName, preset: Preset) -> dict[str, bool]:
        tuning.preview(preset.settings)  # what could never be applied is not saved
        await asyncio.to_thread(log.save_preset, name, preset.settings)
        return {"ok": True}

    @router.delete("/presets/{name}")
    async def delete_preset(name: str) -> dict[str, bool]:
        await asyncio.to_thread(log.delete_preset, name)
        return {"ok": True}

    @router.get("/export")
    async def export(form: Literal["toml", "env"] = "toml") -> PlainTextResponse:
        values = {name: getattr(tuning.settings, name) for name in tunable()}
        lines = [line(form, name, "" if value is None else value) for name, value in values.items()]
        return PlainTextResponse("\n".join(lines) + "\n", headers=NO_STORE)

    @router.post("/import")
    async def read_file(file: SettingsFile, request: Request) -> JSONResponse:
        found = imported(file.text, tuning.settings)  # which changes nothing: whoever asks previews and applies
        why = {name: error.message(language_of(request)) for name, error in found.refused.items()}
        return JSONResponse({"values": found.values, "refused": why}, headers=NO_STORE)


def progress(tuning: Tuning) -> dict[str, object]:
    return {"phase": tuning.phase, "reason": tuning.reason}


def line(form: str, name: str, value: object) -> str:
    """A setting as --config reads it, or as the environment has it."""
    if form == "env":
        return f"STUDIO_{name.upper()}={str(value).lower() if isinstance(value, bool) else value}"
    quoted = f'"{value}"' if isinstance(value, str) else str(value).lower()
    return f"{name} = {quoted}"
