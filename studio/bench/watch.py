"""How many requests a studio says that it has, looked at all through a load."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import httpx

LOOK_EVERY_S = 0.25
COUNTED = ("studio_requests_running", "studio_requests_waiting")


@contextlib.asynccontextmanager
async def in_flight(client: httpx.AsyncClient) -> AsyncIterator[list[float]]:
    """Requests running and waiting by /metrics, four times a second, until the block ends."""
    seen: list[float] = []

    async def look() -> None:
        while True:
            seen.append(counted((await client.get("/metrics")).raise_for_status().text))
            await asyncio.sleep(LOOK_EVERY_S)

    looking = asyncio.create_task(look())
    try:
        yield seen
    finally:
        looking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await looking


def counted(metrics: str) -> float:
    """The sum of what `COUNTED` names in a page of metrics."""
    values = (line.split() for line in metrics.splitlines() if line.startswith(COUNTED))
    return sum(float(words[-1]) for words in values)
