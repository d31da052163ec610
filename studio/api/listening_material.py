"""The owner's material of a listening test: upload, make, take back, listen; and webMUSHRA's files to a whole test."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, File, Form, Request, Response, UploadFile

from studio.api.errors import language_of
from studio.api.listening_form import wire
from studio.api.owners import Owners
from studio.audio.encode import encode_file
from studio.errors import InvalidRequest, ListeningConflict, NotFound
from studio.listening import problems, webmushra
from studio.listening.design import Design, item_of
from studio.listening.folders import read_folders
from studio.listening.generation import missing
from studio.listening.intake import MAX_TOTAL_BYTES, Upload, read_clip, read_clips, unpacked, uploads
from studio.listening.room import ListeningRoom
from studio.listening.store import GivenClip, Test, hashed


def draft_of(owners: Owners, request: Request, test_id: str) -> Test:
    """A test whose material may still change. Raises NotFound, ListeningConflict."""
    test = owners.test(request, test_id)
    if test.state != "draft":
        raise ListeningConflict("listening.not_draft")
    return test


async def read_files(files: Iterable[UploadFile]) -> list[tuple[str, bytes]]:
    """Names and bytes of what was sent."""
    read = [(file.filename or "", await file.read(MAX_TOTAL_BYTES + 1)) for file in files]
    if not any(content for _, content in read):
        raise InvalidRequest("listening.upload_empty", param="files")
    return read


def _text_for(design: Design, items: list[str], item: str) -> str:
    """The design's text of a sentence: of s01 the first, else by the order of the names, where the numbers agree."""
    named = {item_of(number): text for number, text in enumerate(design.texts)}
    if item in named:
        return named[item]
    return design.texts[items.index(item)] if len(items) == len(design.texts) else ""


def material_router(room: ListeningRoom, owners: Owners) -> APIRouter:
    router = APIRouter(prefix="/v1/listening")
    turn = asyncio.Lock()
    """One upload at a time is in memory; the others lie on the disk until then."""

    @router.post("/tests/{test_id}/material")
    async def upload(
        request: Request,
        test_id: str,
        condition: Annotated[str, Form()],
        files: Annotated[list[UploadFile], File()],
    ) -> dict[str, Any]:
        """Clips of one condition, as files or a zip; a clip's name says which sentence it is. All of them or none."""
        test = draft_of(owners, request, test_id)
        found = next((c for c in test.design.conditions if condition in (c.id, c.name)), None)
        if found is None:
            raise InvalidRequest("listening.condition_unknown", param="condition", condition=condition[:80])
        async with turn:
            sent = await read_files(files)
            read = await asyncio.to_thread(lambda: uploads(unpacked(sent)))
            test = draft_of(owners, request, test_id)  # it may have been opened meanwhile
            if found not in test.design.conditions:
                raise InvalidRequest("listening.condition_unknown", param="condition", condition=condition[:80])
            await store(test, {found.id: read})
        return wire(room, test, language_of(request))

    @router.post("/tests/{test_id}/folders")
    async def upload_folders(
        request: Request, test_id: str, files: Annotated[list[UploadFile], File()]
    ) -> dict[str, Any]:
        """Clips of all conditions that are uploaded, one folder for each, as files or a zip. All of them or none."""
        before = draft_of(owners, request, test_id)
        async with turn:
            sent = await read_files(files)
            read = await asyncio.to_thread(lambda: read_folders(before.design, unpacked(sent)))
            test = draft_of(owners, request, test_id)
            if test.design != before.design:
                raise ListeningConflict("listening.at_work")
            await store(test, read)
        return wire(room, test, language_of(request))

    async def store(test: Test, read: Mapping[str, list[Upload]]) -> None:
        """Clips by condition id, in place of those that were there."""

        def stored() -> None:
            for condition, found in read.items():
                items = sorted(upload.item for upload in found)
                room.store.drop_clips(test.id, condition)
                for one in found:
                    text = one.text or _text_for(test.design, items, one.item)
                    clip = one.clip()
                    given = GivenClip(one.item, condition, clip.samples, clip.sample_rate_hz, text)
                    room.store.put_clip(test.id, "given", given)

        with room.changing(test.id):
            await asyncio.to_thread(stored)

    @router.post("/tests/{test_id}/make")
    async def make(request: Request, test_id: str) -> dict[str, Any]:
        """Begin to make what is missing of the speech conditions; GET the test to see how far it is."""
        test = draft_of(owners, request, test_id)
        held_back = room.generation.waiting(test.design)
        ids = {w.condition.id for w in held_back}
        if held_back and all(condition.id in ids for condition, _ in missing(room.store, test)):
            wanted = " ".join(f"--{k.replace('_', '-')} {v}" for k, v in held_back[0].wanted.items())
            raise ListeningConflict("listening.other_settings", name=held_back[0].condition.name, wanted=wanted)
        with room.changing(test.id):
            room.start_making(test)
        return wire(room, room.store.find(test.id), language_of(request))

    @router.get("/tests/{test_id}/material/{condition}/{item}")
    async def listen(request: Request, test_id: str, condition: str, item: str) -> Response:
        """One clip as it was given, for the owner's ears."""
        test = owners.test(request, test_id)
        clip = room.store.clips(test.id, "given").get((item, condition))
        if clip is None:
            raise NotFound("listening.no_address")

        def sound() -> bytes:
            return encode_file(room.store.samples(test.id, clip), clip.rate_hz, "wav")

        return Response(await asyncio.to_thread(sound), media_type="audio/wav", headers={"Cache-Control": "no-store"})

    @router.post("/import")
    async def import_webmushra(
        request: Request, response: Response, files: Annotated[list[UploadFile], File()]
    ) -> dict[str, Any]:
        """A webMUSHRA configuration with its sounds, as files or a zip, becomes a draft."""
        async with turn:
            sent = await read_files(files)
            found = await asyncio.to_thread(lambda: webmushra.read(unpacked(sent)))
            design = replace(found.design, raters=2 * max(1, len(found.design.rated)))
            problems.refuse(problems.of_design(design))
            await asyncio.to_thread(lambda: [None for _ in read_clips(found.files.values())])  # all are fit, or none
            test = room.store.create(design, hashed(owners.ensure_key(request, response)))

            def stored() -> None:
                for (item, condition), file in found.files.items():
                    clip = read_clip(file)
                    given = GivenClip(item, condition, clip.samples, clip.sample_rate_hz)
                    room.store.put_clip(test.id, "given", given)

            await asyncio.to_thread(stored)
        return wire(room, test, language_of(request))

    return router
