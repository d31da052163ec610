"""Rows of figures that are kept as soon as they are known: a run that is cut short keeps what it had."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

Row = dict[str, object]


def tell(line: Row, file: Path | None) -> None:
    """Print one JSON line, and append it to the file if one is named."""
    text = json.dumps(line)
    print(text, flush=True)
    if file is not None:
        with file.open("a", encoding="utf-8") as kept:
            kept.write(text + "\n")


@dataclass(slots=True)
class Out:
    """A file of JSON lines, one a row, each with the same conditions. file: None to keep them in memory alone."""

    file: Path | None
    conditions: Row
    rows: list[Row] = field(default_factory=list)

    def add(self, row: Row) -> None:
        """Keep a row; it is in the file when this returns, and on standard output."""
        self.rows.append(row)
        print(json.dumps(row), flush=True)
        if self.file is not None:
            with self.file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(self.conditions | row) + "\n")
