"""95 % intervals by the studentised bootstrap: whole listeners are drawn, since one's answers hang together.

An interval speaks of other listeners who hear the same material. docs/decisions/0012 says why this variant.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

LEVEL = 0.95
# 0.025 and 0.975 of RESAMPLES + 1 are whole numbers, so quantiles are ranks and nothing is interpolated.
RESAMPLES = 1999
# Each standard error is taken together with this many raters' share of the whole study's: a resample of raters who
# nearly agree would otherwise count for endlessly much, and an interval of 8 raters could be the whole scale.
DAMPING = 0.5
# With more raters than this Student's t says the same, and the table of resamples would be large.
MANY_RATERS = 300


class Interval(NamedTuple):
    """A value and where it may lie; without a bound where the answers do not vary enough to say."""

    value: float
    low: float | None
    high: float | None
    raters: int


class Bounds(NamedTuple):
    """Between which values a cell's value can lie at all."""

    low: float
    high: float


@lru_cache(maxsize=8)
def resamples(raters: int, seed: int) -> np.ndarray:
    """How often each rater is drawn in each resample, float64 [RESAMPLES, raters]; the same for the same seed."""
    rng = np.random.default_rng([seed, raters])
    drawn = rng.integers(0, raters, (RESAMPLES, raters)) + raters * np.arange(RESAMPLES)[:, None]
    counts = np.bincount(drawn.ravel(), minlength=RESAMPLES * raters)
    return counts.reshape(RESAMPLES, raters).astype(np.float64)


def interval(
    sums: np.ndarray, weights: np.ndarray, bounds: Bounds, contrast: tuple[float, ...] = (1.0,), seed: int = 0
) -> Interval:
    """Interval of a cell's value, or of a contrast of several cells' values.

    Args:    sums, weights: [n, K] of n raters, weights above 0; bounds: of the value or contrast;
             contrast: K factors, such as (1, -1) for a difference.
    """
    from scipy.stats import t

    raters = len(sums)
    weighed = np.asarray(contrast)
    if raters == 0:
        return Interval(float("nan"), None, None, 0)
    middle = sums.sum(axis=0) / weights.sum(axis=0)
    value = float(middle @ weighed)
    if raters == 1:
        return Interval(value, None, None, 1)
    left = sums - middle * weights  # raters' deviations from the values: keeps the squares below small
    _, error = _estimate(left, weights, weighed, np.ones((1, raters)))
    if error[0] < 1e-12:
        return _at_an_end(value, bounds, raters)
    if raters > MANY_RATERS:
        reach = float(t.ppf((1 + LEVEL) / 2, raters - 1) * error[0])
        low, high = value - reach, value + reach
    else:
        low, high = _studentised(value, error[0], left, weights, weighed, resamples(raters, seed))
    return Interval(value, _kept(low, bounds), _kept(high, bounds), raters)


def _studentised(
    value: float,
    error: float,
    sums: np.ndarray,
    weights: np.ndarray,
    contrast: np.ndarray,
    counts: np.ndarray,
) -> tuple[float, float]:
    """Both ends from the quantiles of (resampled value - value) / resampled error, sums being deviations."""
    moved, errors = _estimate(sums, weights, contrast, counts)
    damping = DAMPING / len(sums)
    ratio = np.sort(moved / np.sqrt(errors**2 + damping * error**2))
    scale = error * np.sqrt(1 + damping)
    tail = round((1 - LEVEL) / 2 * (RESAMPLES + 1))
    return value - ratio[-tail] * scale, value - ratio[tail - 1] * scale


def _estimate(
    sums: np.ndarray, weights: np.ndarray, contrast: np.ndarray, counts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The contrast [B] and its standard error [B] (linearised, n - 1) under each row of counts [B, n]."""
    raters = len(sums)
    mass = counts @ weights  # [B, K]
    ratios = (counts @ sums) / mass
    # Each rater's influence is linear in (sums, weights), so its squares need the sums of their products only.
    table = np.concatenate([sums, weights], axis=1)  # [n, 2K]
    products = counts @ (table[:, :, None] * table[:, None, :]).reshape(raters, -1)
    factors = contrast * raters / mass
    factors = np.concatenate([factors, -factors * ratios], axis=1)  # [B, 2K]
    width = table.shape[1]
    squares = np.einsum("bi,bij,bj->b", factors, products.reshape(-1, width, width), factors)
    return ratios @ contrast, np.sqrt(np.maximum(squares, 0.0) / (raters * (raters - 1)))


def _kept(bound: float, bounds: Bounds) -> float | None:
    """A bound within what can be; none where that has no end itself."""
    inside = min(max(float(bound), bounds.low), bounds.high)
    return inside if np.isfinite(inside) else None


def _at_an_end(value: float, bounds: Bounds, raters: int) -> Interval:
    """All raters agree wholly: at an end of the scale, the chance of that bounds the value; elsewhere nothing does.
    A scale without an end at the other side bounds nothing there.

    If the value were x of the range away from the end, all n would be at it with a chance of at most (1 - x)^n.
    """
    reach = (bounds.high - bounds.low) * (1 - ((1 - LEVEL) / 2) ** (1 / raters))
    if value == bounds.low:
        return Interval(value, value, _kept(value + reach, bounds), raters)
    if value == bounds.high:
        return Interval(value, _kept(value - reach, bounds), value, raters)
    return Interval(value, None, None, raters)
