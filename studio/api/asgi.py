"""The shapes of plain ASGI that our middleware is written in: unlike BaseHTTPMiddleware it lets streams pass."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]


def path_of(scope: Scope) -> str:
    """The path as routes know it, without the prefix that a proxy strips."""
    path, prefix = str(scope["path"]), str(scope.get("root_path", ""))
    below = path.removeprefix(prefix)
    return below or "/" if below[:1] in ("", "/") else path
