"""/v1/listening/tests: the owner's side of listening tests. Material, raters and reports have files of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse, PlainTextResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from studio.api import engine_settings
from studio.api.errors import language_of
from studio.api.listening_form import DesignBody, design_of, wire
from studio.api.listening_speech import ConditionSpeech, request_settings
from studio.api.owners import Owners
from studio.errors import InvalidRequest, ListeningConflict, NotFound
from studio.library.store import is_unicode
from studio.listening import webmushra
from studio.listening.answers import write_csv
from studio.listening.design import Design
from studio.listening.export import export, keep, kept_file
from studio.listening.generation import pinned
from studio.listening.opening import open_test
from studio.listening.room import ListeningRoom
from studio.listening.store import GivenClip, Test, hashed
from studio.settings import Settings

DAY_S = 24 * 3600.0
ZIP_HEADERS = {"Cache-Control": "no-store", "Content-Disposition": 'attachment; filename="listening-test.zip"'}
TakesOf = Callable[[Request, Design], list[GivenClip]]


class InvitationBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    names: list[Annotated[str, Field(max_length=100)]] = Field([], max_length=200)
    days: float = Field(14, gt=0, le=365)


class ConfirmBody(BaseModel):
    title: str


class OwnerBody(BaseModel):
    key: str = Field(min_length=16, max_length=100)


def answers_shown(room: ListeningRoom, test: Test) -> None:
    """Raises ListeningConflict while fewer have finished than the owner chose to wait for."""
    finished, wanted = room.raters.counts(test.id)["finished"], test.design.min_results
    if test.state == "open" and finished < wanted:
        raise ListeningConflict("listening.too_early", finished=finished, wanted=wanted)


def listening_router(
    room: ListeningRoom, owners: Owners, speech: ConditionSpeech, takes_of: TakesOf, own: Callable[[], Settings]
) -> APIRouter:
    router = APIRouter(prefix="/v1/listening")

    def put_all(test: Test, clips: list[GivenClip]) -> None:
        for clip in clips:
            room.store.put_clip(test.id, "given", clip)

    def checked(design: Design) -> Design:
        speech.check(design)
        return pinned(speech.naming_models(design), engine_settings.of_moment(own()))

    @router.get("/settings")
    async def settings_offered() -> dict[str, Any]:
        """Settings that a condition may name, as the form needs them: of its requests, and of the engine."""
        return {"request": request_settings(speech.models), "studio": engine_settings.offered(own())}

    @router.get("/tests")
    async def list_tests(request: Request) -> dict[str, Any]:
        language = language_of(request)
        return {"data": [wire(room, test, language) for test in owners.tests(request)]}

    @router.post("/tests")
    async def create_test(request: Request, response: Response, body: DesignBody) -> dict[str, Any]:
        design = checked(design_of(body))
        clips = await asyncio.to_thread(takes_of, request, design)
        test = room.store.create(design, hashed(owners.ensure_key(request, response)))
        await asyncio.to_thread(put_all, test, clips)
        return wire(room, test, language_of(request))

    @router.get("/tests/{test_id}")
    async def show_test(request: Request, test_id: str) -> dict[str, Any]:
        return wire(room, owners.test(request, test_id), language_of(request))

    @router.put("/tests/{test_id}")
    async def redesign(request: Request, test_id: str, body: DesignBody) -> dict[str, Any]:
        test = owners.test(request, test_id)
        with room.alone(test.id):
            design = checked(design_of(body, test.design))
            clips = await asyncio.to_thread(takes_of, request, design)
            await room.stop_making(test.id)
            test = room.store.redesign(test, design)
            await asyncio.to_thread(put_all, test, clips)
        return wire(room, test, language_of(request))

    @router.post("/tests/{test_id}/open")
    async def open_for_raters(request: Request, test_id: str) -> dict[str, Any]:
        """Make the material ready and let raters in; refuses what would spoil the test, and says what to change."""
        test = owners.test(request, test_id)
        if room.is_making(test.id):
            raise ListeningConflict("listening.making")

        def opened() -> None:
            by_voice = test.design.conditions if test.design.reference == "voice" else ()
            open_test(room.store, test, {c.id: speech.clip_of_voice(c.source.voice) for c in by_voice})

        with room.alone(test.id):
            await asyncio.to_thread(opened)
        return wire(room, room.store.find(test.id), language_of(request))

    @router.post("/tests/{test_id}/close")
    async def close_test(request: Request, test_id: str) -> dict[str, Any]:
        test = owners.test(request, test_id)
        if test.state == "draft":
            raise ListeningConflict("listening.not_open")
        room.store.close(test.id)
        return wire(room, room.store.find(test.id), language_of(request))

    @router.post("/tests/{test_id}/invitations")
    async def invite(request: Request, test_id: str, body: InvitationBody) -> dict[str, Any]:
        """Links: one for each name, or one for whoever has it."""
        test = owners.test(request, test_id)
        if not all(is_unicode(name) for name in body.names):
            raise InvalidRequest("text.not_unicode", param="names", field="names")
        expires_s = room.now() + body.days * DAY_S
        made = [room.store.invite(test.id, " ".join(name.split()), expires_s) for name in body.names or [""]]
        return {"data": [asdict(invitation) for invitation in made]}

    @router.delete("/tests/{test_id}/invitations/{token}")
    async def withdraw(request: Request, test_id: str, token: str) -> dict[str, bool]:
        room.store.withdraw(owners.test(request, test_id).id, token)
        return {"deleted": True}

    @router.get("/tests/{test_id}/answers.csv")
    async def answers_csv(request: Request, test_id: str) -> PlainTextResponse:
        """Long format, one row an answer."""
        test = owners.test(request, test_id)
        answers_shown(room, test)
        return PlainTextResponse(write_csv(room.raters.answers(test.id)), media_type="text/csv; charset=utf-8")

    @router.get("/tests/{test_id}/webmushra.csv")
    async def webmushra_csv(request: Request, test_id: str) -> PlainTextResponse:
        test = owners.test(request, test_id)
        answers_shown(room, test)
        [text] = webmushra.results(test.design, room.raters.answers(test.id)).values()
        return PlainTextResponse(text, media_type="text/csv; charset=utf-8")

    @router.get("/tests/{test_id}/export.zip")
    async def export_zip(request: Request, test_id: str) -> Response:
        test = owners.test(request, test_id)
        answers_shown(room, test)
        pieces = export(room.store, room.raters, test)
        return StreamingResponse(pieces, media_type="application/zip", headers=ZIP_HEADERS)

    @router.delete("/tests/{test_id}")
    async def delete_test(request: Request, test_id: str, body: ConfirmBody) -> dict[str, Any]:
        """Asks for the title as confirmation; an export is kept, and is got under /exports."""
        test = owners.test(request, test_id)
        if body.title.strip() != test.design.title.strip():
            raise InvalidRequest("listening.confirm", param="title", title=test.design.title)

        def kept_and_gone() -> None:
            keep(room.store, test, export(room.store, room.raters, test))
            room.store.delete(test.id)

        with room.alone(test.id):
            await room.stop_making(test.id)
            room.store.close(test.id)  # an answer that is confirmed from now on would be in no export
            await asyncio.to_thread(kept_and_gone)
        return {"id": test.id, "deleted": True, "export": f"/v1/listening/exports/{test.id}"}

    @router.get("/exports/{test_id}")
    async def kept_export(request: Request, test_id: str) -> Response:
        """The export of a deleted test, for its owner."""
        file = kept_file(room.store, test_id, hashed(owners.key_of(request)))
        if not file.exists():
            raise NotFound("listening.not_found")
        return FileResponse(file, media_type="application/zip", headers=ZIP_HEADERS)

    @router.get("/owner")
    async def owner_key(request: Request) -> dict[str, str]:
        """The caller's own key, to go on in another browser with."""
        return {"key": owners.key_of(request)}

    @router.post("/owner")
    async def enter_owner_key(request: Request, response: Response, body: OwnerBody) -> dict[str, int]:
        owners.give(body.key, request, response)
        return {"tests": len(room.store.of_owner(hashed(body.key)))}

    return router
