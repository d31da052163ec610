"""The rows of an evaluation and their CSV file, written as soon as an item is judged. Computes no summary."""

from __future__ import annotations

import csv
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    """All that was measured about one item; None where it could not be."""

    id: str
    set: str
    language: str
    prompt: str
    speaker: str
    group: str
    text: str
    transcript: str
    errors: int
    length: int
    character_errors: int
    characters: int
    audio_s: float
    expected_s: float
    wrong: bool
    similarity: float | None
    best_match: str
    similarities: str  # "speaker=0.712 ..." over the speakers that can be mistaken for one another
    pitch_hz: float | None
    prompt_pitch_hz: float | None
    overall: float | None
    signal: float | None
    background: float | None
    p808: float | None
    ttfa_s: float | None
    wall_s: float | None
    failure: str


COLUMNS = [field.name for field in fields(Row)]
_WHOLE = {"errors", "length", "character_errors", "characters"}
_TEXT = {
    "id",
    "set",
    "language",
    "prompt",
    "speaker",
    "group",
    "text",
    "transcript",
    "best_match",
    "similarities",
    "failure",
}


def pack_similarities(values: dict[str, float]) -> str:
    """Similarities as one CSV cell."""
    return " ".join(f"{name}={value:.3f}" for name, value in values.items())


def unpack_similarities(cell: str) -> dict[str, float]:
    """The inverse of `pack_similarities`."""
    return {name: float(value) for name, _, value in (pair.partition("=") for pair in cell.split())}


def _to_cell(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, bool):
        return int(value)
    return round(value, 4) if isinstance(value, float) else value


def _from_cell(name: str, cell: str) -> Any:
    if name in _TEXT:
        return cell
    if name == "wrong":
        return cell == "1"
    if cell == "":
        return None
    return int(cell) if name in _WHOLE else float(cell)


def read_rows(path: Path) -> list[Row]:
    """Rows of a CSV file; none if there is no file yet."""
    if not path.exists():
        return []
    with path.open(encoding="utf8", newline="") as file:
        return [
            Row(**{name: _from_cell(name, cell) for name, cell in row.items()})
            for row in csv.DictReader(file)
        ]


def append_row(path: Path, row: Row) -> None:
    """Add a row at the end of the file, with the heading first if the file is new."""
    new = not path.exists()
    with path.open("a", encoding="utf8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow({name: _to_cell(value) for name, value in asdict(row).items()})
