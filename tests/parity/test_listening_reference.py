"""The statistics of listening tests give what R gives for the same answers, to 1e-6 (tests/fixtures/listening)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from studio.listening.answers import Kind, Study, read_csv
from studio.listening.statistics import mixed, power, ranking
from studio.listening.statistics.analysis import Analysis, Options, analyse
from studio.listening.statistics.intervals import _estimate, resamples
from studio.listening.statistics.totals import Totals, centred, total

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "listening"
REFERENCE = json.loads((FIXTURES / "reference.json").read_text(encoding="utf-8"))
PAIRS = [name for name, part in REFERENCE.items() if "pairs" in part]
MIXED = [name for name, part in REFERENCE.items() if "mixed" in part]


def close(found: Any, expected: Any) -> bool:
    return bool(np.allclose(found, expected, rtol=1e-6, atol=1e-6))


def study_of(kind: str) -> Study:
    return Study(
        "simulated", "Reference", Kind(kind), {name: name for name in ("c1", "c2", "c3")}, simulated=True
    )


def analysed(kind: str, options: Options | None = None) -> Analysis:
    answers = read_csv((FIXTURES / f"{kind}.csv").read_text(encoding="utf-8"))
    return analyse(answers, study_of(kind), options)


def totals_of(kind: str) -> Totals:
    return total(read_csv((FIXTURES / f"{kind}.csv").read_text(encoding="utf-8")), study_of(kind))


def test_means_and_medians_agree_with_r() -> None:
    cells = analysed("mos").everyone.cells
    assert close([cell.value.value for cell in cells], REFERENCE["mos"]["mean"])
    assert close([cell.median for cell in cells], REFERENCE["mos"]["median"])


@pytest.mark.parametrize("kind", PAIRS)
def test_wilcoxon_holm_and_effect_size_agree_with_r(kind: str) -> None:
    contrasts, expected = analysed(kind).everyone.contrasts, REFERENCE[kind]["pairs"]
    assert close([row.p for row in contrasts], expected["p"])
    assert close([row.corrected_p for row in contrasts], expected["holm"])
    assert close([row.effect for row in contrasts], expected["d"])


def test_signed_ranks_without_ties_are_exact_as_in_r() -> None:
    exact = [row.p for row in analysed("mushra").everyone.contrasts]
    assert 2 / 2**9 in exact  # nine raters who all agree: the least that nine can reach
    assert close(exact, REFERENCE["mushra"]["pairs"]["p"])


def test_exact_binomial_of_abx_agrees_with_r() -> None:
    contrasts = analysed("abx").everyone.contrasts
    assert {row.test for row in contrasts} == {"binomial"}
    assert np.allclose([row.p for row in contrasts], REFERENCE["abx"]["p"], rtol=1e-6, atol=0)
    assert np.allclose([row.corrected_p for row in contrasts], REFERENCE["abx"]["holm"], rtol=1e-6, atol=0)


def test_bradley_terry_strengths_and_their_errors_agree_with_bradleyterry2() -> None:
    names = ["c1", "c2", "c3"]
    wins = ranking.wins_by_rater(totals_of("ab"), names).sum(axis=0)
    strengths, expected = ranking.fit(wins), REFERENCE["ab"]["ranking"]
    errors = np.sqrt(np.diag(np.linalg.pinv(ranking.information(strengths, wins + wins.T))))
    assert close(strengths, expected["strength"])
    assert close(errors, expected["error"])


def test_bradley_terry_intervals_by_rater_agree_with_the_sandwich_of_r() -> None:
    found = analysed("ab").everyone.ranking
    assert found is not None
    rows = sorted(found.rows, key=lambda row: row.condition)
    expected = REFERENCE["ab"]["ranking"]
    assert close([row.strength for row in rows], expected["strength"])
    assert close([(row.high or 0) - row.strength for row in rows], expected["reach"])
    assert close([row.strength - (row.low or 0) for row in rows], expected["reach"])


@pytest.mark.parametrize("kind", MIXED)
def test_the_mixed_model_agrees_with_lme4(kind: str) -> None:
    answers, expected = read_csv((FIXTURES / f"{kind}.csv").read_text()), REFERENCE[kind]["mixed"]
    codes = [
        np.unique([getattr(a, name) for a in answers], return_inverse=True)[1] for name in ("rater", "item")
    ]
    cells = np.unique([f"{a.condition}/{a.against}" for a in answers], return_inverse=True)[1]
    fitted = mixed.fit(np.array([a.score for a in answers]), cells, *codes)
    assert fitted is not None
    assert close(fitted.means, expected["means"])
    assert close(fitted.errors(), expected["errors"])
    assert close(fitted.criterion, expected["criterion"])
    for name in ("rater_sd", "item_sd", "residual_sd"):
        assert close(getattr(fitted, name), expected[name])


def test_the_bootstrap_agrees_with_its_formula_in_r_over_the_same_resamples() -> None:
    drawn = np.loadtxt(FIXTURES / "resamples9.csv", delimiter=",")
    assert np.array_equal(drawn, resamples(9, 0))
    for cell, expected in zip(
        analysed("intelligibility").everyone.cells, REFERENCE["intelligibility"]["bootstrap"], strict=True
    ):
        assert close(cell.value[:3], [expected["value"], expected["low"], expected["high"]])


def test_centring_agrees_with_its_formula_in_r() -> None:
    totals = totals_of("mos")
    moved = centred(totals)
    expected = REFERENCE["mos"]["centred"]
    for k in range(3):
        sums, weights = moved.of(k)
        middle = sums.sum() / weights.sum()
        _, error = _estimate(sums - middle * weights, weights, np.ones(1), np.ones((1, len(sums))))
        assert close([middle, error[0]], [expected["value"][k], expected["error"][k]])


def test_power_and_listeners_needed_agree_with_r() -> None:
    expected = REFERENCE["power"]
    sd = expected["sd"]
    assert close([power.raters_needed(x, sd) for x in (0.2, 0.5, 1)], expected["needed"])
    assert close([power.power(n, 0.2 / sd) for n in (5, 12, 40)], expected["power"])
    first = analysed("mos").everyone.contrasts[0]
    assert first.more == int(np.ceil(expected["needed"][0])) - 12
