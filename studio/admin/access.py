"""Who may look after the engine, and until when: a password, a token that works once, or another proof of who it is."""

from __future__ import annotations

import hashlib
import secrets
from collections import deque
from typing import NamedTuple

from studio.errors import AdminLocked, AdminRefused
from studio.protocols import Clock

ADMIN_COOKIE = "studio_admin"
SESSION_S = 12 * 3600.0
"""A session's bound, which use does not move: who is no administrator any more is out by then."""
FAILURES = 5
FAILURE_WINDOW_S = 60.0


class Session(NamedTuple):
    """name: who it is; of a password, which everybody may know, part of the cookie's digest."""

    name: str
    end_s: float


class AdminAccess:
    """Sessions of administrators, held in memory: a restart of the server ends them. There is no open mode.

    password: "" makes `token`, which lets one person in and is used up by it.
    """

    def __init__(self, password: str, clock: Clock) -> None:
        self._password = password
        self._clock = clock
        self._sessions: dict[str, Session] = {}  # by the digest of a cookie
        self._failures: deque[float] = deque(maxlen=FAILURES)
        self.token = "" if password else secrets.token_urlsafe(18)

    def enter(self, given: str) -> str:
        """A new session's cookie. Raises AdminRefused for a wrong word, AdminLocked after too many of them."""
        now_s = self._clock()
        if len(self._failures) == FAILURES and now_s - self._failures[0] < FAILURE_WINDOW_S:
            seconds = FAILURE_WINDOW_S - (now_s - self._failures[0])
            raise AdminLocked("admin.locked", seconds=seconds, retry_after_s=seconds)
        wanted = self._password or self.token
        if not wanted or not secrets.compare_digest(given.encode("utf-8", "replace"), wanted.encode()):
            self._failures.append(now_s)
            raise AdminRefused("admin.wrong" if self._password or self.token else "admin.token_used")
        self.token = ""
        return self.let_in()

    def let_in(self, name: str = "") -> str:
        """A new session's cookie, for somebody whom the caller knows to be an administrator."""
        cookie = secrets.token_urlsafe(24)
        digest = _digest(cookie)
        self._sessions[digest] = Session(name or digest[:8], self._clock() + SESSION_S)
        return cookie

    def leave(self, cookie: str) -> None:
        self._sessions.pop(_digest(cookie), None)

    def who(self, cookie: str) -> str:
        """The name of the session, for the log. Raises AdminRefused if there is none, or it has ended."""
        now_s = self._clock()
        self._sessions = {digest: session for digest, session in self._sessions.items() if session.end_s > now_s}
        if (found := self._sessions.get(_digest(cookie))) is None:
            raise AdminRefused("admin.needed")
        return found.name


def _digest(cookie: str) -> str:
    return hashlib.sha256(cookie.encode("utf-8", "replace")).hexdigest()
