"""Which raters to leave out afterwards, by rules that are set before: hidden reference, traps, inconsistency."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from studio.listening.answers import SCALES, Answer, Kind, Role, Study
from studio.listening.statistics.totals import oriented

# Fewer repeats than this say nothing about a rater.
LEAST_REPEATS = 2


class Rule(StrEnum):
    """Why a rater is left out."""

    REFERENCE = "reference"
    TRAPS = "traps"
    INCONSISTENT = "inconsistent"


@dataclass(frozen=True, slots=True)
class Rules:
    """Limits beyond which a rater is left out; None switches a rule off. The defaults for MUSHRA are BS.1534's."""

    reference_below: float = 90
    reference_share: float | None = 0.15  # of the hidden references may be scored below that
    trap_share: float | None = 0.25  # of traps and gold trials may be failed
    # Mean distance between an answer and its repeat, as a share of the scale; for AB the share that turned round.
    repeat_distance: float | None = 0.25
    repeat_turned: float | None = 0.5


class Exclusion(NamedTuple):
    """A rater who is left out: by which rule, what was found (a share), and its limit."""

    rater: str
    rule: Rule
    found: float
    limit: float


class Screening(NamedTuple):
    """What the rules said: who is left out, and which rules found something to look at in this test."""

    exclusions: tuple[Exclusion, ...]
    applied: frozenset[Rule]

    def keeps(self, rater: str) -> bool:
        """Whether no rule leaves the rater out."""
        return all(rater != out.rater for out in self.exclusions)


def screen(answers: Iterable[Answer], study: Study, rules: Rules) -> Screening:
    """Hold each rater's answers against the rules."""
    by_rater: dict[str, list[Answer]] = {}
    for answer in answers:
        by_rater.setdefault(answer.rater, []).append(answer)
    checks: list[tuple[Rule, float | None, Callable[[list[Answer]], float | None]]] = [
        (Rule.REFERENCE, rules.reference_share, lambda own: _references_missed(own, study, rules)),
        (Rule.TRAPS, rules.trap_share, _traps_failed),
        (Rule.INCONSISTENT, _repeat_limit(study.kind, rules), lambda own: _distance_of_repeats(own, study)),
    ]
    exclusions, applied = [], set()
    for rater in sorted(by_rater):
        for rule, limit, find in checks:
            found = None if limit is None else find(by_rater[rater])
            if found is None or limit is None:
                continue
            applied.add(rule)
            if found > limit:
                exclusions.append(Exclusion(rater, rule, found, limit))
    return Screening(tuple(exclusions), frozenset(applied))


def _repeat_limit(kind: Kind, rules: Rules) -> float | None:
    return rules.repeat_turned if kind is Kind.AB else rules.repeat_distance


def _references_missed(own: list[Answer], study: Study, rules: Rules) -> float | None:
    if study.kind not in (Kind.MUSHRA, Kind.MUSHRA_NMR) or not study.reference:
        return None
    scores = [a.score for a in own if a.role is Role.TEST and a.condition == study.reference]
    return sum(score < rules.reference_below for score in scores) / len(scores) if scores else None


def _traps_failed(own: list[Answer]) -> float | None:
    met = [
        a.wanted_low <= a.score <= a.wanted_high
        for a in own
        if a.role in (Role.TRAP, Role.GOLD) and a.wanted_low is not None and a.wanted_high is not None
    ]
    return 1 - sum(met) / len(met) if met else None


def _distance_of_repeats(own: list[Answer], study: Study) -> float | None:
    """Mean distance of repeats from first answers over the scale's width; none for ABX, where guesses are fair."""
    if study.kind is Kind.ABX:
        return None
    first: dict[tuple[object, str], float] = {}
    distances = []
    for answer in sorted(own, key=lambda a: (a.role is Role.REPEAT, a.position)):
        if answer.role not in (Role.TEST, Role.REPEAT) or answer.condition not in study.conditions:
            continue
        cell, score = oriented(answer, study)
        key = (cell, answer.item)
        if answer.role is Role.TEST:
            first[key] = score
        elif key in first:
            # Word errors are counted of so many words; the other scales have a width of their own.
            low, high = SCALES[study.kind]
            width = answer.words if study.kind is Kind.INTELLIGIBILITY else high - low
            distances.append(min(1.0, abs(score - first[key]) / width))
    return sum(distances) / len(distances) if len(distances) >= LEAST_REPEATS else None
