"""/listen/TOKEN: what raters' browsers ask for. The token of the invitation lets in; a cookie says who it is.

No reply names a condition, an item, a file, a role or a seed; sounds come from one-time addresses. See blinding.py.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from studio.api.guard import is_secure
from studio.errors import NotFound
from studio.library.store import is_unicode
from studio.listening.room import ListeningRoom
from studio.listening.scoring import Reply
from studio.listening.sessions import Session

PAGE = Path(__file__).resolve().parents[2] / "assets" / "web" / "rate" / "raters.html"
RATER_COOKIE = "studio_rater"
KEY_MIN_CHARS, KEY_MAX_CHARS = 24, 64
COOKIE_LIFE_S = 180 * 24 * 3600
DRAFT_MAX_ITEMS = 40
UNSEEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
NO_STORE = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Robots-Tag": "noindex"}


def _whole(text: str) -> str:
    """Lines end as in the CSV file; what cannot be seen, and would break a row or a page of it, is left out."""
    if not is_unicode(text):
        raise ValueError("broken characters")
    return UNSEEN.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


Words = Annotated[str, Field(max_length=1000), AfterValidator(_whole)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class JoinBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    consent: bool = False


class ToneBody(BaseModel):
    """What was chosen in a round of the headphone check."""

    model_config = ConfigDict(extra="forbid")

    number: int = Field(ge=1, le=100_000)
    chosen: int = Field(ge=0, le=2)


class DraftBody(BaseModel):
    """What is set so far: a value for each clip, what was heard of each, what was typed."""

    model_config = ConfigDict(extra="forbid")

    number: int = Field(ge=1, le=100_000)
    scores: list[Finite | None] = Field([], max_length=DRAFT_MAX_ITEMS)
    heard_s: list[Finite] = Field([], max_length=DRAFT_MAX_ITEMS)
    typed: Words = ""
    comment: Words = ""


class AnswerBody(BaseModel):
    """A trial's answer; timeout: there is none, the time is over."""

    model_config = ConfigDict(extra="forbid")

    number: int = Field(ge=1, le=100_000)
    scores: list[Finite] = Field([], max_length=DRAFT_MAX_ITEMS)
    typed: Words = ""
    comment: Words = ""
    seconds: float = Field(0.0, ge=0, le=86_400, allow_inf_nan=False)
    timeout: bool = False


class CommentBody(BaseModel):
    comment: Words


class TextBody(BaseModel):
    text: Annotated[str, Field(max_length=4000), AfterValidator(_whole)]


def rating_router(room: ListeningRoom) -> APIRouter:
    router = APIRouter(prefix="/listen")
    sessions = room.sessions

    def session_of(request: Request, token: str) -> Session:
        session = sessions.session(token, request.cookies.get(RATER_COOKIE, ""))
        if session is None:
            raise NotFound("listening.not_joined")
        return session

    def ensure_key(request: Request, response: Response, token: str) -> str:
        """The key of the caller's cookie; it is given before joining, so that joining twice is joining once."""
        key = request.cookies.get(RATER_COOKIE, "")
        if not KEY_MIN_CHARS <= len(key) <= KEY_MAX_CHARS:
            key = secrets.token_urlsafe(KEY_MIN_CHARS)
            root = str(request.scope.get("root_path", ""))
            response.set_cookie(
                RATER_COOKIE, key, max_age=COOKIE_LIFE_S, path=f"{root}/listen/{token}", httponly=True,
                samesite="strict", secure=is_secure(request),
            )  # fmt: skip
        return key

    @router.get("/{token}", include_in_schema=False)
    async def page(token: str) -> FileResponse:
        """The raters' page; whether the link is good, its script asks."""
        return FileResponse(PAGE, media_type="text/html; charset=utf-8", headers=NO_STORE)

    @router.get("/{token}/state")
    async def state(request: Request, response: Response, token: str) -> dict[str, Any]:
        """What to show now."""
        response.headers.update(NO_STORE)
        session = sessions.session(token, request.cookies.get(RATER_COOKIE, ""))
        if session is not None:
            return sessions.view(session)
        test, invitation = sessions.invited(token)
        ensure_key(request, response, token)
        if test.state != "open":
            return {"phase": "closed", "language": test.design.language}
        return {
            "phase": "join",
            "language": test.design.language,
            "consent": test.design.consent,
            "instructions": test.design.instructions,
            "name": invitation.name,
        }

    @router.post("/{token}/join")
    async def join(request: Request, response: Response, token: str, body: JoinBody) -> dict[str, Any]:
        session = sessions.session(token, request.cookies.get(RATER_COOKIE, ""))
        if session is None:
            session = sessions.join(token, body.consent, ensure_key(request, response, token))
        response.headers.update(NO_STORE)
        return sessions.view(session)

    @router.get("/{token}/clip/{address}")
    async def clip(request: Request, token: str, address: str) -> Response:
        """A sound, once. Every clip of a trial has the same size and the same headers."""
        session = session_of(request, token)
        served = sessions.take(session, address)
        sound = await asyncio.to_thread(sessions.sound, session, served)
        return Response(sound, media_type="audio/wav", headers=NO_STORE)

    @router.get("/{token}/headphones/{number}")
    async def headphone_tones(request: Request, token: str, number: int) -> Response:
        session = session_of(request, token)
        sound = await asyncio.to_thread(sessions.headphone_sound, session, number)
        return Response(sound, media_type="audio/wav", headers=NO_STORE)

    @router.post("/{token}/headphones")
    async def headphones(request: Request, token: str, body: ToneBody) -> dict[str, Any]:
        """Keep what was chosen in a round; sent twice, it counts once."""
        sessions.choose_tone(session_of(request, token), body.number, body.chosen)
        return sessions.view(session_of(request, token))

    @router.post("/{token}/headphones/again")
    async def headphones_again(request: Request, token: str) -> dict[str, Any]:
        sessions.check_headphones_again(session_of(request, token))
        return sessions.view(session_of(request, token))

    @router.post("/{token}/draft")
    async def draft(request: Request, token: str, body: DraftBody) -> dict[str, bool]:
        """Keep what is set in a trial before it is sent off."""
        sessions.keep_draft(session_of(request, token), body.number, body.model_dump(exclude={"number"}))
        return {"kept": True}

    @router.post("/{token}/answer")
    async def answer(request: Request, token: str, body: AnswerBody) -> dict[str, Any]:
        """Keep an answer and show what is next; sent twice, it counts once."""
        session = session_of(request, token)
        reply = None
        if not body.timeout:
            reply = Reply(tuple(body.scores), body.typed, body.comment, body.seconds)
        await asyncio.to_thread(sessions.answer, session, body.number, reply)
        return sessions.view(session_of(request, token))

    @router.post("/{token}/comment")
    async def comment(request: Request, token: str, body: CommentBody) -> dict[str, bool]:
        sessions.say(session_of(request, token), body.comment)
        return {"kept": True}

    @router.post("/{token}/text")
    async def arena_text(request: Request, token: str, body: TextBody) -> dict[str, Any]:
        """The arena: a visitor's own text, made in two conditions."""
        address = request.client.host if request.client else ""  # cookies are to be had for nothing
        await room.arena.ask(session_of(request, token), body.text, address)
        return sessions.view(session_of(request, token))

    @router.get("/{token}/leaderboard")
    async def arena_leaderboard(request: Request, response: Response, token: str) -> dict[str, Any]:
        """The arena: how the conditions stand, between two pairs and where the owner shows it."""
        response.headers.update(NO_STORE)
        board = await asyncio.to_thread(sessions.leaderboard, session_of(request, token))
        return board._asdict() | {"rows": [row._asdict() for row in board.rows]}

    return router
