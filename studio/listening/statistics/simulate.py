"""Simulated listeners whose true answers are known exactly: what the intervals and tests are checked against.

A listener has a level and tastes of their own, an item its own difficulty, and each answer some chance. All are
normal, so the mean over all possible listeners has a closed form. Says nothing about real listeners.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from studio.listening.answers import PAIRED, SCALES, Answer, Kind, Role, Study
from studio.listening.statistics.totals import Cell, Totals

CONDITIONS = ("c1", "c2", "c3")
ITEMS = 8
WORDS = 8  # a sentence of the intelligibility test


@dataclass(frozen=True, slots=True)
class Listeners:
    """A population: where the cells lie and how much raters, tastes, items and chance spread, as latent scores.

    Scores are latents rounded to the scale; shares and error rates are chances of a normal that chance 1 spreads.
    """

    cells: tuple[float, ...]
    rater_sd: float
    taste_sd: float
    item_sd: float
    chance_sd: float = 1.0


POPULATIONS = {
    Kind.MOS: Listeners((2.9, 3.5, 4.3), 0.5, 0.3, 0.2, 0.7),
    Kind.CMOS: Listeners((-0.9, -1.6, -0.5), 0.3, 0.3, 0.2, 0.9),
    Kind.AB: Listeners((-0.4, -1.0, -0.6), 0.2, 0.4, 0.2),
    Kind.ABX: Listeners((-1.0, 0.0, 1.0), 0.5, 0.3, 0.2),
    Kind.MUSHRA: Listeners((35, 65, 85), 9, 5, 5, 10),
    Kind.MUSHRA_NMR: Listeners((45, 60, 72), 12, 6, 5, 12),
    Kind.SIMILARITY: Listeners((2.0, 2.6, 3.4), 0.4, 0.3, 0.2, 0.6),
    Kind.INTELLIGIBILITY: Listeners((-1.8, -1.4, -1.0), 0.2, 0.1, 0.2),
}


@dataclass(frozen=True, slots=True)
class Simulated:
    """One study: R raters, C cells, I items; `truth` is each cell's value over all listeners, for these items."""

    kind: Kind
    cells: tuple[Cell, ...]
    scores: np.ndarray  # float64 [R, C, I]; word errors for intelligibility
    words: int
    truth: np.ndarray  # float64 [C]

    def totals(self) -> Totals:
        """What `totals.total` makes of the answers, without making them."""
        sums = self.scores.sum(axis=2)
        raters = tuple(f"r{k:02}" for k in range(len(sums)))
        return Totals(raters, self.cells, sums, np.full_like(sums, self.words * self.scores.shape[2]))

    def answers(self) -> list[Answer]:
        """The study as answers of test trials, in each rater's order."""
        found = []
        for rater, cell, item in np.ndindex(*self.scores.shape):
            condition, against = self.cells[cell]
            place = item * len(self.cells) + cell + 1
            found.append(
                Answer(
                    test="simulated",
                    rater=f"r{rater:02}",
                    trial=f"t{place}",
                    position=place,
                    kind=self.kind,
                    role=Role.TEST,
                    item=f"i{item}",
                    condition=condition,
                    against=against,
                    score=float(self.scores[rater, cell, item]),
                    words=self.words,
                )
            )
        return found

    def study(self) -> Study:
        """The design that the answers belong to."""
        return Study("simulated", "Simulated", self.kind, {name: name for name in CONDITIONS}, simulated=True)


def simulate(kind: Kind, raters: int, rng: np.random.Generator) -> Simulated:
    """Draw a study of `raters` listeners who hear every cell and item."""
    people = POPULATIONS[kind]
    cells = tuple(combinations(CONDITIONS, 2)) if kind in PAIRED else tuple((name, "") for name in CONDITIONS)
    middle = np.array(people.cells)[:, None] + rng.normal(0, people.item_sd, (len(cells), ITEMS))  # [C, I]
    level = rng.normal(0, people.rater_sd, (raters, 1, 1)) + rng.normal(
        0, people.taste_sd, (raters, len(cells), 1)
    )
    own_sd = np.hypot(people.rater_sd, people.taste_sd)
    words = WORDS if kind is Kind.INTELLIGIBILITY else 1
    if kind in (Kind.AB, Kind.ABX, Kind.INTELLIGIBILITY):
        scores, truth = _chances(kind, middle, level, own_sd, words, rng)
    else:
        latent = middle + level + rng.normal(0, people.chance_sd, (raters, len(cells), ITEMS))
        scores = np.clip(np.round(latent), *SCALES[kind])
        truth = _rounded_mean(middle, float(np.hypot(own_sd, people.chance_sd)), kind)
    return Simulated(kind, cells, scores, words, truth.mean(axis=1))


def _chances(
    kind: Kind, middle: np.ndarray, level: np.ndarray, own_sd: float, words: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Counts [R, C, I] of successes (of `words`) and their expected shares [C, I] over all listeners."""
    from scipy.special import ndtr

    chance, truth = ndtr(middle + level), ndtr(middle / np.hypot(1, own_sd))
    if kind is Kind.ABX:  # who hears no difference guesses
        chance, truth = (1 + chance) / 2, (1 + truth) / 2
    return rng.binomial(words, chance).astype(np.float64), truth


def _rounded_mean(middle: np.ndarray, sd: float, kind: Kind) -> np.ndarray:
    """Mean [C, I] of a normal latent that is rounded to the whole numbers of the scale."""
    from scipy.special import ndtr

    low, high = SCALES[kind]
    edges = np.arange(low, high) + 0.5
    return low + ndtr((middle[..., None] - edges) / sd).sum(axis=-1)
