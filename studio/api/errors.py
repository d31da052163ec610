"""The one place where errors become HTTP replies, all in OpenAI's envelope. Chooses by type, never by text."""

from __future__ import annotations

import logging
import math

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection

from studio.errors import InvalidRequest, StudioError
from studio.messages import best_language, render

logger = logging.getLogger(__name__)


def language_of(request: HTTPConnection) -> str:
    """The language of messages in a reply: the page's, or what the client accepts."""
    return best_language(request.headers.get("accept-language"))


def envelope(
    message: str,
    kind: str,
    code: str | None,
    param: str | None,
    status: int,
    retry_after_s: float | None = None,
) -> JSONResponse:
    """OpenAI's error body; Retry-After in whole seconds, rounded up."""
    headers = {"Cache-Control": "no-store"}
    if retry_after_s is not None:
        headers["Retry-After"] = str(max(1, math.ceil(retry_after_s)))
    return JSONResponse(_body(message, kind, code, param), status, headers)


def _body(message: str, kind: str, code: str | None, param: str | None) -> dict[str, dict[str, str | None]]:
    error = {"message": message, "type": kind, "param": param, "code": code}
    # A client's own words may hold halves of surrogate pairs, which no reply can.
    return {"error": {k: v and v.encode("utf-8", "replace").decode() for k, v in error.items()}}


def error_body(error: StudioError, language: str) -> dict[str, dict[str, str | None]]:
    """The body of an error's reply, for where a reply has begun already."""
    return _body(error.message(language), error.kind, error.code, error.param)


def reply(error: StudioError, language: str) -> JSONResponse:
    retry_after_s = error.retry_after_s
    if retry_after_s is None and error.retryable and error.http_status in (429, 503):
        retry_after_s = float(str(error.values.get("seconds", 5)))
    return envelope(
        error.message(language), error.kind, error.code, error.param, error.http_status, retry_after_s
    )


async def on_studio_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, StudioError)
    return reply(error, language_of(request))


async def on_validation_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = [str(part) for part in first["loc"] if part not in ("body", "query", "path", "header")]
    field = ".".join(where) or "body"
    if first["type"] == "json_invalid":
        found = InvalidRequest("request.json")
    elif first["type"] == "missing":
        found = InvalidRequest("request.field_missing", param=field, field=field)
    else:
        found = InvalidRequest("request.field_bad", param=field, field=field, reason=first["msg"])
    return reply(found, language_of(request))


async def on_http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    path, language = request.url.path, language_of(request)
    if error.status_code in (404, 405):
        message = render("request.not_found", language, method=request.method, path=path)
        return envelope(message, "invalid_request_error", "not_found", None, error.status_code)
    return envelope(str(error.detail), "invalid_request_error", None, None, error.status_code)


async def on_bug(request: Request, error: Exception) -> JSONResponse:
    logger.error("unexpected error at %s", request.url.path, exc_info=error)
    return envelope(render("internal", language_of(request)), "server_error", "internal_error", None, 500)


def install(app: FastAPI) -> None:
    """Make every failure of the app's own routes an OpenAI error."""
    app.add_exception_handler(StudioError, on_studio_error)
    app.add_exception_handler(RequestValidationError, on_validation_error)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(Exception, on_bug)
