"""POST /v1/audio/speech: text and a voice in, streamed sound out, in OpenAI's shape."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from studio.api.modes import mode_of, refuse_unhonoured
from studio.audio.encode import (
    FORMATS,
    STREAMED_FORMATS,
    encode_file,
    encode_stream,
    ffmpeg_available,
    needs_ffmpeg,
)
from studio.audio.retime import MAX_PITCH
from studio.engine.engine import Engine
from studio.engine.stream import SpeechStream
from studio.errors import InvalidRequest, RequestAborted
from studio.library.prompts import VoicePrompts
from studio.library.store import VoiceStore
from studio.library.voice import Voice
from studio.speech import (
    SAMPLE_RATE_HZ,
    AudioChunk,
    Float32,
    Sampling,
    ServedModel,
    SynthesisRequest,
    VoicePrompt,
)
from studio.takes.recorder import TakeRecorder

MEDIA_TYPES = {
    "wav": "audio/wav",
    "pcm": "audio/pcm",
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "flac": "audio/flac",
    "aac": "audio/aac",
}
SEED_MAX = 2**32 - 1
T = TypeVar("T")


class VoiceRef(BaseModel):
    id: str


class SpeechBody(BaseModel):
    """OpenAI's fields; `pitch` (semitones), `mode`, `seed` and the sampling fields are ours.

    Unknown fields are refused, not ignored.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    input: str
    voice: str | VoiceRef
    model: str = ""
    response_format: str | None = None
    speed: Annotated[float, Field(ge=0.25, le=4.0)] = 1.0
    pitch: Annotated[float, Field(ge=-MAX_PITCH, le=MAX_PITCH)] = 0.0
    instructions: str | None = None
    mode: Literal["zero_shot", "cross_lingual", "instruct", "preset"] | None = None
    stream_format: Literal["audio"] = "audio"
    seed: int | None = None
    temperature: Annotated[float | None, Field(ge=0.05, le=2.0)] = None
    top_p: Annotated[float | None, Field(ge=0.05, le=1.0)] = None
    top_k: Annotated[int | None, Field(ge=1, le=200)] = None
    repetition_window: Annotated[int | None, Field(ge=0, le=50)] = None


def sampling_of(body: SpeechBody, defaults: Sampling) -> Sampling:
    """The request's sampling; a missing seed is drawn, and told in a reply header so that the take can be repeated."""
    seed = secrets.randbelow(SEED_MAX) if body.seed is None else body.seed
    if not 0 <= seed <= SEED_MAX:
        raise InvalidRequest("request.seed", param="seed")
    named: dict[str, Any] = {
        "temperature": body.temperature,
        "top_p": body.top_p,
        "top_k": body.top_k,
        "window": body.repetition_window,
    }
    return replace(defaults, seed=seed, **{k: v for k, v in named.items() if v is not None})


def format_of(body: SpeechBody) -> str:
    """The wanted format; mp3 where none is named, as OpenAI has it."""
    wanted = body.response_format or "mp3"
    if wanted not in FORMATS:
        raise InvalidRequest(
            "request.format", param="response_format", format=wanted[:20], formats=", ".join(FORMATS)
        )
    if needs_ffmpeg(wanted) and not ffmpeg_available():
        raise InvalidRequest("request.format_needs_ffmpeg", param="response_format", format=wanted)
    return wanted


def voice_of(body: SpeechBody, store: VoiceStore) -> Voice:
    """The voice of the request, by name or id. Raises InvalidRequest where none is named, VoiceNotFound."""
    name = body.voice if isinstance(body.voice, str) else body.voice.id
    if not name.strip():
        raise InvalidRequest("voice.missing", param="voice")
    return store.find(name)


def with_defaults(body: SpeechBody, voice: Voice) -> SpeechBody:
    """The request with the voice's own defaults for what it does not name."""
    unnamed = {
        n: v
        for n, v in voice.defaults.items()
        if n in body.__class__.model_fields.keys() - body.model_fields_set
    }
    return body.model_copy(update=unnamed)


def refuse_unmakeable(body: SpeechBody, model: ServedModel) -> None:
    """Refuse what the model cannot do in any voice. Raises InvalidRequest."""
    refuse_unhonoured(model, body.mode, body.instructions)
    sampling_of(body, model.sampling)


def synthesis_of(body: SpeechBody, prompt: VoicePrompt, client: str, model: ServedModel) -> SynthesisRequest:
    """What the engine is asked for; `body` has its voice's defaults. Raises InvalidRequest if the voice cannot."""
    mode = mode_of(model, prompt, body.mode, body.instructions)
    sampling = sampling_of(body, model.sampling)
    return SynthesisRequest(
        body.input,
        prompt,
        sampling,
        client,
        mode=mode,
        instructions=body.instructions or "",
        speed=body.speed,
        pitch=body.pitch,
    )


def speech_router(
    engine: Engine,
    store: VoiceStore,
    prompts: VoicePrompts,
    model: ServedModel,
    takes: TakeRecorder,
    client_of: Callable[[Request], str],
) -> APIRouter:
    """The route; everything is validated, and the first chunk is there, before the reply begins."""
    router = APIRouter()

    @router.post("/v1/audio/speech")
    async def create_speech(request: Request, body: SpeechBody) -> Response:
        voice = voice_of(body, store)
        body = with_defaults(body, voice)
        refuse_unmakeable(body, model)
        wanted = format_of(body)
        engine.check(body.input)
        client = client_of(request)
        engine.refuse_if_full(client)  # before a clip is encoded for it
        synthesis = synthesis_of(body, await prompts.of(voice), client, model)
        stream = await engine.submit(synthesis)
        takes.record(stream, synthesis, voice)
        headers = {
            "X-Request-Id": stream.request_id,
            "X-Seed": str(synthesis.sampling.seed),
            "X-Sample-Rate": str(SAMPLE_RATE_HZ),
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",
        }
        if wanted not in STREAMED_FORMATS:
            samples = await finish_or_leave(request, stream)
            data = await asyncio.to_thread(encode_file, samples, SAMPLE_RATE_HZ, wanted)
            return Response(data, media_type=MEDIA_TYPES[wanted], headers=headers)
        first = await first_or_leave(request, stream)
        headers["X-Prebuffer-Ms"] = str(round(1000 * stream.prebuffer_s))
        return StreamingResponse(
            encode_stream(chunks_after(first, stream), wanted),
            media_type=MEDIA_TYPES[wanted],
            headers=headers,
        )

    return router


async def first_or_leave(request: Request, stream: SpeechStream) -> AudioChunk:
    """The first chunk, or RequestAborted as soon as the client has gone; errors before it keep their status."""
    return await _or_leave(request, stream, anext(stream))


async def finish_or_leave(request: Request, stream: SpeechStream) -> Float32:
    """All samples of the stream, float32 [n]."""
    return await _or_leave(request, stream, _all_samples(stream))


async def _all_samples(stream: SpeechStream) -> Float32:
    async with stream:
        return np.concatenate([chunk.samples async for chunk in stream])


async def _or_leave(request: Request, stream: SpeechStream, work: Awaitable[T]) -> T:
    wanted = asyncio.ensure_future(work)
    left = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait((wanted, left), return_when=asyncio.FIRST_COMPLETED)
        if wanted.done():
            return wanted.result()
        raise RequestAborted("speech.aborted")
    except BaseException:
        wanted.cancel()
        await stream.aclose()
        raise
    finally:
        left.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def chunks_after(first: AudioChunk, stream: SpeechStream) -> AsyncGenerator[AudioChunk, None]:
    """First chunk and the rest; leaving early, by the listener or an error, frees what the request holds."""
    try:
        yield first
        async for chunk in stream:
            yield chunk
    finally:
        await stream.aclose()
