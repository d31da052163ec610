"""WebSocket /v1/audio/speech/stream: text in as it is written, sound out as it is made.

One session is one text. The client sends {type: "session.config", voice, ...} with the fields of a speech request but
`input`, and `interleaved`; then {type: "input.text", text} as often as it likes, and {type: "input.done"}. It gets
{type: "audio.start", ...}, binary PCM, {type: "audio.done"}, {type: "session.done"}; or {type: "error", error} instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from fastapi import APIRouter, WebSocket, WebSocketDisconnect
from pydantic import ValidationError
from starlette.requests import HTTPConnection

from studio.api.body import SpeechBody
from studio.api.errors import error_body, language_of
from studio.api.speaking import Speaking
from studio.audio.encode import to_pcm
from studio.engine.stream import SpeechStream
from studio.errors import InvalidRequest, StudioError
from studio.library.voice import is_unicode
from studio.speech import SAMPLE_RATE_HZ, SynthesisRequest

MOST_PIECE_CHARS = 4096
WAITING_PIECES = 64
"""Pieces that wait to be spoken; a client that sends more is not read until some have been."""

PATIENCE_S = 20.0
"""How long a session that has its place may wait for text; each letter is worth a second of it, up to that."""


class ArrivingBody(SpeechBody):
    """What a session is opened with. interleaved: the LM begins before the first sentence is whole."""

    input: str = ""
    interleaved: bool = False


def arriving_router(
    speaking: Speaking, client_of: Callable[[HTTPConnection], str], idle_s: float
) -> APIRouter:
    """idle_s: a client that sends nothing for so long, while its text is not done, is told so and dropped."""
    router = APIRouter()

    @router.websocket("/v1/audio/speech/stream")
    async def speech_session(socket: WebSocket) -> None:
        await socket.accept()
        try:
            await _session(socket, speaking, client_of(socket), idle_s)
        except WebSocketDisconnect:
            return
        except StudioError as error:
            with contextlib.suppress(WebSocketDisconnect):
                await socket.send_json({"type": "error", **error_body(error, language_of(socket))})
        await socket.close()

    return router


async def _session(socket: WebSocket, speaking: Speaking, client: str, idle_s: float) -> None:
    config = await _message(socket, idle_s)
    if config.pop("type") != "session.config":
        raise InvalidRequest("stream.config_first", param="type")
    try:
        body = ArrivingBody.model_validate(config)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise InvalidRequest("request.field_bad", param=field, field=field, reason=first["msg"]) from None
    if body.response_format not in (None, "pcm"):
        wanted = body.response_format[:20]
        raise InvalidRequest("request.format", param="response_format", format=wanted, formats="pcm")
    first_piece = await _piece(socket, idle_s)  # who says nothing takes nobody's place
    pieces: asyncio.Queue[str | StudioError | None] = asyncio.Queue(WAITING_PIECES)
    pieces.put_nowait(first_piece)
    stream, request = await speaking.begin_arriving(body, client, _given(pieces), body.interleaved)
    async with stream:
        reading = asyncio.create_task(_read(socket, idle_s, pieces, first_piece is None))
        sending = asyncio.create_task(_send(socket, stream, request))
        try:
            await asyncio.wait((reading, sending), return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                reading.result()  # raises if the client left or asked to end
            await sending
        finally:
            for task in (reading, sending):
                task.cancel()
            await asyncio.gather(reading, sending, return_exceptions=True)


async def _read(socket: WebSocket, idle_s: float, pieces: asyncio.Queue[Any], done: bool) -> None:
    """Hand pieces on until the text is done; then only the end of the session is waited for."""
    while not done:
        try:
            piece = await _piece(socket, idle_s)
        except StudioError as error:
            await pieces.put(error)
            return
        await pieces.put(piece)
        done = piece is None
    await socket.receive()  # the client's leaving, session.close, or nothing that makes sense any more
    raise WebSocketDisconnect


async def _send(socket: WebSocket, stream: SpeechStream, request: SynthesisRequest) -> None:
    async for chunk in stream:
        if chunk.index == 0:
            start = {"format": "pcm", "sample_rate": SAMPLE_RATE_HZ, "seed": request.seed}
            await socket.send_json({"type": "audio.start", "request_id": stream.request_id, **start})
        await socket.send_bytes(to_pcm(chunk.samples))
    await socket.send_json({"type": "audio.done"})
    await socket.send_json({"type": "session.done"})


async def _given(pieces: asyncio.Queue[str | StudioError | None]) -> AsyncIterator[str]:
    """The pieces. Raises InvalidRequest for a client that lets others wait for its place and writes next to nothing."""
    now, left_s = asyncio.get_running_loop().time, PATIENCE_S
    while True:
        asked = now()
        try:
            async with asyncio.timeout(left_s):
                piece = await pieces.get()
        except TimeoutError:
            raise InvalidRequest("stream.slow", param="text", seconds=PATIENCE_S) from None
        if piece is None:
            return
        if isinstance(piece, StudioError):
            raise piece
        left_s = min(PATIENCE_S, left_s - (now() - asked) + sum(map(str.isalnum, piece)))
        yield piece


async def _piece(socket: WebSocket, idle_s: float) -> str | None:
    """More of the text; None once it is done."""
    message = await _message(socket, idle_s)
    if message["type"] == "session.close":
        raise WebSocketDisconnect
    if message["type"] == "input.done":
        return None
    text = message.get("text")
    if message["type"] != "input.text" or not isinstance(text, str) or not is_unicode(text):
        raise InvalidRequest("stream.message", param="type")
    if len(text) > MOST_PIECE_CHARS:
        raise InvalidRequest("text.too_long", param="text", characters=len(text), limit=MOST_PIECE_CHARS)
    return text


async def _message(socket: WebSocket, idle_s: float) -> dict[str, Any]:
    try:
        written = await asyncio.wait_for(socket.receive_text(), idle_s)
        message = json.loads(written)
    except TimeoutError:
        raise InvalidRequest("stream.idle", param="text", seconds=idle_s) from None
    except (ValueError, KeyError):
        raise InvalidRequest("stream.message", param="type") from None
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise InvalidRequest("stream.message", param="type")
    return message
