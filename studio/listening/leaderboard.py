"""What the arena's votes say, every visitor weighed: the leaderboard that visitors see. Says nothing of a pair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from studio.listening.answers import Answer
from studio.listening.raters import Rater, study
from studio.listening.statistics.ranking import rank, wins_by_rater
from studio.listening.statistics.totals import total, weighed
from studio.listening.store import Test

FULL_WEIGHT_VOTES = 20
"""A rater's votes together weigh no more than so many."""
ONE_SIDED_VOTES, ONE_SIDED_RATIO = 10, 0.9
"""From so many votes on, somebody who nearly always takes the same button is not listening."""


class Standing(NamedTuple):
    """A condition's place. share: how often it is preferred to one of the middle, 0 to 1; no ends for one visitor."""

    name: str
    share: float
    low: float | None
    high: float | None


class Leaderboard(NamedTuple):
    """votes: given so far; wanted: from so many on, rows are shown. rows: best first; none while hidden."""

    votes: int
    wanted: int
    rows: tuple[Standing, ...]


def leaderboard(test: Test, raters: Iterable[Rater], votes: Sequence[Answer]) -> Leaderboard:
    """The ranking by Bradley-Terry, every visitor weighed as in the owner's report."""
    wanted = test.design.leaderboard_votes
    if not votes or len(votes) < wanted:
        return Leaderboard(len(votes), wanted, ())
    about = study(test)
    totals = weighed(total(votes, about), vote_weights(raters, votes))
    names = [name for name in about.conditions if any(name in cell for cell in totals.cells)]
    if not totals.raters:
        return Leaderboard(len(votes), wanted, ())
    ranked = rank(wins_by_rater(totals, names), names).rows
    rows = (
        Standing(about.conditions[r.condition], _share(r.strength), _end(r.low), _end(r.high)) for r in ranked
    )
    return Leaderboard(len(votes), wanted, tuple(rows))


def _share(strength: float) -> float:
    return float(1 / (1 + np.exp(-strength)))


def _end(strength: float | None) -> float | None:
    return None if strength is None else _share(strength)


def vote_weights(raters: Iterable[Rater], votes: Iterable[Answer]) -> dict[str, float]:
    """How much each vote of a rater counts: less than 1 beyond 20 votes, 0 for who always takes one button."""
    plans = {rater.id: rater.plan for rater in raters}
    counts: Counter[str] = Counter()
    sides: Counter[tuple[str, int]] = Counter()
    for vote in votes:
        counts[vote.rater] += 1
        if vote.score in (0.0, 1.0):
            chosen = vote.condition if vote.score else vote.against
            sides[vote.rater, plans[vote.rater][vote.position - 1].slots.index(chosen)] += 1
    found = {}
    for rater, count in counts.items():
        most = max(sides[rater, 0], sides[rater, 1])
        one_sided = count >= ONE_SIDED_VOTES and most >= ONE_SIDED_RATIO * count
        found[rater] = 0.0 if one_sided else min(1.0, FULL_WEIGHT_VOTES / count)
    return found
