"""POST /v1/audio/speech: text and a voice in, streamed sound out, in OpenAI's shape."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TypeVar

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import Response, StreamingResponse

from studio.api.body import SpeechBody, format_of
from studio.api.speaking import Speaking, stream_headers
from studio.api.sse import speech_events
from studio.audio.encode import STREAMED_FORMATS, encode_file, encode_stream
from studio.engine.stream import SpeechStream
from studio.errors import RequestAborted
from studio.messages import catalogue
from studio.speech import SAMPLE_RATE_HZ, AudioChunk, Float32

MEDIA_TYPES = {
    "wav": "audio/wav",
    "pcm": "audio/pcm",
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "flac": "audio/flac",
    "aac": "audio/aac",
}
T = TypeVar("T")
Sound = AsyncGenerator[AudioChunk, None]


def speech_router(speaking: Speaking, client_of: Callable[[Request], str]) -> APIRouter:
    """The route; everything is validated, and the first chunk is there, before the reply begins."""
    router = APIRouter()

    @router.post("/v1/audio/speech")
    async def create_speech(request: Request, body: SpeechBody) -> Response:
        wanted = format_of(body)
        stream, synthesis = await speaking.begin(body, client_of(request))
        if wanted in STREAMED_FORMATS:
            first = await first_or_leave(request, stream)
            data = encode_stream(chunks_after(first, stream), wanted)
        else:
            samples = await finish_or_leave(request, stream)
            data = whole(await asyncio.to_thread(encode_file, samples, SAMPLE_RATE_HZ, wanted))
        headers = stream_headers(stream, synthesis)
        if body.stream_format == "sse":
            events = speech_events(data, stream)
            return StreamingResponse(events, media_type="text/event-stream", headers=headers)
        if wanted in STREAMED_FORMATS:
            return StreamingResponse(data, media_type=MEDIA_TYPES[wanted], headers=headers)
        return Response(await anext(data), media_type=MEDIA_TYPES[wanted], headers=headers)

    return router


async def warm() -> None:
    """Load what the first reply would wait for, 15 to 100 ms, by streaming one to nobody."""
    inspect.getsourcelines(warm)  # FastAPI looks up where a route stands when it is first asked
    catalogue("en")  # for the headers
    nothing_comes = asyncio.get_running_loop().create_future
    await StreamingResponse(whole(b""))({"type": "http"}, nothing_comes, lambda message: asyncio.sleep(0))


async def whole(data: bytes) -> AsyncGenerator[bytes, None]:
    yield data


async def first_or_leave(request: Request, stream: SpeechStream | Sound) -> AudioChunk:
    """The first chunk, or RequestAborted as soon as the client has gone; errors before it keep their status."""
    return await or_leave(request, stream, anext(stream))


async def finish_or_leave(request: Request, stream: SpeechStream) -> Float32:
    """All samples of the stream, float32 [n]."""
    return await or_leave(request, stream, all_samples(stream))


async def all_samples(stream: SpeechStream) -> Float32:
    """All samples of a stream, float32 [n]; it is closed then."""
    async with stream:
        return np.concatenate([chunk.samples async for chunk in stream])


async def or_leave(request: Request, stream: SpeechStream | Sound | AsyncExitStack, work: Awaitable[T]) -> T:
    """What the work gives, or RequestAborted as soon as the client has gone; the stream is closed if there is none."""
    wanted = asyncio.ensure_future(work)
    left = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait((wanted, left), return_when=asyncio.FIRST_COMPLETED)
        if wanted.done():
            return wanted.result()
        raise RequestAborted("speech.aborted")
    except BaseException:
        wanted.cancel()
        await asyncio.gather(wanted, return_exceptions=True)
        await stream.aclose()
        raise
    finally:
        left.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def chunks_after(first: AudioChunk, stream: SpeechStream | Sound) -> AsyncGenerator[AudioChunk, None]:
    """First chunk and the rest; leaving early, by the listener or an error, frees what the request holds."""
    try:
        yield first
        async for chunk in stream:
            yield chunk
    finally:
        await stream.aclose()
