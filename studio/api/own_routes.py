"""This application's own routes, called in its process for who came by Gradio: one way in, one set of refusals."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import httpx
from fastapi import FastAPI
from starlette.requests import HTTPConnection

from studio.api.asgi import Asgi, Message, Receive, Scope, Send
from studio.api.errors import error_body, language_of
from studio.errors import StudioError, SynthesisError

FORWARDED = ("authorization", "cookie", "accept-language")
"""Who the caller is, and how to speak to them. What tells other sites apart was judged by the gate on the way in."""


class OwnRoutes:
    """Called with a caller, a method, a path and what httpx takes besides; gives the whole reply, refusals too.

    into: a file that is made of the body, piece by piece, unless it is a refusal. A reply that breaks off is one.
    """

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    async def __call__(
        self, caller: HTTPConnection, method: str, path: str, *, into: Path | None = None, **content: Any
    ) -> httpx.Response:
        headers = {name: caller.headers[name] for name in FORWARDED if name in caller.headers}
        address = (caller.client.host, caller.client.port) if caller.client else ("unknown", 0)
        reply = _Reply(self._app, into)
        transport = httpx.ASGITransport(reply, raise_app_exceptions=False, client=address)
        async with httpx.AsyncClient(transport=transport, base_url="http://studio", timeout=None) as client:
            whole = await client.request(method, path, headers=headers, **content)
        if reply.broken is None:
            return whole
        error = reply.broken if isinstance(reply.broken, StudioError) else SynthesisError("internal")
        return httpx.Response(error.http_status, json=error_body(error, language_of(caller)))


class _Reply:
    """The application while it replies once. broken: what ended a reply that had begun, as httpx does not tell."""

    def __init__(self, app: Asgi, into: Path | None) -> None:
        self.broken: Exception | None = None
        self._app, self._into = app, into
        self._begun = self._ended = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with ExitStack() as opened:
            file: IO[bytes] | None = None

            async def passed(message: Message) -> None:
                nonlocal file
                if message["type"] == "http.response.start":
                    self._begun = True
                    if self._into is not None and message["status"] < 300:
                        file = opened.enter_context(_made(self._into))
                else:
                    self._ended = not message.get("more_body", False)
                    if file is not None:
                        file.write(message.get("body", b""))
                        message = {**message, "body": b""}
                await send(message)

            try:
                await self._app(scope, receive, passed)
            except Exception as error:
                if self._begun and not self._ended:
                    self.broken = error
                    if self._into is not None:
                        self._into.unlink(missing_ok=True)
                raise


def _made(path: Path) -> IO[bytes]:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("wb")
