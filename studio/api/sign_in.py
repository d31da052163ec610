"""/admin/oidc: to the OpenID provider and back, as a browser goes; and the cookies of administrators."""

from __future__ import annotations

import html
import logging
from pathlib import Path
from typing import TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from studio.admin.access import ADMIN_COOKIE, SESSION_S, AdminAccess
from studio.admin.sign_in import FLOW_S, Answer, SignIn
from studio.api.errors import language_of
from studio.api.guard import is_secure, public_origin
from studio.errors import AdminRefused, ProviderError
from studio.messages import render

FLOW_COOKIE = "studio_admin_flow"
HEADERS = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
PAGE = Path(__file__).resolve().parents[2] / "assets" / "web" / "sign_in.html"
Reply = TypeVar("Reply", bound=Response)
logger = logging.getLogger(__name__)


def sign_in_router(access: AdminAccess, sign_in: SignIn) -> APIRouter:
    """Both routes are opened as pages, so a refusal is a page too."""
    router = APIRouter(prefix="/admin/oidc")

    @router.get("/login")
    async def begin(request: Request) -> Response:
        try:
            address, cookie = await sign_in.begin(_callback(request))
        except ProviderError as error:
            return _told(request, error)
        return _with_cookie(RedirectResponse(address, 303, HEADERS), request, FLOW_COOKIE, cookie, FLOW_S)

    @router.get("/callback")
    async def end(request: Request, state: str = "", code: str = "", error: str = "", iss: str = "") -> Response:
        answer = Answer(state, code, error, iss)
        try:
            name = await sign_in.end(request.cookies.get(FLOW_COOKIE, ""), answer, _callback(request))
        except (AdminRefused, ProviderError) as refusal:
            return _with_cookie(_told(request, refusal), request, FLOW_COOKIE, "", 0)
        logger.info("administrator %r signed in by %s", name, sign_in.host)
        reply = let_in(RedirectResponse(_page(request), 303, HEADERS), request, access.let_in(name))
        return _with_cookie(reply, request, FLOW_COOKIE, "", 0)

    return router


def let_in(reply: Reply, request: Request, cookie: str) -> Reply:
    """The reply with the cookie of a session."""
    return _with_cookie(reply, request, ADMIN_COOKIE, cookie, SESSION_S)


def _with_cookie(reply: Reply, request: Request, name: str, value: str, seconds: float) -> Reply:
    # Lax: strict ones are not sent on the way back from the provider, and what changes anything is no GET.
    reply.set_cookie(
        name, value, max_age=int(seconds), path=f"{_root(request)}/admin", httponly=True, samesite="lax",
        secure=is_secure(request),
    )  # fmt: skip
    return reply


def _told(request: Request, error: AdminRefused | ProviderError) -> HTMLResponse:
    logger.warning("no sign-in: %s", error)
    language = language_of(request)
    sentences = {
        "language": language, "told": error.message(language), "page": _page(request),
        "again": f"{_root(request)}/admin/oidc/login", "again_button": render("admin.oidc_again", language),
        "back_button": render("admin.oidc_back", language),
    }  # fmt: skip
    filled = {name: html.escape(text) for name, text in sentences.items()}
    return HTMLResponse(PAGE.read_text(encoding="utf-8").format(**filled), error.http_status, HEADERS)


def _root(request: Request) -> str:
    return str(request.scope.get("root_path", ""))


def _callback(request: Request) -> str:
    return f"{public_origin(request)}{_root(request)}/admin/oidc/callback"


def _page(request: Request) -> str:
    return f"{_root(request)}/#admin"
