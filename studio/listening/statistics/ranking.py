"""Bradley-Terry: one order of many conditions from answers about pairs, with intervals by listener."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from studio.listening.statistics.intervals import LEVEL
from studio.listening.statistics.totals import Totals

# Answers that are added for and against each pair where a condition won or lost everything, so that no strength is
# endless; the report says so.
PRIOR = 0.5
STEPS = 100


class Ranked(NamedTuple):
    """A condition's strength in log odds, zero being the mean of all; 1 more wins 73 of 100."""

    condition: str
    strength: float
    low: float | None
    high: float | None


class Ranking(NamedTuple):
    """Conditions, best first."""

    rows: tuple[Ranked, ...]
    separated: bool  # a condition won or lost everything: PRIOR was added


def fit(wins: np.ndarray) -> np.ndarray:
    """Most likely strengths [C], their sum zero, from wins[i, j]: answers that put i before j.

    Raises:  ValueError if the wins do not tie all conditions together both ways: no finite strengths exist.
    """
    if not _tied_together(wins):
        raise ValueError("a group of conditions never lost to the others")
    strengths, pairs = np.zeros(len(wins)), wins + wins.T
    for _ in range(STEPS):
        step = np.linalg.pinv(information(strengths, pairs)) @ _score(strengths, wins, pairs)
        strengths = strengths + np.clip(step, -2, 2)
        if abs(step).max() < 1e-12:
            break
    return strengths - strengths.mean()


def information(strengths: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Fisher information [C, C]; its pseudo-inverse is the covariance of independent answers."""
    odds = 1 / (1 + np.exp(strengths[None, :] - strengths[:, None]))
    weight = pairs * odds * (1 - odds)
    return np.diag(weight.sum(axis=1)) - weight


def wins_by_rater(totals: Totals, conditions: list[str]) -> np.ndarray:
    """Wins [R, C, C] from the totals of AB answers; half a win each where nobody was preferred."""
    place = {name: k for k, name in enumerate(conditions)}
    wins = np.zeros((len(totals.raters), len(conditions), len(conditions)))
    for k, (first, second) in enumerate(totals.cells):
        wins[:, place[first], place[second]] += totals.sums[:, k]
        wins[:, place[second], place[first]] += totals.weights[:, k] - totals.sums[:, k]
    return wins


def rank(wins: np.ndarray, conditions: list[str]) -> Ranking:
    """Strengths with intervals from wins [R, C, C]: a raters' sandwich with R - 1 and Student's quantile."""
    from scipy.stats import t

    raters, whole = len(wins), wins.sum(axis=0)
    separated = not _tied_together(whole)
    if separated:
        asked = (whole + whole.T) > 0
        whole = whole + PRIOR * asked
        if not _tied_together(whole):  # conditions that nobody compared, not even by way of others
            return Ranking((), True)
    strengths = fit(whole)
    inverse = np.linalg.pinv(information(strengths, whole + whole.T))
    scores = np.stack([_score(strengths, own, own + own.T) for own in wins])  # [R, C]
    reach = np.full(len(conditions), np.nan)
    if raters > 1:
        scores = scores - scores.mean(axis=0)
        spread = inverse @ (scores.T @ scores) @ inverse * raters / (raters - 1)
        reach = t.ppf((1 + LEVEL) / 2, raters - 1) * np.sqrt(np.diag(spread))
    rows = [
        Ranked(name, float(s), *(None, None) if np.isnan(r) else (float(s - r), float(s + r)))
        for name, s, r in zip(conditions, strengths, reach, strict=True)
    ]
    return Ranking(tuple(sorted(rows, key=lambda row: -row.strength)), separated)


def _score(strengths: np.ndarray, wins: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    odds = 1 / (1 + np.exp(strengths[None, :] - strengths[:, None]))
    return (wins - pairs * odds).sum(axis=1)


def _tied_together(wins: np.ndarray) -> bool:
    """Whether each condition can be reached from each other one along wins."""
    reached = (wins > 0) | np.eye(len(wins), dtype=bool)
    for _ in range(len(wins)):
        reached = reached | (reached.astype(int) @ reached.astype(int) > 0)
    return bool(reached.all())
