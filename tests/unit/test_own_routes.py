"""Routes that are called in the process: a reply is whole or a refusal, and a file of it is never held in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from starlette.requests import HTTPConnection

from studio.api import errors
from studio.api.own_routes import OwnRoutes
from studio.errors import NotFound, SpeechLMError

CALLER = HTTPConnection({"type": "http", "headers": [(b"accept-language", b"zh")], "client": ("10.0.0.1", 1)})


@pytest.fixture
def routes() -> OwnRoutes:
    app = FastAPI()
    errors.install(app)

    def pieces(fault: Exception | None) -> Iterator[bytes]:
        yield b"first "
        if fault:
            raise fault
        yield b"second"

    @app.get("/{what}")
    async def reply(what: str) -> StreamingResponse:
        if what == "absent":
            raise NotFound("take.not_found")
        if what == "bug":
            raise ZeroDivisionError
        faults = {"fails": SpeechLMError("internal"), "breaks": ZeroDivisionError()}
        return StreamingResponse(pieces(faults.get(what)))

    return OwnRoutes(app)


async def test_reply_that_breaks_off_is_a_refusal_and_never_half_a_sound(routes: OwnRoutes, tmp_path: Path) -> None:
    assert (await routes(CALLER, "GET", "/whole")).content == b"first second"
    for path in ("/fails", "/breaks", "/bug"):
        for into in (None, tmp_path / "sound"):
            told = await routes(CALLER, "GET", path, into=into)
            assert told.status_code >= 500 and told.json()["error"]["message"], path
    assert list(tmp_path.iterdir()) == []


async def test_file_is_made_piece_by_piece_and_none_of_a_refusal(routes: OwnRoutes, tmp_path: Path) -> None:
    told = await routes(CALLER, "GET", "/absent", into=tmp_path / "folder" / "take.wav")
    assert (told.status_code, told.json()["error"]["code"]) == (404, "not_found") and not list(tmp_path.iterdir())
    told = await routes(CALLER, "GET", "/whole", into=tmp_path / "folder" / "take.wav")
    assert told.is_success and told.content == b""
    assert (tmp_path / "folder" / "take.wav").read_bytes() == b"first second"
