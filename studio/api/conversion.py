"""POST /v1/audio/conversions: a clip's speech, said by another voice. What is said, and its pace, stay the clip's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Annotated

from fastapi import APIRouter, File, Form, Request, UploadFile
from fastapi.responses import Response, StreamingResponse

from studio.api.body import SEED_MAX, SpeechBody, format_of
from studio.api.clips import read_clip
from studio.api.speaking import Speaking
from studio.api.speech import MEDIA_TYPES, chunks_after, finish_or_leave, first_or_leave, or_leave
from studio.audio.decode import ReferenceClip
from studio.audio.encode import STREAMED_FORMATS, encode_file, encode_stream
from studio.audio.retime import MAX_PITCH
from studio.errors import InvalidRequest
from studio.settings import Settings
from studio.speech import SAMPLE_RATE_HZ


def conversion_router(speaking: Speaking, settings: Settings, client_of: Callable[[Request], str]) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/audio/conversions")
    async def convert(
        request: Request,
        audio_sample: Annotated[UploadFile | None, File()] = None,
        voice: Annotated[str, Form()] = "",
        model: Annotated[str, Form()] = "",
        response_format: Annotated[str, Form()] = "wav",
        seed: Annotated[int | None, Form(ge=0, le=SEED_MAX)] = None,
        speed: Annotated[float, Form(ge=0.25, le=4.0)] = 1.0,
        pitch: Annotated[float, Form(ge=-MAX_PITCH, le=MAX_PITCH)] = 0.0,
    ) -> Response:
        """The clip of 1 to 30 s in the voice, streamed where the format can be."""
        modes = speaking.models.get(model).model.modes
        if "conversion" not in modes:
            raise InvalidRequest("mode.model", param="voice", mode="conversion", modes=", ".join(modes))
        body = SpeechBody(
            input="", voice=voice, model=model, response_format=response_format, seed=seed, speed=speed, pitch=pitch
        )
        wanted = format_of(body)

        async def clip() -> ReferenceClip:
            return await read_clip(audio_sample, settings)

        beginning = speaking.begin_conversion(body, clip, client_of(request))
        stream, asked = await or_leave(request, AsyncExitStack(), beginning)
        headers = {"X-Request-Id": stream.request_id, "X-Seed": str(asked.seed), "Cache-Control": "no-store"}
        if wanted not in STREAMED_FORMATS:
            samples = await finish_or_leave(request, stream)
            data = await asyncio.to_thread(encode_file, samples, SAMPLE_RATE_HZ, wanted)
            return Response(data, media_type=MEDIA_TYPES[wanted], headers=headers)
        first = await first_or_leave(request, stream)
        sound = encode_stream(chunks_after(first, stream), wanted)
        return StreamingResponse(sound, media_type=MEDIA_TYPES[wanted], headers=headers)

    return router
