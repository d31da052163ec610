"""Who owns a listening test: whoever holds the key that made it, in a cookie or a header, or the studio's API key."""

from __future__ import annotations

import secrets

from fastapi import Request, Response

from studio.api.guard import Guard, is_secure
from studio.errors import NotFound
from studio.listening.store import ListeningStore, Test, hashed

OWNER_COOKIE = "studio_owner"
OWNER_HEADER = "x-owner-key"
KEY_LIFE_S = 5 * 365 * 24 * 3600


class Owners:
    """Judges requests of the owners' routes. A test of somebody else is not found, so that ids cannot be probed."""

    def __init__(self, store: ListeningStore, guard: Guard) -> None:
        self._store = store
        self._guard = guard

    def key_of(self, request: Request) -> str:
        return request.headers.get(OWNER_HEADER, "") or request.cookies.get(OWNER_COOKIE, "")

    def ensure_key(self, request: Request, response: Response) -> str:
        """The caller's key; who has none gets one, as a cookie that scripts cannot read."""
        key = self.key_of(request)
        if not key:
            key = secrets.token_urlsafe(24)
            self.give(key, request, response)
        return key

    def give(self, key: str, request: Request, response: Response) -> None:
        path = str(request.scope.get("root_path", "")) + "/v1/listening"
        response.set_cookie(
            OWNER_COOKIE, key, max_age=KEY_LIFE_S, path=path, httponly=True, samesite="strict",
            secure=is_secure(request),
        )  # fmt: skip

    def tests(self, request: Request) -> list[Test]:
        """The caller's tests; with the studio's API key everybody's."""
        if self._guard.has_key(request):
            return self._store.of_owner(None)
        key = self.key_of(request)
        return self._store.of_owner(hashed(key)) if key else []

    def test(self, request: Request, test_id: str) -> Test:
        """Raises NotFound."""
        test = self._store.find(test_id)
        owner = hashed(self.key_of(request))
        if not (self._guard.has_key(request) or secrets.compare_digest(owner, test.owner)):
            raise NotFound("listening.not_found")
        return test
