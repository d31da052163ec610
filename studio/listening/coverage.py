"""How often the intervals hold the truth: `python -m studio.listening.coverage` over simulated studies.

Writes `statistics/coverage.json`, which reports quote, and docs/listening/coverage.md. A row a kind, interval and
number of raters; rows that are there are kept, so a run can be cut short and gone on with.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np

from studio.listening.answers import Kind
from studio.listening.statistics import ranking
from studio.listening.statistics.analysis import bounds_of, difference_bounds
from studio.listening.statistics.intervals import RESAMPLES, interval
from studio.listening.statistics.simulate import CONDITIONS, ITEMS, simulate

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).resolve().parent / "statistics" / "coverage.json"
TABLE = ROOT / "docs" / "listening" / "coverage.md"
RATERS = (8, 20, 50)
STUDIES = 1000
SEED = 7
# 95 % within what 1,000 studies can tell apart (two standard errors are 1.4 points).
LEAST, MOST = 0.935, 0.965


class Covered(NamedTuple):
    """How often one sort of interval held the truth."""

    kind: str
    interval: str  # "value", "difference" or "strength"
    raters: int
    studies: int
    intervals: int
    held: float  # share
    below: float  # share of intervals that lay wholly below the truth
    above: float


def hits(kind: Kind, raters: int, study: int) -> Iterator[tuple[str, float | None, float | None, float]]:
    """Sort, low, high and truth of every interval of one simulated study."""
    drawn = simulate(kind, raters, np.random.default_rng([SEED, list(Kind).index(kind), raters, study]))
    totals = drawn.totals()
    for k, truth in enumerate(drawn.truth):
        found = interval(*totals.of(k), bounds_of(kind), seed=study)
        yield "value", found.low, found.high, float(truth)
    if not drawn.cells[0][1]:
        for a, b in combinations(range(len(drawn.cells)), 2):
            found = interval(*totals.of(a, b), difference_bounds(kind), (1.0, -1.0), seed=study)
            yield "difference", found.low, found.high, float(drawn.truth[a] - drawn.truth[b])
    if kind is Kind.AB:
        names = list(CONDITIONS)
        wins = np.zeros((len(names), len(names)))
        for (first, second), share in zip(drawn.cells, drawn.truth, strict=True):
            wins[names.index(first), names.index(second)] = share
            wins[names.index(second), names.index(first)] = 1 - share
        truths = dict(zip(names, ranking.fit(wins), strict=True))
        for row in ranking.rank(ranking.wins_by_rater(totals, names), names).rows:
            yield "strength", row.low, row.high, float(truths[row.condition])


def covered(kind: Kind, raters: int, studies: int) -> list[Covered]:
    """Run `studies` studies of a kind and count."""
    told: dict[str, list[tuple[bool, bool]]] = {}
    for study in range(studies):
        for sort, low, high, truth in hits(kind, raters, study):
            below = high is not None and high < truth - 1e-9
            above = low is not None and low > truth + 1e-9
            told.setdefault(sort, []).append((below, above))
    rows = []
    for sort, missed in told.items():
        low, high = (round(float(share), 4) for share in np.mean(missed, axis=0))
        held = round(1 - low - high, 4)
        rows.append(Covered(kind.value, sort, raters, studies, len(missed), held, low, high))
    return rows


@cache
def measured() -> tuple[Covered, ...]:
    """The committed rows."""
    if not RESULTS.exists():
        return ()
    return tuple(Covered(**row) for row in json.loads(RESULTS.read_text(encoding="utf-8"))["rows"])


def nearest(kind: Kind, sort: str, raters: int) -> Covered | None:
    """The measured row that tells most about a study with so many raters: the next smaller number, or the least."""
    rows = [row for row in measured() if row.kind == kind and row.interval == sort]
    smaller = [row for row in rows if row.raters <= raters]
    return (
        max(smaller, key=lambda row: row.raters)
        if smaller
        else min(rows, key=lambda row: row.raters, default=None)
    )


def table(rows: list[Covered]) -> str:
    """The rows as a page of docs/listening."""
    lines = [
        "# Do the intervals hold the truth?",
        "",
        "Written by `python -m studio.listening.coverage`. Simulated listeners, whose true mean is known exactly",
        f"(`studio/listening/statistics/simulate.py`), answer {ITEMS} items in each of 3 conditions or pairs. Each",
        f"study's 95 % intervals are computed as in a report (studentised bootstrap, {RESAMPLES} resamples of whole",
        "listeners; for strengths of AB conditions a sandwich by listener) and compared with the truth.",
        f"Seed {SEED}. Aim: {LEAST:.1%} to {MOST:.1%}.",
        "",
        "| kind | interval of | raters | studies | intervals | held | too low | too high | within the aim |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for row in rows:
        inside = "yes" if LEAST <= row.held <= MOST else "**no**"
        lines.append(
            f"| {row.kind} | {row.interval} | {row.raters} | {row.studies} | {row.intervals} "
            f"| {row.held:.1%} | {row.below:.1%} | {row.above:.1%} | {inside} |"
        )
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m studio.listening.coverage", description=__doc__)
    parser.add_argument("--studies", type=int, default=STUDIES)
    parser.add_argument("--kinds", nargs="*", type=Kind, default=list(Kind))
    parser.add_argument("--again", action="store_true", help="forget the rows that are there")
    options = parser.parse_args()
    rows = [] if options.again else list(measured())
    for kind in options.kinds:
        for raters in RATERS:
            if any(row.kind == kind and row.raters == raters for row in rows):
                continue
            found = covered(kind, raters, options.studies)
            rows = sorted(
                [*rows, *found], key=lambda row: (list(Kind).index(Kind(row.kind)), row.interval, row.raters)
            )
            lines = ",\n  ".join(json.dumps(row._asdict()) for row in rows)
            RESULTS.write_text(f'{{"seed": {SEED}, "rows": [\n  {lines}\n]}}\n', encoding="utf-8")
            print(*(f"{row.kind} {row.interval} {row.raters}: {row.held:.3f}" for row in found), flush=True)
    TABLE.parent.mkdir(parents=True, exist_ok=True)
    TABLE.write_text(table(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
