"""What was changed, by whom and with what outcome, and named sets of settings; one SQLite file."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path

from studio.database import open_database
from studio.errors import NotFound

SCHEMA = Path(__file__).parent / "schema"
SHOWN = 200
Values = Mapping[str, object]


class ChangeLog:
    """Appends, never edits. Any thread may call it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._database = open_database(folder / "changes.sqlite", SCHEMA)

    def close(self) -> None:
        self._database.close()

    def add(
        self, who: str, before: Values, after: Values, outcome: str, reason: str, predicted: Values, found: Values
    ) -> None:
        parts = (json.dumps(dict(part)) for part in (before, after))
        figures = (json.dumps(dict(part)) for part in (predicted, found))
        self._database.execute(
            "INSERT INTO changes (at_s, who, before, after, outcome, reason, predicted, found)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (time.time(), who, *parts, outcome, reason, *figures),
        )

    def latest(self) -> list[dict[str, object]]:
        """The latest changes, the newest first."""
        rows = self._database.execute(
            "SELECT at_s, who, before, after, outcome, reason, predicted, found FROM changes"
            " ORDER BY number DESC LIMIT ?",
            (SHOWN,),
        )
        return [
            {
                "at_s": at_s, "who": who, "before": json.loads(before), "after": json.loads(after),
                "outcome": outcome, "reason": reason, "predicted": json.loads(predicted),
                "found": json.loads(found),
            }
            for at_s, who, before, after, outcome, reason, predicted, found in rows
        ]  # fmt: skip

    def save_preset(self, name: str, settings: Values) -> None:
        self._database.execute(
            "INSERT OR REPLACE INTO presets (name, settings, at_s) VALUES (?, ?, ?)",
            (name, json.dumps(dict(settings)), time.time()),
        )

    def presets(self) -> dict[str, dict[str, object]]:
        rows = self._database.execute("SELECT name, settings FROM presets ORDER BY name")
        return {name: json.loads(settings) for name, settings in rows}

    def delete_preset(self, name: str) -> None:
        """Raises: NotFound if there is no such preset."""
        if self._database.execute("DELETE FROM presets WHERE name = ?", (name,)).rowcount == 0:
            raise NotFound("admin.no_preset", name=name)
