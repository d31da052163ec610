"""/v1/audio/clips: what the clip doctor says of a clip, the mended clip, and its words. Keeps nothing."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, File, Form, Request, UploadFile
from fastapi.responses import Response

from studio.api.errors import language_of
from studio.audio.check import usable_clip
from studio.audio.decode import ReferenceClip, decode_clip
from studio.audio.doctor import Finding
from studio.audio.encode import encode_file
from studio.audio.mend import mend
from studio.audio.threads import in_clip_thread
from studio.checks.clip import as_heard, examine_clip
from studio.checks.words import DIFFERS_BELOW, agreement
from studio.errors import ClientError, ClipTooLarge, InvalidRequest
from studio.protocols import Ears
from studio.settings import Settings

FILE_PARAM = "audio_sample"


async def read_upload(upload: UploadFile | None, settings: Settings) -> bytes:
    """The bytes of an uploaded clip; its file name is never used. Raises InvalidRequest, ClipTooLarge."""
    if upload is None:
        raise InvalidRequest("clip.missing", param=FILE_PARAM)
    limit = int(settings.max_clip_mb * 1_000_000)
    data = await upload.read(limit + 1)
    if len(data) > limit:
        megabytes = (upload.size or len(data)) / 1e6
        raise ClipTooLarge("clip.too_large", param=FILE_PARAM, megabytes=megabytes, limit=settings.max_clip_mb)
    return data


async def read_clip(upload: UploadFile | None, settings: Settings) -> ReferenceClip:
    """The uploaded clip, decoded and trimmed to its speech; refused if it cannot be cloned."""
    data = await read_upload(upload, settings)
    try:
        return await in_clip_thread(usable_clip, data)
    except ClientError as error:
        error.param = FILE_PARAM  # the room of sound does not know how fields are named
        raise


def wire(finding: Finding, language: str) -> dict[str, object]:
    return {
        "topic": finding.topic,
        "severity": finding.severity,
        "message": finding.message(language),
        "values": {k: round(v, 3) if isinstance(v, float) else v for k, v in finding.values.items()},
    }


def clips_router(ears: Ears, settings: Settings) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/audio/clips/check")
    async def check_clip(
        request: Request, audio_sample: Annotated[UploadFile | None, File()] = None
    ) -> dict[str, object]:
        """Green, amber or red for each topic, with what to do; a clip that cannot be cloned is no error here."""
        data = await read_upload(audio_sample, settings)
        try:
            found = await examine_clip(data, ears)
        except ClientError as error:
            error.param = FILE_PARAM
            raise
        diagnosis, language = found.diagnosis, language_of(request)
        return {
            "severity": diagnosis.severity,
            "usable": diagnosis.usable,
            "mendable": diagnosis.mendable,
            "seconds": round(found.clip.duration_s, 3),
            "findings": [wire(finding, language) for finding in diagnosis.findings],
        }

    @router.post("/v1/audio/clips/mend")
    async def mend_clip(audio_sample: Annotated[UploadFile | None, File()] = None) -> Response:
        """The clip as WAV of 24 kHz: cut to its best 3 to 10 s, less noise, an even level."""
        data = await read_upload(audio_sample, settings)

        def make() -> bytes:
            mended = mend(decode_clip(data))
            return encode_file(mended.samples, mended.sample_rate_hz, "wav")

        try:
            return Response(await in_clip_thread(make), media_type="audio/wav")
        except ClientError as error:
            error.param = FILE_PARAM
            raise

    @router.post("/v1/audio/clips/transcript")
    async def transcribe_clip(
        audio_sample: Annotated[UploadFile | None, File()] = None, ref_text: Annotated[str, Form()] = ""
    ) -> dict[str, object]:
        """What is heard in the clip; with `ref_text` also how far that agrees with it, 0 to 1."""
        clip = await read_clip(audio_sample, settings)
        heard = await ears.transcribe(as_heard(clip.samples, clip.sample_rate_hz))
        found: dict[str, object] = {"text": heard.text, "language": heard.language}
        if ref_text.strip():
            agreed = await asyncio.to_thread(agreement, ref_text[:2000], heard.text)
            found |= {"agreement": round(agreed, 3), "differs": agreed < DIFFERS_BELOW}
        return found

    return router
