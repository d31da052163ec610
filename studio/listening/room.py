"""All parts of the listening tests over one folder, joined for whoever serves them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from studio.listening.arena import Arena
from studio.listening.blinding import Addresses
from studio.listening.database import Database
from studio.listening.generation import Generation, Speak
from studio.listening.raters import RaterStore
from studio.listening.sessions import Sessions
from studio.listening.store import ListeningStore


class ListeningRoom:
    """Stores, sessions, generation and arena. running: the studio's settings by name, to compare conditions with."""

    def __init__(
        self, folder: Path, speak: Speak, running: Mapping[str, Any], now: Callable[[], float] = time.time
    ) -> None:
        self._database = Database(folder / "tests.sqlite")
        self.store = ListeningStore(folder, self._database, now)
        self.raters = RaterStore(self._database, now)
        self.sessions = Sessions(self.store, self.raters, Addresses(), now)
        self.generation = Generation(self.store, speak, running)
        self.arena = Arena(self.store, self.raters, speak, now)
        self.now = now

    async def close(self) -> None:
        await self.generation.close()
        self._database.close()
