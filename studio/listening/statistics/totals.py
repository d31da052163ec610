"""Answers added up by rater and cell: all that intervals and tests are computed from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from studio.listening.answers import PAIRED, SCALES, Answer, Kind, Role, Study

# What is judged: a condition, or a condition against another one in the order of the design.
Cell = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Totals:
    """R raters by C cells. A cell's value is its sum over its weight: a mean score, a share, an error rate."""

    raters: tuple[str, ...]
    cells: tuple[Cell, ...]
    sums: np.ndarray  # float64 [R, C]
    weights: np.ndarray  # float64 [R, C]; 0 where the rater judged nothing of the cell

    def of(self, *columns: int) -> tuple[np.ndarray, np.ndarray]:
        """Sums and weights [n, K] of these cells, over the raters who judged all of them."""
        here = (self.weights[:, columns] > 0).all(axis=1)
        return self.sums[here][:, columns], self.weights[here][:, columns]

    def means(self) -> np.ndarray:
        """Each rater's value of each cell, [R, C]; NaN where there is none."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.sums / np.where(self.weights > 0, self.weights, np.nan)


def oriented(answer: Answer, study: Study) -> tuple[Cell, float]:
    """The cell of an answer and its score, turned round where the pair stood the other way in the trial."""
    order = list(study.conditions)
    if not answer.against or order.index(answer.condition) <= order.index(answer.against):
        return (answer.condition, answer.against), answer.score
    turned = answer.score if answer.kind is Kind.ABX else sum(SCALES[answer.kind]) - answer.score
    return (answer.against, answer.condition), turned


def total(answers: Iterable[Answer], study: Study) -> Totals:
    """Add up the answers of test trials; training, traps, gold and repeats say nothing about conditions."""
    told = [
        (answer, *oriented(answer, study))
        for answer in answers
        if answer.role is Role.TEST and answer.condition in study.conditions
    ]
    raters = tuple(sorted({answer.rater for answer, _, _ in told}))
    seen = {cell for _, cell, _ in told}
    order = list(study.conditions)
    place = {name: k for k, name in enumerate(["", *order])}
    cells = tuple(sorted(seen, key=lambda cell: (place[cell[0]], place[cell[1]])))
    row, column = {r: k for k, r in enumerate(raters)}, {c: k for k, c in enumerate(cells)}
    sums, weights = np.zeros((len(raters), len(cells))), np.zeros((len(raters), len(cells)))
    for answer, cell, score in told:
        sums[row[answer.rater], column[cell]] += score
        weights[row[answer.rater], column[cell]] += answer.words
    return Totals(raters, cells, sums, weights)


def weighed(totals: Totals, weights: Mapping[str, float]) -> Totals:
    """Totals in which a rater counts for more or less; who is not named counts 1, and who counts 0 is gone."""
    factors = np.array([weights.get(rater, 1.0) for rater in totals.raters])
    kept = factors > 0
    raters = tuple(rater for rater, keep in zip(totals.raters, kept, strict=True) if keep)
    by = factors[kept, None]
    return Totals(raters, totals.cells, totals.sums[kept] * by, totals.weights[kept] * by)


def can_be_centred(kind: Kind, totals: Totals) -> bool:
    """Whether raters' own levels can be taken out: every rater scored every one of several conditions."""
    scored = kind not in PAIRED and kind is not Kind.INTELLIGIBILITY
    return scored and len(totals.cells) > 1 and bool((totals.weights > 0).all())


def centred(totals: Totals) -> Totals:
    """Totals without the raters' own levels: each rater's mean over cells becomes the mean of all.

    Spread about a cell's value is widened by sqrt(C / (C - 1)), since centring takes that much out (Morey 2008).
    """
    means = totals.means()
    level = means.mean(axis=1, keepdims=True)
    moved = means - level + level.mean()
    value = (moved * totals.weights).sum(axis=0) / totals.weights.sum(axis=0)
    cells = len(totals.cells)
    widened = value + (moved - value) * np.sqrt(cells / (cells - 1))
    return Totals(totals.raters, totals.cells, widened * totals.weights, totals.weights)
