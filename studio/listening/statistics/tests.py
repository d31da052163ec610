"""Hypothesis tests and effect sizes: exact binomial, Wilcoxon's signed ranks, Holm's correction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

# Above so many differences the exact distribution adds nothing (R draws the line there too).
EXACT_BELOW = 50


class Wilcoxon(NamedTuple):
    """Signed-rank test of paired differences against zero, two-sided."""

    statistic: float  # sum of the ranks above zero
    p: float
    pairs: int  # differences that are not zero


def binomial_p(right: int, trials: int, chance: float = 0.5) -> float:
    """Chance of at least so many right answers by guessing alone."""
    from scipy.stats import binom

    return float(binom.sf(right - 1, trials, chance))


def wilcoxon(differences: np.ndarray) -> Wilcoxon:
    """Exact without ties below 50 differences; else normal, corrected for ties and continuity. Zeros are dropped."""
    from scipy.stats import rankdata, wilcoxon

    kept = differences[differences != 0]
    if len(kept) == 0:
        return Wilcoxon(0.0, 1.0, 0)
    ranks = rankdata(abs(kept))
    statistic = float(ranks[kept > 0].sum())
    tied = len(np.unique(abs(kept))) < len(kept) or len(kept) < len(differences)
    if len(kept) < EXACT_BELOW and not tied:
        return Wilcoxon(statistic, float(wilcoxon(kept, method="exact").pvalue), len(kept))
    with np.errstate(invalid="ignore"):
        p = wilcoxon(kept, correction=True, method="asymptotic").pvalue
    return Wilcoxon(statistic, min(float(p), 1.0), len(kept))


def holm(ps: Sequence[float]) -> list[float]:
    """P-values corrected for that there are several, in the order they came."""
    order = sorted(range(len(ps)), key=lambda k: ps[k])
    corrected, highest = [0.0] * len(ps), 0.0
    for rank, k in enumerate(order):
        highest = max(highest, min(1.0, (len(ps) - rank) * ps[k]))
        corrected[k] = highest
    return corrected


def paired_effect(differences: np.ndarray) -> float | None:
    """Cohen's d of paired differences: mean over standard deviation; none where they do not vary."""
    if len(differences) < 2:
        return None
    spread = float(differences.std(ddof=1))
    return float(differences.mean()) / spread if spread > 0 else None


def rank_effect(test: Wilcoxon) -> float:
    """Matched rank-biserial correlation: -1 all against, 0 as many for as against, 1 all for."""
    every = test.pairs * (test.pairs + 1) / 2
    return 2 * test.statistic / every - 1 if every else 0.0
