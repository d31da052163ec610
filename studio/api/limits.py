"""How large a body may be, refused before it is read or as soon as it is larger. Judges no content."""

from __future__ import annotations

import re

from fastapi import Request
from starlette.exceptions import HTTPException

from studio.api.asgi import Asgi, Message, Receive, Scope, Send, path_of
from studio.api.errors import language_of, reply
from studio.errors import ClientError, ClipTooLarge, RequestTooLarge

BODY_MAX_MB = 1.0
CLIP_PATHS = ("/v1/audio/voices", "/gradio_api/upload")
MATERIAL_PATHS = re.compile(r"/v1/listening/(tests/\w+/material|import)")
MATERIAL_MAX_MB = 200.0
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
        is_material = MATERIAL_PATHS.fullmatch(path) is not None
        self._max_clip_mb = MATERIAL_MAX_MB if is_material else max_clip_mb
        self._is_clip = is_material or path in CLIP_PATHS
        # Fields and boundaries come on top of a clip.
        self._limit_bytes = int(1e6 * (BODY_MAX_MB + (max_clip_mb if self._is_clip else 0.0)))
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
        if self._is_clip:
            size_mb, limit_mb = size_bytes / 1e6, self._max_clip_mb
            return ClipTooLarge("clip.too_large", param="audio_sample", megabytes=size_mb, limit=limit_mb)
        return RequestTooLarge("request.too_large", limit=BODY_MAX_MB)
