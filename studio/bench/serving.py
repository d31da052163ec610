"""An application served in the bench's own process, and listeners who come to it from a process of their own."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import uvicorn

from studio.bench import service
from studio.bench.first_bytes import App

LOOK_EVERY_S = 0.002


@asynccontextmanager
async def serving(app: App) -> AsyncIterator[str]:
    """Serve it on a free port of this machine; gives its address. Raises: RuntimeError if the server does not start."""
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve())
    try:
        while not server.started:
            if running.done():
                raise RuntimeError("the server ended as it started")
            await asyncio.sleep(service.LOOK_EVERY_S)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await running


async def listeners(
    url: str, voice: str, streams: int, plays: int, seconds: int, limit_s: float
) -> dict[str, object]:
    """The row that `python -m studio.bench --url` gives of a closed loop. Raises: RuntimeError if it gives none."""
    command = [
        sys.executable, "-m", "studio.bench", "--url", url, "--voice", voice, "--warm", "0",
        "--streams", str(streams), "--plays", str(plays), "--seconds", str(seconds), "--limit-s", str(limit_s),
    ]  # fmt: skip
    process = await asyncio.create_subprocess_exec(*command, cwd=service.ROOT, stdout=asyncio.subprocess.PIPE)
    told, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"the client ended with status {process.returncode}")
    return dict(json.loads(told.splitlines()[-1])["rows"][0])


@asynccontextmanager
async def pauses() -> AsyncIterator[list[float]]:
    """For how many seconds the event loop was held up at each look, a look every 2 ms."""
    found: list[float] = []

    async def look() -> None:
        while True:
            due_s = time.monotonic() + LOOK_EVERY_S
            await asyncio.sleep(LOOK_EVERY_S)
            found.append(time.monotonic() - due_s)

    looking = asyncio.create_task(look())
    try:
        yield found
    finally:
        looking.cancel()
        with suppress(asyncio.CancelledError):
            await looking
