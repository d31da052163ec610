"""Speaker embeddings mixed on the sphere that they lie on. Knows no voices and no files."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from studio.speech import Float32

_STEPS = 50
_SETTLED = 1e-9


def blend(embeddings: Sequence[Float32], weights: Sequence[float]) -> Float32:
    """The weighted mean on the sphere: the direction whose squared angles to the given ones, weighed, are least.

    Of two it is the point on the arc between them that divides it by the weights. A straight sum would lean to the
    middle and be shorter than either; models are trained on directions. Its length is the weighted mean of theirs.

    Args:    embeddings: float32 [D] each, none of them zero; weights: as many, not negative, not all zero.
    Returns: float32 [D].
    """
    shares = np.asarray(weights, np.float64) / np.sum(weights)
    given = np.stack([np.asarray(e, np.float64) for e in embeddings])  # [N, D]
    lengths = np.linalg.norm(given, axis=1)
    points = given / lengths[:, None]
    mean = _unit(shares @ points, points[int(np.argmax(shares))])
    for _ in range(_STEPS):
        step = shares @ np.stack([_towards(mean, point) for point in points])
        mean = _moved(mean, step)
        if np.linalg.norm(step) < _SETTLED:
            break
    return (mean * float(shares @ lengths)).astype(np.float32)


def _unit(vector: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    """Its direction; opposite voices of equal weight cancel out, then the heaviest."""
    length = np.linalg.norm(vector)
    return vector / length if length > 1e-6 else otherwise


def _towards(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """The tangent at start that leads to end, as long as the angle between them."""
    cosine = float(np.clip(start @ end, -1.0, 1.0))
    across = end - cosine * start
    length = np.linalg.norm(across)
    return np.arccos(cosine) / length * across if length > 1e-12 else np.zeros_like(start)


def _moved(start: np.ndarray, step: np.ndarray) -> np.ndarray:
    angle = np.linalg.norm(step)
    if angle < 1e-12:
        return start
    there = np.cos(angle) * start + np.sin(angle) / angle * step
    return there / np.linalg.norm(there)
