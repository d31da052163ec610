"""Who calls: the API key, the page's session cookie, the caller's place in the fair queue, and other sites."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

SESSION_COOKIE = "studio_session"


class Guard:
    """Judges requests by key, cookie and origin; replies to none of them. api_key: "" if everybody may call.

    The page is same-origin and holds no key; its cookie is signed with it, so only a browser that knew it passes.
    """

    def __init__(self, api_key: str, allowed_origins: Collection[str]) -> None:
        self._api_key = api_key
        self._allowed_origins = frozenset(allowed_origins)

    @property
    def asks_for_key(self) -> bool:
        return bool(self._api_key)

    def is_key(self, given: str) -> bool:
        return bool(self._api_key) and secrets.compare_digest(
            given.encode("utf-8", "replace"), self._api_key.encode()
        )

    def has_key(self, request: HTTPConnection) -> bool:
        return self.is_key(request.headers.get("authorization", "").removeprefix("Bearer ").strip())

    def has_session(self, request: HTTPConnection) -> bool:
        return valid_session(request.cookies.get(SESSION_COOKIE, ""), self._api_key)

    def new_session(self) -> str:
        return new_session(self._api_key)

    def client_of(self, request: HTTPConnection) -> str:
        """The name in the fair queue: session, else key, else address; hashed, so that logs hold no secrets."""
        if self.has_session(request):
            known = request.cookies[SESSION_COOKIE]
        elif self.has_key(request):
            known = request.headers["authorization"]
        else:
            known = request.client.host if request.client else "unknown"
        return hashlib.sha256(known.encode("utf-8", "replace")).hexdigest()[:12]

    def is_foreign(self, request: HTTPConnection) -> bool:
        """Whether a form or script of another site sends this. Programs name no origin and pass."""
        origin = request.headers.get("origin")
        if "*" in self._allowed_origins or origin in self._allowed_origins:
            return False
        if "sec-fetch-site" in request.headers:
            return not same_origin(request)
        if origin is None:
            return False
        # Browsers leave Sec-Fetch-Site out on plain http; a proxy may have put its own name in Host, or cut the port.
        ours = (request.headers.get("x-forwarded-host", ""), request.headers.get("host", ""))
        theirs = urlsplit(origin)
        return not any(host and host in (theirs.netloc, theirs.hostname) for host in ours)


def new_session(api_key: str) -> str:
    """A fresh session cookie: a random id and its mark, which without the key nobody can make."""
    session = secrets.token_urlsafe(18)
    return f"{session}.{_mark(session, api_key)}"


def valid_session(cookie: str, api_key: str) -> bool:
    session, _, mark = cookie.partition(".")
    return bool(session) and secrets.compare_digest(
        mark.encode("utf-8", "replace"), _mark(session, api_key).encode()
    )


def _mark(session: str, api_key: str) -> str:
    key = hashlib.sha256(api_key.encode()).digest()
    return hashlib.blake2b(session.encode("utf-8", "replace"), key=key, digest_size=12).hexdigest()


def public_origin(request: HTTPConnection) -> str:
    """scheme://host as the browser knows it: what a proxy says in its headers, else what was asked for.

    Only the caller itself can make these up, and they serve nothing but its own cookies and addresses.
    """
    scheme = _first(request, "x-forwarded-proto") or request.url.scheme
    host = _first(request, "x-forwarded-host") or request.headers.get("host") or request.url.netloc
    return f"{'https' if scheme in ('https', 'wss') else 'http'}://{host}"


def is_secure(request: HTTPConnection) -> bool:
    """Whether the browser came by https, be it to a proxy: then a cookie never goes by http."""
    return public_origin(request).startswith("https:")


def _first(request: HTTPConnection, header: str) -> str:
    """What the outermost of several proxies wrote."""
    return request.headers.get(header, "").partition(",")[0].strip().lower()


def same_origin(request: HTTPConnection) -> bool:
    """False for a form or script of another site, as far as the browser tells."""
    return request.headers.get("sec-fetch-site") in (None, "same-origin", "none")
