"""How a report names things and writes numbers, in the reader's language."""

from __future__ import annotations

from dataclasses import dataclass

from studio.listening.answers import Kind, Study
from studio.listening.design import ANCHORS
from studio.listening.statistics.intervals import Interval
from studio.messages import render

NOTHING = "–"
SHARES = frozenset({Kind.AB, Kind.ABX, Kind.INTELLIGIBILITY})  # written as percentages
DECIMALS = {Kind.MUSHRA: 1, Kind.MUSHRA_NMR: 1}


@dataclass(frozen=True, slots=True)
class Wording:
    """The language of a report and the names of its study."""

    study: Study
    language: str

    def say(self, key: str, **values: object) -> str:
        """The sentence of a key below report."""
        return render(f"report.{key}", self.language, **values)

    def name(self, condition: str) -> str:
        """A condition's name; anchors are named for what they let through, and the reference is marked."""
        if condition in ANCHORS:
            return self.say("anchor", khz=f"{ANCHORS[condition] / 1000:g}")
        name = self.study.conditions.get(condition, condition)
        return self.say("reference", name=name) if condition == self.study.reference else name

    def cell(self, condition: str, against: str) -> str:
        """A condition's name, or both of a pair."""
        if not against:
            return self.name(condition)
        return self.say("pair", first=self.name(condition), second=self.name(against))

    def number(self, value: float | None, signed: bool = False) -> str:
        """A value of this kind of test: a score, or a percentage. Differences have a sign."""
        if value is None or value != value:
            return NOTHING
        sign = "+" if signed else ""
        if self.study.kind in SHARES:
            return f"{value:{sign}.1%}".replace("-", "−")
        return f"{value:{sign}.{DECIMALS.get(self.study.kind, 2)}f}".replace("-", "−")

    def bounds(self, found: Interval | None, signed: bool = False) -> str:
        """An interval's ends."""
        if found is None or (found.low is None and found.high is None):
            return NOTHING
        if found.high is None:
            return self.say("bounds.open", low=self.number(found.low, signed))
        return self.span(self.number(found.low, signed), self.number(found.high, signed))

    def span(self, low: str, high: str) -> str:
        """From one number to another."""
        return self.say("bounds", low=low, high=high)


def plain(value: float | None, decimals: int = 2) -> str:
    """A number of no unit."""
    return NOTHING if value is None or value != value else f"{value:.{decimals}f}".replace("-", "−")


def chance(p: float) -> str:
    """A p-value."""
    return "<\u00a00.001" if p < 0.001 else f"{p:.3f}"
