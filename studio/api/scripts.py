"""/v1/audio/scripts and /v1/audio/batch: many lines, spoken in the background, kept over a restart, exported."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import FileResponse, PlainTextResponse, Response
from starlette.background import BackgroundTask

from studio.api.errors import language_of
from studio.api.script_bodies import Cast, LineEdit, NewLine, Title, Wanted, script_of
from studio.api.script_view import ScriptView
from studio.api.takes import MEDIA_TYPES, attachment
from studio.errors import InvalidRequest
from studio.library.store import VoiceStore
from studio.script.casting import Voices, cast
from studio.script.export import FORMATS, TARGET_LUFS, Export
from studio.script.lines import Fault
from studio.script.runner import ScriptRunner
from studio.script.store import Line, Script, ScriptStore, fault_of
from studio.script.subtitles import to_srt, to_vtt
from studio.takes.store import TakeStore

What = Literal["wav", "flac", "opus", "mp3", "zip", "srt", "vtt"]
SUBTITLES = {"srt": (to_srt, "application/x-subrip"), "vtt": (to_vtt, "text/vtt")}


def scripts_router(
    scripts: ScriptStore,
    takes: TakeStore,
    voices: VoiceStore,
    runner: ScriptRunner,
    client_of: Callable[[Request], str],
) -> APIRouter:
    router = APIRouter()
    view = ScriptView(scripts, takes, voices, runner)

    def found(request: Request, script_id: str) -> Script:
        return scripts.find(client_of(request), script_id)

    async def whole(request: Request, script: Script) -> dict[str, object]:
        return await asyncio.to_thread(view.whole, script, language_of(request))

    async def make(request: Request) -> Script:
        body = await script_of(request)
        lines = await asyncio.to_thread(body.lines, Voices(voices.all()))
        return scripts.add(client_of(request), body.title, lines)

    @router.post("/v1/audio/scripts")
    async def create_script(request: Request) -> dict[str, object]:
        """Lines from a play, CSV or subtitles, or from JSON items; nothing is spoken yet."""
        return await whole(request, await make(request))

    @router.post("/v1/audio/batch", status_code=202)
    async def create_batch(request: Request) -> dict[str, object]:
        """The same, and every row without a fault is spoken; ask /v1/audio/scripts/{id} for progress and errors."""
        script = await make(request)
        runner.speak(script, spoken_by_default(scripts.lines(script)))
        return await whole(request, script)

    @router.get("/v1/audio/scripts")
    async def list_scripts(request: Request) -> dict[str, object]:
        mine = scripts.all(client_of(request))
        return {"data": await asyncio.to_thread(lambda: [view.brief(script) for script in mine])}

    @router.get("/v1/audio/scripts/{script_id}")
    async def one_script(request: Request, script_id: str) -> dict[str, object]:
        return await whole(request, found(request, script_id))

    @router.patch("/v1/audio/scripts/{script_id}")
    async def rename_script(request: Request, script_id: str, body: Title) -> dict[str, object]:
        scripts.rename(found(request, script_id), body.title)
        return view.brief(found(request, script_id))

    @router.delete("/v1/audio/scripts/{script_id}")
    async def delete_script(request: Request, script_id: str) -> dict[str, object]:
        """Its takes stay in the history until room is needed."""
        script = found(request, script_id)
        await runner.stop(script)
        takes.let_go([line.id for line in scripts.lines(script)])
        scripts.delete(script)
        return {"id": script.id, "deleted": True}

    @router.post("/v1/audio/scripts/{script_id}/speak")
    async def speak_script(request: Request, script_id: str, body: Wanted) -> dict[str, object]:
        script = found(request, script_id)
        named = [scripts.line(script, line_id) for line_id in body.lines]
        runner.speak(script, named or spoken_by_default(scripts.lines(script)))
        return await whole(request, script)

    @router.post("/v1/audio/scripts/{script_id}/stop")
    async def stop_script(request: Request, script_id: str) -> dict[str, object]:
        script = found(request, script_id)
        await runner.stop(script)
        return await whole(request, script)

    @router.post("/v1/audio/scripts/{script_id}/cast")
    async def cast_speaker(request: Request, script_id: str, body: Cast) -> dict[str, object]:
        script, voice = found(request, script_id), voices.find(body.voice)
        await runner.abandon(scripts.cast(script, body.speaker, voice.id))
        return await whole(request, script)

    @router.post("/v1/audio/scripts/{script_id}/lines")
    async def add_line(request: Request, script_id: str, body: NewLine) -> dict[str, object]:
        script = found(request, script_id)
        draft = cast([body.draft()], Voices(voices.all()), {}, "")[0]
        scripts.insert(script, body.position, draft)
        return await whole(request, script)

    @router.patch("/v1/audio/scripts/{script_id}/lines/{line_id}")
    async def edit_line(request: Request, script_id: str, line_id: str, body: LineEdit) -> dict[str, object]:
        script = found(request, script_id)
        line = scripts.line(script, line_id)
        if body.take is not None:
            if body.take not in {take.id for take in takes.of_lines([line.id])}:
                raise InvalidRequest("script.other_take", param="take")
            scripts.choose(line, body.take)
        elif scripts.edit(line, **changes_of(body, voices)):
            await runner.abandon([line])
        return await whole(request, script)

    @router.delete("/v1/audio/scripts/{script_id}/lines/{line_id}")
    async def delete_line(request: Request, script_id: str, line_id: str) -> dict[str, object]:
        script = found(request, script_id)
        line = scripts.line(script, line_id)
        scripts.remove(line)
        await runner.abandon([line])
        takes.let_go([line.id])
        return await whole(request, script)

    @router.get("/v1/audio/scripts/{script_id}/export")
    async def export_script(
        request: Request,
        script_id: str,
        what: What = "zip",
        lufs: Annotated[float | None, Query(ge=-40, le=-5)] = TARGET_LUFS,
        loudness: Literal["matched", "as_made"] = "matched",
    ) -> Response:
        """One file, subtitles with true times, or a zip of all with stems; lines without a take are left out."""
        script = found(request, script_id)
        lines = await asyncio.to_thread(view.taken, script)
        if not lines:
            raise InvalidRequest("script.nothing_made", param="script")
        export = Export(lines, lufs if loudness == "matched" else None)
        name = attachment(f"{script.title.strip() or 'script'}.{what}".replace("/", "-"))
        if what in SUBTITLES:
            form, media_type = SUBTITLES[what]
            text = form(await asyncio.to_thread(export.cues))
            return PlainTextResponse(text, media_type=media_type, headers={"Content-Disposition": name})
        export.refuse_too_large(what)
        file = await asyncio.to_thread(write, export, what, await whole(request, script))
        return FileResponse(
            file,
            media_type=MEDIA_TYPES.get(what, "application/zip"),
            headers={"Content-Disposition": name, "Cache-Control": "no-store"},
            background=BackgroundTask(os.unlink, file),
        )

    return router


def spoken_by_default(lines: list[Line]) -> list[Line]:
    """Lines without a take; a row that was written wrongly waits until somebody has mended it."""
    faults = {line.id: fault_of(line) or Fault("") for line in lines}
    return [line for line in lines if not line.take and not faults[line.id].in_writing]


def changes_of(body: LineEdit, voices: VoiceStore) -> dict[str, object]:
    """By the store's names; a voice by its id. Raises VoiceNotFound."""
    changes: dict[str, object] = body.model_dump(exclude_none=True)
    if "input" in changes:
        changes["text"] = " ".join(str(changes.pop("input")).split())
    if "voice" in changes:
        changes["voice"] = voices.find(str(changes["voice"])).id
    return changes


def write(export: Export, what: str, about: dict[str, object]) -> Path:
    """The export in a file that the reply removes once it was sent."""
    handle, name = tempfile.mkstemp(prefix="studio-script-")
    os.close(handle)
    try:
        if what in FORMATS:
            export.write_sound(Path(name), what)
        else:
            export.write_zip(Path(name), about)
    except BaseException:
        os.unlink(name)
        raise
    return Path(name)
