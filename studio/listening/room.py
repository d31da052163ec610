"""All parts of the listening tests over one folder, joined for whoever serves them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from studio.errors import ListeningConflict
from studio.listening.arena import Arena, Check
from studio.listening.blinding import Addresses
from studio.listening.database import Database
from studio.listening.generation import Generation, Present, Speak
from studio.listening.raters import RaterStore
from studio.listening.series import Lender, Series
from studio.listening.sessions import Sessions
from studio.listening.store import ListeningStore, Test


class ListeningRoom:
    """Stores, sessions, generation and arena, and the series once somebody lends the engine.

    present, own: as in `generation`; check: as in `arena`.
    """

    def __init__(
        self,
        folder: Path,
        speak: Speak,
        check: Check,
        present: Present,
        now: Callable[[], float] = time.time,
        own: Present | None = None,
    ) -> None:
        self._database = Database(folder / "tests.sqlite")
        self.store = ListeningStore(folder, self._database, now)
        self.raters = RaterStore(self._database, now)
        self.sessions = Sessions(self.store, self.raters, Addresses(), now)
        self.generation = Generation(self.store, speak, present, own)
        self.arena = Arena(self.store, self.raters, speak, check, now)
        self.series: Series | None = None
        self.now = now
        self._present = present
        self._alone: set[str] = set()
        self._changes: Counter[str] = Counter()

    def borrow_from(self, lender: Lender, speak: Speak) -> Series:
        """Let material be made under other settings of the engine too. speak: past the line, which waits meanwhile."""
        self.series = Series(self.store, self.generation, lender, speak, self._present)
        return self.series

    def is_making(self, test: str) -> bool:
        """Whether material of a test is being made."""
        return self.generation.is_busy(test) or (self.series is not None and self.series.is_busy(test))

    def start_making(self, test: Test) -> None:
        """Begin what the studio's own settings allow, or do nothing while material of the test is being made."""
        if not self.is_making(test.id):
            self.generation.start(test)

    async def stop_making(self, test: str) -> None:
        """Until nothing more of it comes."""
        if self.series is not None:
            await self.series.stop(test)
        await self.generation.stop(test)

    @contextmanager
    def changing(self, test: str) -> Iterator[None]:
        """While a test's material changes; several may. Raises ListeningConflict while somebody has it alone."""
        if test in self._alone:
            raise ListeningConflict("listening.at_work")
        self._changes[test] += 1
        try:
            yield
        finally:
            self._changes[test] -= 1
            self._changes += Counter()  # drops what is back at zero

    @contextmanager
    def alone(self, test: str) -> Iterator[None]:
        """While a test is opened, redesigned or deleted. Raises ListeningConflict if anything changes it already."""
        if test in self._alone or self._changes[test]:
            raise ListeningConflict("listening.at_work")
        self._alone.add(test)
        try:
            yield
        finally:
            self._alone.discard(test)

    async def close(self) -> None:
        if self.series is not None:
            await self.series.close()
        await self.generation.close()
        self._database.close()
