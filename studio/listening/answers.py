"""The answers of a listening test in long format, one row an answer, and their CSV file. Judges nothing.

A trial that asks about several clips at once (MUSHRA) leaves one row a clip, all with the same `trial`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, NamedTuple


class Kind(StrEnum):
    """What raters are asked."""

    MOS = "mos"
    CMOS = "cmos"
    AB = "ab"
    ABX = "abx"
    MUSHRA = "mushra"
    MUSHRA_NMR = "mushra_nmr"
    SIMILARITY = "similarity"
    INTELLIGIBILITY = "intelligibility"


class Role(StrEnum):
    """Why a trial was shown; only `test` and `repeat` tell about conditions, and `repeat` about the rater too."""

    TEST = "test"
    REPEAT = "repeat"
    TRAINING = "training"
    TRAP = "trap"
    GOLD = "gold"


class Scale(NamedTuple):
    """The scores that a kind has: from low to high in whole steps (AB also 0.5: no preference)."""

    low: float
    high: float


SCALES = {
    Kind.MOS: Scale(1, 5),
    Kind.CMOS: Scale(-3, 3),  # above zero: `condition` is better than `against`
    Kind.AB: Scale(0, 1),  # 1: `condition` is preferred, 0: `against`
    Kind.ABX: Scale(0, 1),  # 1: X was told right, 0: wrong
    Kind.MUSHRA: Scale(0, 100),
    Kind.MUSHRA_NMR: Scale(0, 100),
    Kind.SIMILARITY: Scale(1, 4),  # different, sure / not sure; same, not sure / sure
    Kind.INTELLIGIBILITY: Scale(0, float("inf")),  # word errors, of `words`
}
# Kinds whose answers compare `condition` with `against`; for the others `against` is empty.
PAIRED = frozenset({Kind.CMOS, Kind.AB, Kind.ABX})


@dataclass(frozen=True, slots=True)
class Answer:
    """One score by one rater. Ids, not names, say who and what: names are the design's.

    `wanted_low` and `wanted_high` bound the right scores of a trap or gold trial, ends included.
    """

    test: str
    rater: str
    trial: str
    position: int  # place of the trial in the rater's order, from 1
    kind: Kind
    role: Role
    item: str  # the material: clips that are compared share it
    condition: str
    score: float
    against: str = ""
    words: int = 1  # in the reference text of intelligibility; 1 elsewhere
    wanted_low: float | None = None
    wanted_high: float | None = None
    typed: str = ""
    comment: str = ""
    seconds: float | None = None  # from the trial's first sound to the answer
    at: str = ""  # ISO 8601, UTC


@dataclass(frozen=True, slots=True)
class Study:
    """What the analysis must know of a test's design."""

    test: str
    title: str
    kind: Kind
    conditions: dict[str, str]  # id -> name, in the order of the report
    reference: str = ""  # the hidden reference's condition, if there is one
    anchors: tuple[str, ...] = ()
    simulated: bool = False  # the raters are a program; every page of the report then says so
    material: dict[str, str] = field(default_factory=dict)  # what was spoken and how, as lines of the report


COLUMNS = [column.name for column in fields(Answer)]
_OPTIONAL = {"wanted_low", "wanted_high", "seconds"}
_NUMBERS = {"score": float, "position": int, "words": int, "kind": Kind, "role": Role}


def write_csv(answers: Iterable[Answer]) -> str:
    """Answers as CSV with a heading; cells that a spreadsheet would run as formulas get a leading quote."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for answer in answers:
        writer.writerow({name: _to_cell(value) for name, value in asdict(answer).items()})
    return out.getvalue()


def read_csv(text: str) -> list[Answer]:
    """The inverse of `write_csv`.

    Raises:  ValueError or KeyError if a cell or a column does not belong there.
    """
    rows = csv.DictReader(io.StringIO(text))
    return [Answer(**{name: _from_cell(name, row[name]) for name in COLUMNS}) for row in rows]


def _to_cell(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "'", "\t", "\r"):
        return "'" + value
    return value


def _from_cell(name: str, cell: str) -> Any:
    if name in _OPTIONAL:
        return float(cell) if cell else None
    if name in _NUMBERS:
        return _NUMBERS[name](cell)
    return cell[1:] if cell[:1] == "'" else cell
