"""From answers to everything a report says: `analyse(answers, study)`, with all raters and with the screened ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from studio.listening.answers import PAIRED, SCALES, Answer, Kind, Role, Study
from studio.listening.statistics import mixed, tests
from studio.listening.statistics.intervals import LEVEL, Bounds, Interval, interval
from studio.listening.statistics.power import more_raters
from studio.listening.statistics.ranking import Ranking, rank, wins_by_rater
from studio.listening.statistics.screening import Rules, Screening, screen
from studio.listening.statistics.totals import Totals, can_be_centred, centred, oriented, total, weighed

# The value that says "no difference" of kinds that compare.
NEUTRAL = {Kind.CMOS: 0.0, Kind.AB: 0.5, Kind.ABX: 0.5}
# The smallest difference worth finding, for "how many listeners more".
WORTHWHILE = {
    Kind.MOS: 0.2, Kind.CMOS: 0.2, Kind.AB: 0.1, Kind.ABX: 0.1, Kind.MUSHRA: 5.0, Kind.MUSHRA_NMR: 5.0,
    Kind.SIMILARITY: 0.2, Kind.INTELLIGIBILITY: 0.05,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Options:
    """What the owner may choose about an analysis."""

    difference: float | None = None  # worth finding; None: the kind's own
    mixed: bool = False
    rules: Rules = field(default_factory=Rules)
    weights: Mapping[str, float] = field(default_factory=dict)  # how much raters count, where not 1 (arena)


class CellResult(NamedTuple):
    """What was found of a condition, or of a condition against another one."""

    condition: str
    against: str
    answers: int
    value: Interval  # mean score, share that prefers `condition`, share of right answers, or word error rate
    median: float | None  # of the answers; of raters' error rates for intelligibility; none for shares
    centred: Interval | None  # without raters' own levels, where every rater scored every condition
    by_rater: tuple[float, ...]  # each rater's value
    scores: tuple[tuple[float, int], ...]  # how often each score was given, in order


class Contrast(NamedTuple):
    """One comparison: two conditions, or a pair against "no difference"."""

    first: str
    second: str
    difference: Interval  # of values; for kinds that compare, from the neutral value
    test: str  # "wilcoxon" over raters' differences, or "binomial" over all answers
    p: float
    corrected_p: float  # by Holm over all contrasts of the report
    effect: float | None  # Cohen's d of raters' differences
    rank_effect: float
    more: int | None  # listeners that are missing to find the worthwhile difference; None: cannot be told


class MixedResult(NamedTuple):
    """Condition means of the mixed model with intervals, and the spread of raters, items and the rest."""

    rows: tuple[tuple[str, str, Interval], ...]
    rater_sd: float
    item_sd: float
    residual_sd: float


class Result(NamedTuple):
    """All that a set of raters says."""

    raters: int
    answers: int
    cells: tuple[CellResult, ...]
    contrasts: tuple[Contrast, ...]
    ranking: Ranking | None
    mixed: MixedResult | None


class Analysis(NamedTuple):
    """A test's results with everyone and without those whom the rules leave out."""

    study: Study
    everyone: Result
    screened: Result
    screening: Screening
    difference: float  # that was held to be worth finding
    rules: Rules


def analyse(answers: Sequence[Answer], study: Study, options: Options | None = None) -> Analysis:
    """Compute everything, without randomness that is not seeded: the same answers give the same analysis.

    Raises:  ValueError if an answer is of another kind than the study.
    """
    options = options or Options()
    if any(answer.kind is not study.kind for answer in answers):
        raise ValueError("answers of another kind of test")
    screening = screen(answers, study, options.rules)
    kept = [answer for answer in answers if screening.keeps(answer.rater)]
    difference = options.difference or WORTHWHILE[study.kind]
    everyone = _result(answers, study, difference, options)
    screened = everyone if len(kept) == len(answers) else _result(kept, study, difference, options)
    return Analysis(study, everyone, screened, screening, difference, options.rules)


def bounds_of(kind: Kind) -> Bounds:
    """Between which values a cell of this kind can lie."""
    return Bounds(*SCALES[kind])


def difference_bounds(kind: Kind) -> Bounds:
    """Between which values a difference of two cells can lie."""
    low, high = SCALES[kind]
    return Bounds(low - high, high - low)


def _result(answers: Sequence[Answer], study: Study, difference: float, options: Options) -> Result:
    totals = weighed(total(answers, study), options.weights)
    heard = set(totals.raters)
    counted = [
        a for a in answers if a.role is Role.TEST and a.condition in study.conditions and a.rater in heard
    ]
    several = study.kind is Kind.AB and len(totals.cells) > 1
    names = [name for name in study.conditions if any(name in cell for cell in totals.cells)]
    return Result(
        len(totals.raters),
        len(counted),
        tuple(_cells(counted, study, totals)),
        tuple(_contrasts(counted, study, totals, difference)),
        rank(wins_by_rater(totals, names), names) if several else None,
        _mixed(counted, study, totals) if options.mixed else None,
    )


def _cells(answers: list[Answer], study: Study, totals: Totals) -> list[CellResult]:
    scores: dict[tuple[str, str], list[float]] = {cell: [] for cell in totals.cells}
    for answer in answers:
        cell, score = oriented(answer, study)
        scores[cell].append(score)
    level = centred(totals) if can_be_centred(study.kind, totals) else None
    bounds, means = bounds_of(study.kind), totals.means()
    rows = []
    for k, cell in enumerate(totals.cells):
        median: float | None = float(np.median(scores[cell]))
        if study.kind in (Kind.AB, Kind.ABX):
            median = None
        elif study.kind is Kind.INTELLIGIBILITY:
            median = float(np.nanmedian(means[:, k]))
        value = interval(*totals.of(k), bounds)
        own = interval(*level.of(k), bounds) if level else None
        by_rater = tuple(float(mean) for mean in means[:, k] if not np.isnan(mean))
        counts = tuple(sorted(Counter(scores[cell]).items()))
        rows.append(CellResult(*cell, len(scores[cell]), value, median, own, by_rater, counts))
    return rows


def _contrasts(answers: list[Answer], study: Study, totals: Totals, worthwhile: float) -> list[Contrast]:
    if study.kind in PAIRED:
        found = [_against_neutral(answers, study, totals, k, worthwhile) for k in range(len(totals.cells))]
    else:
        judged = [k for k, cell in enumerate(totals.cells) if cell[0] not in study.anchors]
        found = [_between(study.kind, totals, a, b, worthwhile) for a, b in combinations(judged, 2)]
    corrected = tests.holm([row.p for row in found])
    return [row._replace(corrected_p=p) for row, p in zip(found, corrected, strict=True)]


def _between(kind: Kind, totals: Totals, a: int, b: int, worthwhile: float) -> Contrast:
    sums, weights = totals.of(a, b)
    apart = sums[:, 0] / weights[:, 0] - sums[:, 1] / weights[:, 1]
    found = interval(sums, weights, difference_bounds(kind), (1.0, -1.0))
    return _tested(totals.cells[a][0], totals.cells[b][0], found, apart, worthwhile)


def _against_neutral(
    answers: list[Answer], study: Study, totals: Totals, k: int, worthwhile: float
) -> Contrast:
    neutral, cell = NEUTRAL[study.kind], totals.cells[k]
    sums, weights = totals.of(k)
    low, high = bounds_of(study.kind)
    found = interval(sums - neutral * weights, weights, Bounds(low - neutral, high - neutral))
    row = _tested(*cell, found, (sums / weights).ravel() - neutral, worthwhile)
    if study.kind is Kind.ABX:
        right = [a.score for a in answers if oriented(a, study)[0] == cell]
        row = row._replace(test="binomial", p=tests.binomial_p(round(sum(right)), len(right)))
    return row


def _tested(first: str, second: str, found: Interval, apart: np.ndarray, worthwhile: float) -> Contrast:
    # Raters' values are sums of whole scores; what is left of a zero by rounding must not count as a difference.
    test = tests.wilcoxon(np.round(apart, 12))
    sd = float(apart.std(ddof=1)) if len(apart) > 1 else 0.0
    return Contrast(
        first, second, found, "wilcoxon", test.p, test.p, tests.paired_effect(apart), tests.rank_effect(test),
        more_raters(len(apart), worthwhile, sd),
    )  # fmt: skip


def _mixed(answers: list[Answer], study: Study, totals: Totals) -> MixedResult | None:
    """The mixed model, for scores of at least two raters and items; it does not suit shares and error rates."""
    from scipy.stats import t

    items = sorted({answer.item for answer in answers})
    scored = study.kind not in (Kind.AB, Kind.ABX, Kind.INTELLIGIBILITY)
    if not scored or min(len(items), len(totals.raters)) < 2:
        return None
    told = [oriented(answer, study) for answer in answers]
    places = [
        np.array([totals.cells.index(cell) for cell, _ in told]),
        np.array([totals.raters.index(answer.rater) for answer in answers]),
        np.array([items.index(answer.item) for answer in answers]),
    ]
    fitted = mixed.fit(np.array([score for _, score in told]), *places)
    if fitted is None:
        return None
    # Cautious: as many degrees of freedom as the smaller of the two samples leaves.
    edge = t.ppf((1 + LEVEL) / 2, min(len(items), len(totals.raters)) - 1)
    rows = tuple(
        (
            *cell,
            Interval(float(mean), float(mean - edge * error), float(mean + edge * error), len(totals.raters)),
        )
        for cell, mean, error in zip(totals.cells, fitted.means, fitted.errors(), strict=True)
    )
    return MixedResult(rows, fitted.rater_sd, fitted.item_sd, fitted.residual_sd)


def as_json(analysis: Analysis) -> dict[str, Any]:
    """The analysis as JSON can hold it: nouns as objects, what is not a number as null."""
    told: dict[str, Any] = _plain(analysis)
    return told


def _plain(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        return {name: _plain(part) for name, part in value._asdict().items()}
    if is_dataclass(value):
        return {part.name: _plain(getattr(value, part.name)) for part in fields(value)}
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, (tuple, list, frozenset)):
        return [_plain(part) for part in (sorted(value) if isinstance(value, frozenset) else value)]
    return None if isinstance(value, float) and not np.isfinite(value) else value
