"""The arithmetic of the scores: edits, error rates, outliers, likeness. Loads no model and reads no file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

# An item has gone wrong above this error rate, or when its length leaves the expected one by this factor.
WRONG_ERROR_RATIO = 0.5
WRONG_LENGTH_FACTOR = 1.6


def edit_distance(reference: Sequence[str], heard: Sequence[str]) -> int:
    """Least number of substitutions, insertions and deletions that turn one sequence into the other."""
    row = list(range(len(heard) + 1))
    for i, expected in enumerate(reference, 1):
        previous, row[0] = row[0], i
        for j, got in enumerate(heard, 1):
            keep = previous + (expected != got)
            previous = row[j]
            row[j] = min(keep, row[j] + 1, row[j - 1] + 1)
    return row[-1]


def error_ratio(errors: int, length: int) -> float:
    """Errors per reference unit; an empty reference counts as one unit."""
    return errors / max(length, 1)


def has_gone_wrong(errors: int, length: int, audio_s: float, expected_s: float) -> bool:
    """Whether a listener would call the item broken: mostly other words, or far too short or long."""
    if error_ratio(errors, length) > WRONG_ERROR_RATIO:
        return True
    if audio_s <= 0:
        return True
    factor = audio_s / expected_s
    return factor > WRONG_LENGTH_FACTOR or factor < 1 / WRONG_LENGTH_FACTOR


def best_match(similarities: Mapping[str, float]) -> str:
    """The speaker whose prompt is most like the output."""
    return max(similarities, key=lambda name: similarities[name])


def margin_over_wrong(rows: Sequence[tuple[str, Mapping[str, float]]]) -> float:
    """Mean similarity to the own prompt minus the mean to the best of the wrong ones.

    Args:    rows: of one speaker's items, (own speaker, similarity by speaker) each.
    """
    own = rows[0][0]
    means = {name: sum(s[name] for _, s in rows) / len(rows) for name in rows[0][1]}
    return means.pop(own) - max(means.values())


def relative_difference(got: float, wanted: float) -> float:
    """|got - wanted| as a ratio of wanted."""
    return abs(got - wanted) / wanted


def quantile(values: Sequence[float], q: float) -> float:
    """The q-quantile (0..1) by linear interpolation."""
    ordered = sorted(values)
    position = q * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)
