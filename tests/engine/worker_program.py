"""A worker program small enough for unit tests; what it does is told by its settings. Not a test itself."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

from studio.backends.serve import Report, Service, run_worker
from studio.errors import CheckpointError, EngineDead, SpeechLMError


async def setup(settings: dict[str, Any], report: Report) -> Service:
    if settings.get("crash_at_start"):
        print("the disk is on fire", file=sys.stderr)
        raise SystemExit(3)
    if settings.get("hang_at_start"):
        await asyncio.Event().wait()
    if settings.get("bad_checkpoint"):
        raise CheckpointError("checkpoint.missing_file", file="flow.pt", folder="x")
    report("stage.weights", 0.5, file="flow.pt")
    open_streams: list[str] = []

    async def add(a: int, b: int) -> int:
        return a + b

    async def fail() -> None:
        raise ValueError("no")

    async def count(to: int) -> AsyncIterator[int]:
        open_streams.append("count")
        try:
            for number in range(to):
                yield number
            if to < 0:
                yield -1
                await asyncio.Event().wait()
        finally:
            open_streams.remove("count")

    async def count_and_fail(to: int) -> AsyncIterator[int]:
        for number in range(to):
            yield number
        raise ValueError("no")

    async def forever() -> None:
        await asyncio.Event().wait()

    async def open_now() -> int:
        return len(open_streams)

    async def die() -> None:
        raise EngineDead("engine.dead", seconds=1.0)

    async def start_child() -> int:
        return subprocess.Popen(["sleep", "1000"], close_fds=False).pid

    async def close() -> None:
        if path := settings.get("close_mark"):
            with open(path, "w") as mark:
                mark.write("closed in order")

    handlers = {
        "add": add, "fail": fail, "count": count, "forever": forever, "open_now": open_now, "die": die,
        "start_child": start_child, "count_and_fail": count_and_fail,
    }  # fmt: skip
    return Service(handlers, close, {"pid": os.getpid()})


if __name__ == "__main__":
    run_worker(setup, lambda error: SpeechLMError("speech.lm_failed", reason=str(error)))
