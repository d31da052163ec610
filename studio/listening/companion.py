"""What instruments say of the clips that raters judged, beside the answers, and how the two go together.

`python -m studio.evaluate.companion` measures; this module holds the measures and correlates. Measures nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

import numpy as np

from studio.listening.answers import Answer, Kind, Role, Study
from studio.listening.statistics.totals import oriented

MEASURES = ("error_ratio", "similarity", "dnsmos", "loudness_lufs", "rate")


@dataclass(frozen=True, slots=True)
class Clip:
    """One clip's measures; None where it could not be measured."""

    item: str
    condition: str
    error_ratio: float | None = None  # recogniser's errors over words (Mandarin: syllables)
    similarity: float | None = None  # cosine with the reference clip
    dnsmos: float | None = None  # overall, 1 to 5
    loudness_lufs: float | None = None  # ITU-R BS.1770, before it was matched for the test
    rate: float | None = None  # words (Mandarin: syllables) a second


@dataclass(frozen=True, slots=True)
class Companion:
    """The clips of a test, why measures are absent, and the mean answer about each clip or pair."""

    clips: tuple[Clip, ...]
    absent: dict[str, str] = field(default_factory=dict)  # measure -> why
    heard: tuple[tuple[str, str, str, float], ...] = ()  # item, condition, against, mean score

    measures = MEASURES

    def has(self, measure: str) -> bool:
        """Whether any clip has this measure."""
        return any(getattr(clip, measure) is not None for clip in self.clips)

    def mean(self, condition: str, measure: str) -> float | None:
        """A condition's mean of a measure."""
        found = [getattr(clip, measure) for clip in self.clips if clip.condition == condition]
        known = [value for value in found if value is not None]
        return sum(known) / len(known) if known else None


class Correlation(NamedTuple):
    """How a measure goes with the answers, over clips (for pairs: differences over pairs of clips)."""

    measure: str
    clips: int
    rho: float  # Spearman
    r: float  # Pearson
    p: float  # of rho


def companion(measured: str, answers: Iterable[Answer], study: Study) -> Companion:
    """Put the command's JSON beside the answers.

    Raises:  ValueError, KeyError or TypeError if the JSON is not the command's.
    """
    told = json.loads(measured)
    clips = tuple(Clip(**row) for row in told["clips"])
    scores: dict[tuple[str, str, str], list[float]] = {}
    for answer in answers:
        # ABX says whether a difference was heard, not which way it goes.
        if answer.role is Role.TEST and answer.kind is not Kind.ABX and answer.condition in study.conditions:
            (condition, against), score = oriented(answer, study)
            scores.setdefault((answer.item, condition, against), []).append(score / answer.words)
    heard = tuple((*key, sum(found) / len(found)) for key, found in sorted(scores.items()))
    return Companion(clips, dict(told["absent"]), heard)


def to_json(clips: Iterable[Clip], absent: dict[str, str]) -> str:
    """What the command prints and `companion` reads."""
    return json.dumps(
        {"clips": [asdict(clip) for clip in clips], "absent": absent}, ensure_ascii=False, indent=1
    )


def points(told: Companion, measure: str) -> list[tuple[float, float]]:
    """(measure, mean answer) of each clip; for pairs the measure's difference."""
    known = {(clip.item, clip.condition): getattr(clip, measure) for clip in told.clips}
    found = []
    for item, condition, against, score in told.heard:
        value = known.get((item, condition))
        other = known.get((item, against)) if against else 0.0
        if value is not None and other is not None:
            found.append((value - other, score))
    return found


def correlations(told: Companion) -> list[Correlation]:
    """Each measure's correlation with the answers, where both vary."""
    from scipy.stats import pearsonr, spearmanr

    rows = []
    for measure in MEASURES:
        found = np.array(points(told, measure))
        if len(found) > 2 and (np.ptp(found, axis=0) > 0).all():
            rank = spearmanr(found[:, 0], found[:, 1])
            r = pearsonr(found[:, 0], found[:, 1]).statistic
            rows.append(Correlation(measure, len(found), float(rank.statistic), float(r), float(rank.pvalue)))
    return rows
