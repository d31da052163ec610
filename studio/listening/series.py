"""Makes the material of conditions whose settings of the studio differ: one set of them after the other, by itself.

Whoever looks after the engine lends it with each set and takes it back. What was begun is kept, so that it goes on
after a restart of the studio, with whatever clips are not there yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from studio.errors import AdminBusy, ListeningConflict, StudioError
from studio.listening.generation import Generation, Present, Speak, missing
from studio.listening.store import ListeningStore, Test

logger = logging.getLogger(__name__)

MAX_TRIES = 3
"""So often a series is begun: one whose settings end the whole studio must not do so for ever."""


class Lender(Protocol):
    """Whoever looks after the engine: `admin.lending.Lending`."""

    @property
    def phase(self) -> str: ...

    def check(self, changes: Mapping[str, object]) -> None: ...

    def lend(
        self, sets: Sequence[Mapping[str, object]], work: Callable[[int], Awaitable[bool]], who: str
    ) -> Awaitable[str]: ...


@dataclass(frozen=True, slots=True)
class Part:
    """Conditions that are made under the same settings of the studio."""

    settings: Mapping[str, Any]
    conditions: tuple[str, ...]


def parts(store: ListeningStore, test: Test, running: Mapping[str, Any]) -> list[Part]:
    """What is missing, by settings; what the studio runs with comes first, since it needs no restart."""
    found: dict[str, Part] = {}
    for condition in {condition.id: condition for condition, _ in missing(store, test)}.values():
        settings = condition.source.studio
        before = found.get(key := str(sorted(settings.items())))
        found[key] = Part(settings, (*(before.conditions if before else ()), condition.id))
    return sorted(found.values(), key=lambda p: any(str(running.get(k)) != str(v) for k, v in p.settings.items()))


@dataclass(slots=True)
class _Running:
    test: str
    parts: list[Part]
    at: int = 0
    stopped: bool = False


class Series:
    """One at a time. Owner: the event loop. speak: past the line of listeners, who wait meanwhile."""

    def __init__(
        self, store: ListeningStore, generation: Generation, lender: Lender, speak: Speak, present: Present
    ) -> None:
        self._store, self._generation, self._lender = store, generation, lender
        self._speak, self._present = speak, present
        self._running: _Running | None = None
        self._following: asyncio.Task[None] | None = None
        self._cut_off = list(store.series())
        """Tests whose series a restart of the studio has ended, until it is begun again."""

    def is_busy(self, test: str) -> bool:
        return self._running is not None and self._running.test == test

    def view(self, test: str) -> dict[str, Any] | None:
        """How far a test's series is; None for none."""
        if self._running is None or self._running.test != test:
            return {"phase": "waiting", "part": 0, "parts": 0, "settings": {}} if test in self._cut_off else None
        now = self._running
        return {
            "phase": self._lender.phase,
            "part": now.at + 1,
            "parts": len(now.parts),
            "settings": dict(now.parts[now.at].settings),
        }

    def start(self, test: Test, who: str) -> int:
        """Begin; gives the number of sets of settings.

        Raises: ListeningConflict if nothing is missing or the test is being made already; AdminBusy, InvalidRequest.
        """
        if self._generation.is_busy(test.id) or self.is_busy(test.id):
            raise ListeningConflict("listening.making")
        wanted = parts(self._store, test, self._present())
        if test.state != "draft" or not wanted:
            raise ListeningConflict("listening.nothing_to_make")
        running = _Running(test.id, wanted)

        async def work(number: int) -> bool:
            running.at = number
            if running.stopped:
                return False
            made = await self._generation.make(test, wanted[number].conditions, self._speak)
            return made and not running.stopped

        ending = self._lender.lend([part.settings for part in wanted], work, who)
        self._store.begin_series(test.id, who)
        self._cut_off = [other for other in self._cut_off if other != test.id]
        self._running = running
        self._following = asyncio.create_task(self._follow(running, ending), name=f"series of {test.id}")
        return len(wanted)

    async def stop(self, test: str) -> None:
        """End it after what it does now; the old settings come back. The next one begins then."""
        if self._running is not None and self._running.test == test:
            self._running.stopped = True
            await self._generation.stop(test)
        elif test in self._cut_off:
            self._cut_off.remove(test)
            self._store.end_series(test)

    def resume(self) -> None:
        """Go on with what a restart has cut off, one after the other; for when the engine is ready."""
        while self._cut_off and self._running is None:
            test = self._store.find(self._cut_off[0])
            who, tries = self._store.series()[test.id]
            try:
                if tries >= MAX_TRIES:
                    raise ListeningConflict("listening.series_given_up", tries=tries)
                self.start(test, who)
            except AdminBusy:
                return  # settings are being changed; the engine becomes ready again after that
            except StudioError as error:
                self._cut_off.remove(test.id)
                self._store.set_problem(test.id, error)
                self._store.end_series(test.id)

    async def close(self) -> None:
        """Leave it as it is; it is gone on with at the next start."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    async def _follow(self, running: _Running, ending: Awaitable[str]) -> None:
        try:
            reason = await ending
        except Exception as error:
            logger.exception("the series of listening test %s broke", running.test)
            reason = str(error) or type(error).__name__
        if reason or self._lender.phase == "failed":
            key = "listening.series_stuck" if self._lender.phase == "failed" else "listening.series_failed"
            logger.warning("the series of listening test %s ended: %s", running.test, reason)
            self._store.set_problem(running.test, ListeningConflict(key, reason=reason))
        self._store.end_series(running.test)
        self._running = None
        self.resume()
