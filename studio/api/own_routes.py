"""This application's own routes, called in its process for who came by Gradio: one way in, one set of refusals."""

from __future__ import annotations

from typing import Any

import httpx
from fastapi import FastAPI
from starlette.requests import HTTPConnection

FORWARDED = ("authorization", "cookie", "accept-language")
"""Who the caller is, and how to speak to them. What tells other sites apart was judged by the gate on the way in."""


class OwnRoutes:
    """Called with a caller, a method, a path and what httpx takes besides; gives the whole reply, refusals too."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    async def __call__(self, caller: HTTPConnection, method: str, path: str, **content: Any) -> httpx.Response:
        headers = {name: caller.headers[name] for name in FORWARDED if name in caller.headers}
        address = (caller.client.host, caller.client.port) if caller.client else ("unknown", 0)
        transport = httpx.ASGITransport(self._app, raise_app_exceptions=False, client=address)
        async with httpx.AsyncClient(transport=transport, base_url="http://studio", timeout=None) as client:
            return await client.request(method, path, headers=headers, **content)
