"""When requests for speech reached the server, and when the first bytes of their sound were handed to the transport."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from studio.bench.load import PATH

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Sent:
    """One reply that began, by the monotonic clock."""

    request_id: str
    accepted_s: float
    first_bytes_s: float

    @property
    def ttfa_s(self) -> float:
        return self.first_bytes_s - self.accepted_s


class FirstBytes:
    """An ASGI application around another, whose replies with speech it notes in `sent`. Changes nothing."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.sent: list[Sent] = []

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != PATH:
            await self._app(scope, receive, send)
            return
        accepted_s = time.monotonic()
        request_id, is_speech, is_noted = "", False, False

        async def noting(message: Message) -> None:
            nonlocal request_id, is_speech, is_noted
            await send(message)
            if message["type"] == "http.response.start":
                headers = dict(message.get("headers", ()))
                request_id = headers.get(b"x-request-id", b"").decode()
                is_speech = message["status"] == 200
            elif message.get("body") and is_speech and not is_noted:
                is_noted = True
                self.sent.append(Sent(request_id, accepted_s, time.monotonic()))

        await self._app(scope, receive, noting)
