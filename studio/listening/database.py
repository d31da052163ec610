"""The SQLite file of the listening tests, shared by the stores of this room: rows by name, and transactions."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import AbstractContextManager
from pathlib import Path

from studio.database import open_database, transaction

SCHEMA = Path(__file__).with_name("schema")


class Database:
    """One connection for all threads; what was committed survives the end of the process, however it ends."""

    def __init__(self, file: Path) -> None:
        self._lock = threading.RLock()
        self._db = open_database(file, SCHEMA)
        self._db.row_factory = sqlite3.Row
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA foreign_keys = ON")

    def close(self) -> None:
        self._db.close()

    def rows(self, query: str, *values: object) -> list[sqlite3.Row]:
        with self._lock:
            return self._db.execute(query, values).fetchall()

    def row(self, query: str, *values: object) -> sqlite3.Row | None:
        with self._lock:
            found: sqlite3.Row | None = self._db.execute(query, values).fetchone()
            return found

    def run(self, statement: str, *values: object) -> int:
        """Execute one statement; gives the number of rows it changed."""
        with self._lock:
            return self._db.execute(statement, values).rowcount

    def transaction(self) -> AbstractContextManager[None]:
        """All or nothing; other threads wait."""
        return transaction(self._db, self._lock)
