"""All parts of the listening tests over one folder, joined for whoever serves them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from studio.listening.arena import Arena
from studio.listening.blinding import Addresses
from studio.listening.database import Database
from studio.listening.generation import Generation, Present, Speak
from studio.listening.raters import RaterStore
from studio.listening.sessions import Sessions
from studio.listening.store import ListeningStore


class ListeningRoom:
    """Stores, sessions, generation and arena. present: as in `generation`."""

    def __init__(
        self, folder: Path, speak: Speak, present: Present, now: Callable[[], float] = time.time
    ) -> None:
        self._database = Database(folder / "tests.sqlite")
        self.store = ListeningStore(folder, self._database, now)
        self.raters = RaterStore(self._database, now)
        self.sessions = Sessions(self.store, self.raters, Addresses(), now)
        self.generation = Generation(self.store, speak, present)
        self.arena = Arena(self.store, self.raters, speak, now)
        self.now = now

    async def close(self) -> None:
        await self.generation.close()
        self._database.close()
