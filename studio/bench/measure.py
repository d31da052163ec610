"""Loads on a running studio over HTTP, each with the row of figures that it gave."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import httpx

from studio.bench import service
from studio.bench.figures import littles_law, row
from studio.bench.load import Line, Load, Speak, closed_loop, lines_of, open_loop, speak
from studio.bench.watch import in_flight

Row = dict[str, object]
Loader = Callable[[Speak, Iterable[Line]], Awaitable[Load]]
WARMING_SEED = 9000


@dataclass(frozen=True, slots=True)
class Bench:
    """A studio to be measured. voice: as the API lists it. parts: its processes, where they are on this machine."""

    client: httpx.AsyncClient
    voice: dict[str, Any]
    parts: dict[str, list]
    plays: int
    limit_s: float | None = None
    """Of a closed loop, whose rest is cut off."""

    async def warm(self, seconds: int, plays: int) -> None:
        """Plays that are not counted."""
        lines = lines_of(self.voice["id"], seconds, WARMING_SEED)
        await closed_loop(partial(speak, self.client), islice(lines, plays), 1)

    async def closed(self, seconds: int, streams: int) -> Row:
        """So many listeners, each of whom asks again when served."""
        return await self._load(seconds, streams, partial(closed_loop, streams=streams, limit_s=self.limit_s))

    async def open(self, seconds: int, per_s: float) -> Row:
        """Listeners who come at random, so many a second, and do not wait for each other; streams is 0."""
        return {"rate_per_s": per_s, **await self._load(seconds, 0, partial(open_loop, per_s=per_s))}

    async def _load(self, seconds: int, streams: int, load: Loader) -> Row:
        before = service.cpu_s(self.parts)
        async with in_flight(self.client) as seen:
            came = await load(
                partial(speak, self.client), islice(lines_of(self.voice["id"], seconds), self.plays)
            )
        for failure in came.failures:
            print(f"failed: {failure}", file=sys.stderr)
        return {
            "text_s": seconds, "prompt_s": self.voice["clip_seconds"],
            **row(streams, came.plays, len(came.failures), came.wall_s),
            **littles_law(came.plays, came.wall_s, seen), **self._cpu_per_audio_s(came, before),
        }  # fmt: skip

    def _cpu_per_audio_s(self, load: Load, before: dict[str, float]) -> Row:
        audio_s = sum(play.audio_s for play in load.plays)
        after = service.cpu_s(self.parts)
        return {
            f"cpu_{name}": round((after[name] - before[name]) / audio_s, 2) for name in self.parts if audio_s
        }
