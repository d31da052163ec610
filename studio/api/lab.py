"""/admin/lab: runs of the lab as jobs, their progress and figures, and each run as CSV."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import FileResponse, JSONResponse
from pydantic import BaseModel, Field

from studio.admin.lab import Asked, Lab
from studio.admin.sweeps import MOST_STREAMS, SWEEPS, unavailable
from studio.api.errors import language_of
from studio.errors import StudioError

NO_STORE = {"Cache-Control": "no-store"}


class Wanted(BaseModel):
    """A run; force: although somebody is listening."""

    sweep: Literal["load", "streams", "max_model_len", "block_size", "quantization"]
    values: Annotated[list[int | str], Field(max_length=20)] = []
    streams: Annotated[int, Field(ge=1, le=MOST_STREAMS)] = 2
    seconds: Annotated[float, Field(ge=0.1, le=600)] = 20.0
    text_s: Literal[3, 6, 12] = 6
    beyond_plan: bool = False
    force: bool = False

    def asked(self) -> Asked:
        given = self.model_dump(exclude={"force", "values"})
        return Asked(values=tuple(self.values), **given)


def include_lab(router: APIRouter, lab: Lab, who: Callable[[Request], str]) -> None:
    """The routes; the router's guard lets nobody but administrators in."""

    @router.get("/lab")
    async def overview(request: Request) -> JSONResponse:
        sweeps = [sweep_row(name, lab, language_of(request)) for name in SWEEPS]
        runs = await asyncio.to_thread(lab.runs.latest)
        progress = None if lab.progress is None else asdict(lab.progress)
        return JSONResponse({"sweeps": sweeps, "progress": progress, "runs": runs}, headers=NO_STORE)

    @router.post("/lab")
    async def begin(wanted: Wanted, request: Request) -> JSONResponse:
        number = await lab.begin(wanted.asked(), who(request), force=wanted.force)
        return JSONResponse({"number": number}, 202, NO_STORE)

    @router.post("/lab/stop")
    async def stop() -> dict[str, bool]:
        lab.stop()
        return {"ok": True}

    @router.get("/lab/csv")
    async def table(run: Annotated[int, Query(ge=1)]) -> FileResponse:
        file = await asyncio.to_thread(lab.runs.csv_of, run)
        return FileResponse(file, media_type="text/csv", filename=f"lab-{file.name}", headers=NO_STORE)


def sweep_row(name: str, lab: Lab, language: str) -> dict[str, object]:
    """A sweep as the page sees it; refused: why it cannot run here."""
    refusal: StudioError | None = unavailable(name, lab.tuning.place.device)
    values = () if refusal is not None else lab.values_of(name)
    return {
        "name": name, "knob": SWEEPS[name].knob, "values": values, "curves": SWEEPS[name].curves,
        "refused": None if refusal is None else refusal.message(language),
    }  # fmt: skip
