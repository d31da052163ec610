"""The lab's runs and their figures: an SQLite file, and beside it a CSV of each run. Measures nothing."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from studio.database import open_database
from studio.errors import NotFound

SCHEMA = Path(__file__).parent / "lab_schema"
SHOWN = 20
COLUMNS = "number, at_s, who, asked, conditions, outcome, reason, points"
Outcome = Literal["finished", "stopped", "failed", "interrupted"]
Point = dict[str, object]


class LabRuns:
    """Keeps every run. Any thread may call it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "lab"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._database = open_database(folder / "lab.sqlite", SCHEMA)

    def close(self) -> None:
        self._database.close()

    def begin(self, who: str, asked: Mapping[str, object], conditions: Mapping[str, object]) -> int:
        """The number of a new run."""
        values = (time.time(), who, json.dumps(dict(asked)), json.dumps(dict(conditions)))
        found = self._database.execute(
            "INSERT INTO runs (at_s, who, asked, conditions, outcome, reason, points)"
            " VALUES (?, ?, ?, ?, 'running', '', '[]') RETURNING number",
            values,
        ).fetchall()
        return int(found[0][0])

    def save(self, number: int, points: Sequence[Point]) -> None:
        """What was measured so far, also as CSV."""
        self._database.execute("UPDATE runs SET points = ? WHERE number = ?", (json.dumps(list(points)), number))
        columns = list(dict.fromkeys(name for point in points for name in point))
        with self.file(number).open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(points)

    def end(self, number: int, outcome: Outcome, reason: str) -> None:
        self._database.execute(
            "UPDATE runs SET outcome = ?, reason = ? WHERE number = ?", (outcome, reason, number)
        )

    def left_running(self) -> list[dict[str, Any]]:
        """Runs that nothing has ended: those of a server that was stopped meanwhile."""
        return self._runs("WHERE outcome = 'running' ORDER BY number")

    def latest(self) -> list[dict[str, Any]]:
        """The newest runs first."""
        return self._runs("ORDER BY number DESC LIMIT ?", SHOWN)

    def csv_of(self, number: int) -> Path:
        """Raises: NotFound if there is no such run, or it has measured nothing."""
        file = self.file(number)
        if not file.is_file():
            raise NotFound("lab.no_run", number=number)
        return file

    def file(self, number: int) -> Path:
        return self._folder / f"{number:05d}.csv"

    def _runs(self, which: str, *values: object) -> list[dict[str, Any]]:
        rows = self._database.execute(f"SELECT {COLUMNS} FROM runs {which}", values)
        return [
            {
                "number": number, "at_s": at_s, "who": who, "asked": json.loads(asked),
                "conditions": json.loads(conditions), "outcome": outcome, "reason": reason,
                "points": json.loads(points),
            }
            for number, at_s, who, asked, conditions, outcome, reason, points in rows
        ]  # fmt: skip
