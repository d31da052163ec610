"""How large a body may be, refused before it is read or as soon as it is larger. Judges no content."""

from __future__ import annotations

import re

from fastapi import Request
from starlette.exceptions import HTTPException

from studio.api.asgi import Asgi, Message, Receive, Scope, Send, path_of
from studio.api.errors import language_of, reply
from studio.errors import ClientError, ClipTooLarge, RequestTooLarge

BODY_MAX_MB = 1.0
CLIP_PATHS = (
    "/v1/audio/voices",
    "/v1/audio/clips/check",
    "/v1/audio/clips/mend",
    "/v1/audio/clips/transcript",
    "/v1/audio/conversions",
    "/gradio_api/upload",
)
ARCHIVE_PATHS = re.compile(r"/v1/(audio/voice-bundles|listening/(tests/\w+/(material|folders)|import))")
ARCHIVE_MAX_MB = 200.0
"""Many clips at once, or an archive of them."""


class BodyLimit:
    """Refuses by Content-Length, and counts what comes without one; replies pass untouched."""

    def __init__(self, app: Asgi, max_clip_mb: float) -> None:
        self._app = app
        self._max_clip_mb = max_clip_mb

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, receive, send, self._max_clip_mb)
        if await exchange.refused_as_announced():
            return
        try:
            await self._app(scope, exchange.receive, exchange.send)
        except HTTPException:
            if not exchange.refused:
                raise


class _Exchange:
    """One request and its reply; once refused, what the application still says is dropped."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, max_clip_mb: float) -> None:
        self.refused = False
        self._scope, self._receive, self._send = scope, receive, send
        path = path_of(scope)
        if ARCHIVE_PATHS.fullmatch(path):
            self._file, self._file_mb = "bundle" if "bundles" in path else "file", ARCHIVE_MAX_MB
        elif path in CLIP_PATHS:
            self._file, self._file_mb = "audio_sample", max_clip_mb
        else:
            self._file, self._file_mb = "", 0.0
        # Fields and boundaries come on top of a file.
        self._limit_bytes = int(1e6 * (BODY_MAX_MB + self._file_mb))
        self._received_bytes = 0
        self._replying = False

    async def refused_as_announced(self) -> bool:
        length = Request(self._scope).headers.get("content-length", "")
        if length.isdecimal() and int(length) > self._limit_bytes:
            await self._refuse(int(length))
        return self.refused

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._received_bytes += len(message.get("body", b""))
        if self._received_bytes > self._limit_bytes:
            if not self._replying:
                await self._refuse(self._received_bytes)
            # Frameworks let this type through, where they would take another for a broken body.
            raise HTTPException(413)
        return message

    async def send(self, message: Message) -> None:
        if self.refused:
            return
        self._replying = True
        await self._send(message)

    async def _refuse(self, size_bytes: int) -> None:
        self.refused = True
        await reply(self._error(size_bytes), language_of(Request(self._scope)))(
            self._scope, self._receive, self._send
        )

    def _error(self, size_bytes: int) -> ClientError:
        if self._file:
            size_mb = size_bytes / 1e6
            return ClipTooLarge("clip.too_large", param=self._file, megabytes=size_mb, limit=self._file_mb)
        return RequestTooLarge("request.too_large", limit=BODY_MAX_MB)
