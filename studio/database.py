"""SQLite files and their schemas: opens one and brings it up to date. Knows no tables."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BUSY_TIMEOUT_MS = 5000


def open_database(file: Path, schema: Path) -> sqlite3.Connection:
    """The database of a file, which is made when missing, with every numbered step of its schema applied.

    schema: a folder of 0001.sql, 0002.sql ...; PRAGMA user_version says up to which a file was brought. A step is
    applied as a whole or not at all. Rows come as tuples, each statement commits by itself, and any thread may ask:
    SQLite is built serialised (sqlite3.threadsafety 3).

    Raises: RuntimeError for a file of a newer studio, which is left untouched.
    """
    steps = sorted(schema.glob("[0-9]*.sql"))
    database = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    version = int(database.execute("PRAGMA user_version").fetchone()[0])
    if version > len(steps):
        database.close()
        raise RuntimeError(
            f"{file.name} has schema {version}, this studio knows {len(steps)}; update the studio"
        )
    database.execute("PRAGMA journal_mode = WAL")
    # With WAL a power cut may lose the last commits, and never harms the file; each commit need not wait for the disk.
    database.execute("PRAGMA synchronous = NORMAL")
    database.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    for number, step in enumerate(steps[version:], version + 1):
        script = step.read_text(encoding="utf-8")
        try:
            database.executescript(f"BEGIN IMMEDIATE; {script} ; PRAGMA user_version = {number}; COMMIT;")
        except sqlite3.Error:
            if database.in_transaction:
                database.execute("ROLLBACK")
            database.close()
            raise
    return database


@contextmanager
def transaction(database: sqlite3.Connection, lock: threading.RLock) -> Iterator[None]:
    """All statements inside or none, one thread at a time: threads share the connection, and lock keeps them apart."""
    with lock:
        database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            database.execute("ROLLBACK")
            raise
        database.execute("COMMIT")
