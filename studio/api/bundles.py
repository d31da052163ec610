"""/v1/audio/voice-bundles: voices as one zip file, out of the library and into it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, File, Form, Query, Request, UploadFile
from fastapi.responses import StreamingResponse

from studio.api.limits import ARCHIVE_MAX_MB
from studio.api.voices import check_consent, text_fields, wire
from studio.audio.threads import in_clip_thread
from studio.errors import InvalidRequest
from studio.library.bundle import bundle_of, take_bundle
from studio.library.prompts import VoicePrompts
from studio.library.spk2info import is_spk2info, take_spk2info
from studio.library.store import VoiceStore

LIMIT_BYTES = int(1e6 * ARCHIVE_MAX_MB)


def bundles_router(store: VoiceStore, prompts: VoicePrompts) -> APIRouter:
    router = APIRouter()

    @router.get("/v1/audio/voice-bundles")
    async def export_voices(voice: Annotated[list[str] | None, Query()] = None) -> StreamingResponse:
        """A zip file of the voices named, by name or id; of none named, of all but the starters."""
        voices = (
            [store.find(name) for name in voice]
            if voice
            else [v for v in store.all() if v.origin == "user" and v.has_clip]
        )
        if not voices:
            raise InvalidRequest("bundle.empty", param="voice")
        if any(v.name is None for v in voices):
            raise InvalidRequest("voice.name_missing", param="voice")
        if without_clip := [v.name for v in voices if not v.has_clip]:
            raise InvalidRequest("voice.no_clip", param="voice", name=without_clip[0])
        pieces = await in_clip_thread(bundle_of, voices, LIMIT_BYTES, store, prompts)
        headers = {"Content-Disposition": 'attachment; filename="library.zip"', "Cache-Control": "no-store"}
        return StreamingResponse(pieces, media_type="application/zip", headers=headers)

    @router.post("/v1/audio/voice-bundles")
    async def import_voices(
        request: Request,
        bundle: Annotated[UploadFile | None, File()] = None,
        consent: Annotated[str, Form()] = "",
    ) -> dict[str, object]:
        """Take in the voices of such a file, or of upstream's spk2info.pt: all, or none if one will not do.

        A name in use gets a number; a voice that is here already is passed over and named in `present`.
        """
        await text_fields(request)
        if bundle is None:
            raise InvalidRequest("bundle.missing_file", param="bundle")
        agreed = check_consent(consent)[:400]
        if await in_clip_thread(is_spk2info, bundle.file):
            return {
                "data": [wire(voice) for voice in await take_spk2info(bundle.file, agreed, store, prompts)],
                "present": [],
            }
        taken = await in_clip_thread(take_bundle, bundle.file, LIMIT_BYTES, agreed, store, prompts)
        return {"data": [wire(voice) for voice in taken.voices], "present": taken.present}

    return router
