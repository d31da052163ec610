"""Who may call, and whose turn it is: the API key and the client's name in the fair queue."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable

from fastapi import Request

from studio.errors import Unauthorized

SESSION_COOKIE = "studio_session"


def api_key_guard(api_key: str) -> Callable[[Request], None]:
    """A dependency that asks for `Authorization: Bearer KEY`, or for the page's own cookie, if a key is set.

    The page is same-origin and holds no key; its cookie is signed with it, so only a browser with the page passes.
    """

    def guard(request: Request) -> None:
        if not api_key:
            return
        given = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
        if secrets.compare_digest(given.encode(), api_key.encode()):
            return
        if valid_session(request.cookies.get(SESSION_COOKIE, ""), api_key) and same_origin(request):
            return
        raise Unauthorized("auth.missing")

    return guard


def new_session(api_key: str) -> str:
    """A fresh session cookie: a random id and, if a key is set, its mark."""
    session = secrets.token_urlsafe(18)
    return f"{session}.{_mark(session, api_key)}"


def valid_session(cookie: str, api_key: str) -> bool:
    session, _, mark = cookie.partition(".")
    return bool(session) and secrets.compare_digest(mark.encode(), _mark(session, api_key).encode())


def _mark(session: str, api_key: str) -> str:
    return hashlib.blake2b(
        session.encode(), key=hashlib.sha256(api_key.encode()).digest(), digest_size=12
    ).hexdigest()


def same_origin(request: Request) -> bool:
    """False for a form or script of another site that rides on the cookie."""
    site = request.headers.get("sec-fetch-site")
    return site in (None, "same-origin", "none")


def client_of(request: Request) -> str:
    """The name in the fair queue: session, else key, else address; hashed, so that logs hold no secrets."""
    session = request.cookies.get(SESSION_COOKIE) or request.headers.get("authorization")
    address = request.client.host if request.client else "unknown"
    return hashlib.sha256((session or address).encode()).hexdigest()[:12]
