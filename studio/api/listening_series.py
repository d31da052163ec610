"""/admin/listening/{id}/make: a listening test's material, each condition under its own settings of the engine."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from studio.errors import NotFound
from studio.listening.room import ListeningRoom


def include_series(router: APIRouter, room: ListeningRoom, who: Callable[[Request], str]) -> None:
    """For administrators, whoever owns the test: others wait in line meanwhile."""

    series = room.series
    if series is None:
        raise RuntimeError("nobody lends the engine, so there is nothing that an administrator could begin")

    @router.post("/listening/{test_id}/make")
    async def make(test_id: str, request: Request) -> JSONResponse:
        """Begin to make what is missing; GET the test to see how far it is."""
        test = room.store.find(test_id)
        with room.changing(test.id):
            begun = series.start(test, who(request))
        return JSONResponse({"parts": begun}, 202, {"Cache-Control": "no-store"})

    @router.delete("/listening/{test_id}/make")
    async def stop(test_id: str) -> dict[str, bool]:
        """End it after the present restart; the old settings come back, and what was made stays."""
        if series.view(test_id) is None:
            raise NotFound("listening.no_series")
        await series.stop(test_id)
        return {"ok": True}
