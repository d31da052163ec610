"""What no request passes without leave: the API key, where one is set, and other sites' forms and scripts."""

from __future__ import annotations

import html

from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.requests import HTTPConnection

from studio.api.asgi import Asgi, Message, Receive, Scope, Send, path_of
from studio.api.errors import language_of, reply
from studio.api.guard import SESSION_COOKIE, Guard, is_secure
from studio.errors import CrossSite, Unauthorized
from studio.messages import render

OPEN_PATHS = ("/health", "/metrics", "/favicon.ico")
OPEN_FOLDERS = ("/web/", "/listen/")
"""Static files; and the raters' pages, whose address holds a token of their own."""
LINKED_PATHS = ("/", "/admin/oidc/callback")
"""Where another site may send a browser: a link to the page, and the way back from the OpenID provider."""
SESSION_LIFE_S = 365 * 24 * 3600
"""A person's takes and scripts are found by the cookie, so it outlives the browser."""
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
ASKING_PAGE = """<!doctype html>
<html lang="{language}"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>CosyVoice Studio</title>
<form action="{action}"><p><label for="key">{sentence}</label></p>
<p><input id="key" name="key" type="password" autocomplete="current-password" required autofocus>
<button>{button}</button></p></form></html>
"""


class Gate:
    """Stands before all routes, Gradio's too, and before a body is read; gives each page its session cookie."""

    def __init__(self, app: Asgi, guard: Guard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            request = HTTPConnection(scope)
            if (refusal := self._refusal(request)) is not None:
                await refusal(scope, receive, send)
                return
            if path_of(scope) == "/" and not self._guard.has_session(request):
                send = _with_header(send, b"set-cookie", self._cookie(request).encode())
        await self._app(scope, receive, send)

    def _refusal(self, request: HTTPConnection) -> Response | None:
        """The reply to a request that goes no further: an error, or the way on after the key was given."""
        # A browser lets any site open a socket, with our cookie.
        changing = request.scope.get("method") not in SAFE_METHODS
        if changing and self._guard.is_foreign(request):
            return reply(CrossSite("auth.cross_site"), language_of(request))
        path = path_of(request.scope)
        if not self._guard.asks_for_key or path in OPEN_PATHS or path.startswith(OPEN_FOLDERS):
            return None
        if path == "/" and self._guard.is_key(request.query_params.get("key", "")):
            return self._enter(request)
        if self._may_pass(request, path):
            return None
        if path == "/":
            return _ask(request)
        return reply(Unauthorized("auth.missing"), language_of(request))

    def _may_pass(self, request: HTTPConnection, path: str) -> bool:
        if self._guard.has_key(request):
            return True
        # Nothing else on another site may use the page's cookie.
        return self._guard.has_session(request) and (path in LINKED_PATHS or not self._guard.is_foreign(request))

    def _enter(self, request: HTTPConnection) -> Response:
        """To the page with its cookie and without the key in the address."""
        return RedirectResponse(
            _page_of(request),
            303,
            {
                "Set-Cookie": self._cookie(request),
                "Cache-Control": "no-store",
                "Referrer-Policy": "no-referrer",
            },
        )

    def _cookie(self, request: HTTPConnection) -> str:
        secure = "; Secure" if is_secure(request) else ""
        session = f"{SESSION_COOKIE}={self._guard.new_session()}; Max-Age={SESSION_LIFE_S}"
        return f"{session}; Path=/; HttpOnly; SameSite=Lax{secure}"


def _page_of(request: HTTPConnection) -> str:
    return str(request.scope.get("root_path", "")) + "/"


def _ask(request: HTTPConnection) -> Response:
    language = language_of(request)
    page = ASKING_PAGE.format(
        language=language,
        action=html.escape(_page_of(request)),
        sentence=html.escape(render("auth.page", language)),
        button=html.escape(render("button.enter", language)),
    )
    return HTMLResponse(page, 401, {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"})


def _with_header(send: Send, name: bytes, value: bytes) -> Send:
    async def send_with_header(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], (name, value)]
        await send(message)

    return send_with_header
