"""A mixed-effects model: score by condition, with raters and items as crossed random effects, fitted by REML.

The optional second opinion: unlike the bootstrap it also speaks of other items, and it believes in normal errors.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Mixed(NamedTuple):
    """Condition means [C] with their covariance, standard deviations of the effects, and the REML criterion."""

    means: np.ndarray
    covariance: np.ndarray
    rater_sd: float
    item_sd: float
    residual_sd: float
    criterion: float

    def errors(self) -> np.ndarray:
        """Standard errors of the means, [C]."""
        return np.sqrt(np.diag(self.covariance))


def fit(scores: np.ndarray, conditions: np.ndarray, raters: np.ndarray, items: np.ndarray) -> Mixed | None:
    """Fit N scores [N]; the others give each one's condition, rater and item as numbers from 0, int [N].

    None where conditions, raters and items explain the scores wholly: nothing is left to tell effects from chance.
    """
    from scipy.optimize import minimize

    design = np.eye(conditions.max() + 1)[conditions]
    groups = (np.eye(raters.max() + 1)[raters], np.eye(items.max() + 1)[items])
    every = np.concatenate([design, *groups], axis=1)
    left = scores - every @ np.linalg.lstsq(every, scores)[0]
    if left @ left < 1e-9 * len(scores):
        return None
    parts = _Parts(design, groups, scores)
    best = minimize(
        lambda ratios: parts.solve(abs(ratios))[0],
        np.array([0.7, 0.7]),
        method="Nelder-Mead",
        options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 2000},
    )
    criterion, means, inner, variance = parts.solve(abs(best.x))
    rater_sd, item_sd = abs(best.x) * np.sqrt(variance)
    return Mixed(
        means + parts.level,
        inner * variance,
        float(rater_sd),
        float(item_sd),
        float(np.sqrt(variance)),
        criterion,
    )


class _Parts:
    """Products of the data that do not depend on the ratios of standard deviations (effect over residual)."""

    def __init__(self, design: np.ndarray, groups: tuple[np.ndarray, np.ndarray], scores: np.ndarray) -> None:
        effects = np.concatenate(groups, axis=1)
        self.level = scores.mean()
        centred = (
            scores - self.level
        )  # each row of the design holds one 1, so this moves the means and nothing else
        self.sizes = [group.shape[1] for group in groups]
        self.zz, self.zx, self.zy = effects.T @ effects, effects.T @ design, effects.T @ centred
        self.xx, self.xy, self.yy = design.T @ design, design.T @ centred, float(centred @ centred)
        self.free = len(scores) - design.shape[1]

    def solve(self, ratios: np.ndarray) -> tuple[float, np.ndarray, np.ndarray, float]:
        """Profiled REML criterion, means, their covariance over the variance, and the residual variance."""
        scale = np.repeat(ratios, self.sizes)
        lower = np.linalg.cholesky(scale[:, None] * self.zz * scale + np.eye(len(scale)))
        across = np.linalg.solve(lower, scale[:, None] * self.zx)
        along = np.linalg.solve(lower, scale * self.zy)
        inner = np.linalg.inv(self.xx - across.T @ across)
        right = self.xy - across.T @ along
        means = inner @ right
        variance = (self.yy - along @ along - right @ means) / self.free
        determinants = 2 * np.log(np.diag(lower)).sum() - np.linalg.slogdet(inner)[1]
        criterion = determinants + self.free * (1 + np.log(2 * np.pi * variance))
        return float(criterion), means, inner, float(variance)
