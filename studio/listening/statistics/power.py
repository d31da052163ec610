"""How many listeners a difference needs: the power of a paired comparison of raters' means."""

from __future__ import annotations

import math

POWER = 0.8
SIGNIFICANCE = 0.05
MOST = 100_000


def power(raters: float, effect: float) -> float:
    """Chance that `raters` listeners show a difference of `effect` standard deviations, two-sided at 5 %."""
    from scipy.stats import nct, t

    free = raters - 1
    edge = t.isf(SIGNIFICANCE / 2, free)
    middle = effect * math.sqrt(raters)
    return float(nct.sf(edge, free, middle) + nct.cdf(-edge, free, middle))


def raters_needed(difference: float, sd: float) -> float | None:
    """Listeners (not rounded) that show `difference` in 80 of 100 studies, raters' differences having `sd`.

    None if more than 100,000 would be needed or the differences do not vary.
    """
    from scipy.optimize import brentq

    if sd <= 0 or difference <= 0:
        return None
    # No pair of listeners needs more than this, and scipy's noncentral t fails far out.
    effect = min(difference / sd, 30.0)
    if power(2.0, effect) >= POWER:
        return 2.0
    enough = 3.0
    while power(enough, effect) < POWER:
        enough *= 1.5
        if enough > MOST:
            return None
    return float(brentq(lambda raters: power(raters, effect) - POWER, 2.0, enough, xtol=1e-10))


def more_raters(have: int, difference: float, sd: float) -> int | None:
    """How many listeners more than `have` are needed; 0 if there are enough, None if no number would do."""
    needed = raters_needed(difference, sd)
    return None if needed is None else max(0, math.ceil(needed - 1e-9) - have)
