"""Intervals, screening, ranking and power of listening tests, against listeners whose truth is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from studio.listening import coverage
from studio.listening.answers import PAIRED, Answer, Kind, Role, Study
from studio.listening.leaderboard import vote_weights
from studio.listening.orders import Trial
from studio.listening.raters import Rater
from studio.listening.statistics import power, ranking, simulate, tests
from studio.listening.statistics.analysis import Options, analyse, bounds_of
from studio.listening.statistics.intervals import MANY_RATERS, Bounds, interval
from studio.listening.statistics.screening import Rule, Rules, screen
from studio.listening.statistics.totals import total

STUDY = Study(
    "t", "T", Kind.MUSHRA, {"ref": "Original", "a": "A", "b": "B", "low": "3.5 kHz"}, "ref", ("low",)
)


def drawn(kind: Kind, raters: int = 8, seed: int = 3) -> simulate.Simulated:
    return simulate.simulate(kind, raters, np.random.default_rng(seed))


def answer(rater: str, condition: str, score: float, **changed: object) -> Answer:
    made = Answer("t", rater, "k", 1, Kind.MUSHRA, Role.TEST, "i1", condition, score)
    return replace(made, **changed)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", list(Kind))
def test_the_truth_of_simulated_listeners_is_what_very_many_of_them_say(kind: Kind) -> None:
    study = drawn(kind, 20_000)
    found = study.scores.mean(axis=(0, 2)) / study.words
    spread = (study.scores.mean(axis=2) / study.words).std(axis=0) / np.sqrt(20_000)
    assert (abs(found - study.truth) < 4.5 * spread).all()


@pytest.mark.parametrize("kind", list(Kind))
def test_totals_of_answers_are_those_of_the_scores(kind: Kind) -> None:
    study = drawn(kind)
    direct, counted = study.totals(), total(study.answers(), study.study())
    assert counted.cells == direct.cells
    assert np.array_equal(counted.sums, direct.sums)
    assert np.array_equal(counted.weights, direct.weights)


@pytest.mark.parametrize("kind", list(Kind))
def test_intervals_of_few_listeners_hold_the_truth_as_often_as_they_say(kind: Kind) -> None:
    """A small version of the committed run: 100 studies of 8 raters; chance moves a share by 2 points or so."""
    for row in coverage.covered(kind, 8, 100):
        assert 0.90 <= row.held <= 0.99, row


def test_the_committed_coverage_is_what_the_code_gives() -> None:
    fresh = coverage.covered(Kind.CMOS, 8, coverage.STUDIES)
    committed = [row for row in coverage.measured() if (row.kind, row.raters) == ("cmos", 8)]
    assert [row.interval for row in fresh] == [row.interval for row in committed]
    for found, expected in zip(fresh, committed, strict=True):
        assert abs(found.held - expected.held) < 0.002  # a last digit may fall to the other side elsewhere


def test_coverage_was_measured_for_every_kind_interval_and_number_of_raters() -> None:
    rows = {(row.kind, row.interval, row.raters): row.studies for row in coverage.measured()}
    sorts = {kind: ["value"] if kind in PAIRED else ["value", "difference"] for kind in Kind}
    sorts[Kind.AB] = ["value", "strength"]
    assert rows == {(kind.value, sort, n): 1000 for kind in Kind for sort in sorts[kind] for n in (8, 20, 50)}


def test_the_page_about_coverage_shows_every_measured_row() -> None:
    assert coverage.TABLE.read_text(encoding="utf-8") == coverage.table(list(coverage.measured()))


def test_intervals_hold_their_level_within_what_a_thousand_studies_can_tell() -> None:
    outside = [row for row in coverage.measured() if not coverage.LEAST <= row.held <= coverage.MOST]
    assert outside == []


def test_raters_who_all_chose_the_end_of_the_scale_leave_room_for_others() -> None:
    found = interval(np.full((8, 1), 10.0), np.full((8, 1), 10.0), bounds_of(Kind.AB))
    assert found.value == found.high == 1
    assert found.low == pytest.approx(0.025 ** (1 / 8))  # Clopper and Pearson's bound for 8 of 8


def test_no_error_at_all_gives_no_upper_end_where_errors_have_none() -> None:
    found = interval(np.zeros((8, 1)), np.full((8, 1), 10.0), bounds_of(Kind.INTELLIGIBILITY))
    assert (found.value, found.low, found.high) == (0.0, 0.0, None)


def test_raters_who_agree_wholly_in_the_middle_give_no_interval() -> None:
    found = interval(np.full((5, 1), 30.0), np.full((5, 1), 10.0), bounds_of(Kind.MOS))
    assert found[:3] == (3.0, None, None)


def test_intervals_of_very_many_raters_go_on_where_those_of_many_end() -> None:
    values = np.random.default_rng(1).normal(3, 1, (MANY_RATERS + 1, 1))
    many = interval(values, np.ones_like(values), Bounds(1, 5))
    fewer = interval(values[:-1], np.ones_like(values[:-1]), Bounds(1, 5))
    for end, other in zip(many[:3], fewer[:3], strict=True):
        assert end == pytest.approx(other, abs=0.02)


def test_one_rater_gives_a_value_and_no_interval() -> None:
    assert interval(np.array([[7.0]]), np.array([[2.0]]), Bounds(1, 5))[1:] == (None, None, 1)


def test_the_same_answers_give_the_same_analysis_in_any_order() -> None:
    study = drawn(Kind.MOS)
    answers = study.answers()
    assert analyse(answers, study.study()) == analyse(answers[::-1], study.study())


def test_an_answer_about_a_pair_counts_the_same_whichever_stood_first() -> None:
    study = drawn(Kind.AB)
    turned = [
        replace(a, condition=a.against, against=a.condition, score=1 - a.score) if k % 2 else a
        for k, a in enumerate(study.answers())
    ]
    assert analyse(turned, study.study()) == analyse(study.answers(), study.study())


def test_training_traps_gold_and_repeats_say_nothing_about_conditions() -> None:
    study = drawn(Kind.MOS)
    others = [
        replace(a, role=role, score=1.0) for role in Role if role is not Role.TEST for a in study.answers()
    ]
    assert (
        analyse(study.answers() + others, study.study()).everyone
        == analyse(study.answers(), study.study()).everyone
    )


def test_a_rater_who_misses_the_hidden_reference_is_left_out_and_both_results_are_given() -> None:
    fair = [
        answer(f"r{k}", c, s - k)
        for k in range(6)
        for c, s in (("ref", 100), ("a", 70), ("b", 60), ("low", 20))
    ]
    deaf = [answer("deaf", c, s) for c, s in (("ref", 40), ("a", 90), ("b", 95), ("low", 80))]
    found = analyse([*fair, *deaf], STUDY)
    assert [(out.rater, out.rule) for out in found.screening.exclusions] == [("deaf", Rule.REFERENCE)]
    assert (found.everyone.raters, found.screened.raters) == (7, 6)
    assert found.screened.cells[1].value.value == 67.5


def test_a_rater_who_fails_traps_is_left_out() -> None:
    trap = {"role": Role.TRAP, "wanted_low": 20, "wanted_high": 20}
    awake = [answer("awake", "trap", 20, **trap), answer("awake", "trap", 20, **trap)]
    asleep = [answer("asleep", "trap", 20, **trap), answer("asleep", "trap", 50, **trap)]
    found = screen([*awake, *asleep], STUDY, Rules())
    assert [(out.rater, out.rule, out.found) for out in found.exclusions] == [("asleep", Rule.TRAPS, 0.5)]
    assert screen([*awake, *asleep], STUDY, Rules(trap_share=None)).exclusions == ()


def test_a_rater_who_contradicts_their_own_answers_is_left_out() -> None:
    def twice(rater: str, apart: float) -> list[Answer]:
        first = [answer(rater, c, 50.0) for c in ("a", "b")]
        return [*first, *(replace(a, role=Role.REPEAT, position=9, score=50 + apart) for a in first)]

    found = screen(twice("steady", 20) + twice("wild", 40), STUDY, Rules())
    assert [(out.rater, out.rule) for out in found.exclusions] == [("wild", Rule.INCONSISTENT)]


def test_a_rule_that_finds_nothing_to_look_at_says_so() -> None:
    assert screen(drawn(Kind.MOS).answers(), drawn(Kind.MOS).study(), Rules()).applied == frozenset()


def test_bradley_terry_ranks_simulated_conditions_in_their_true_order() -> None:
    found = analyse(drawn(Kind.AB, 20).answers(), drawn(Kind.AB).study()).everyone.ranking
    assert found is not None and not found.separated
    assert [row.condition for row in found.rows] == ["c3", "c2", "c1"]


def test_a_condition_that_won_everything_gets_a_finite_strength_and_is_marked() -> None:
    wins = np.array([[[0, 5, 5], [0, 0, 3], [0, 2, 0]]] * 4, dtype=float)
    found = ranking.rank(wins, ["best", "b", "c"])
    assert found.separated
    assert found.rows[0].condition == "best"
    assert np.isfinite(found.rows[0].strength)
    with pytest.raises(ValueError, match="never lost"):
        ranking.fit(wins.sum(axis=0))


def test_conditions_that_nobody_compared_are_not_ranked() -> None:
    wins = np.zeros((3, 4, 4))
    wins[:, 0, 1] = wins[:, 1, 0] = wins[:, 2, 3] = wins[:, 3, 2] = 2
    assert ranking.rank(wins, list("abcd")).rows == ()


def test_more_listeners_are_asked_for_until_there_are_enough() -> None:
    missing = power.more_raters(8, 0.2, 0.3)
    assert missing and power.power(8 + missing, 0.2 / 0.3) >= 0.8 > power.power(7 + missing, 0.2 / 0.3)
    assert power.more_raters(8 + missing, 0.2, 0.3) == 0
    assert power.more_raters(8, 1e-9, 0.3) is None
    assert power.more_raters(8, 0.2, 0.0) is None


def test_guessing_right_eight_times_of_eight_has_a_chance_of_one_in_256() -> None:
    assert tests.binomial_p(8, 8) == pytest.approx(1 / 256)
    assert tests.binomial_p(0, 8) == 1


def test_holm_never_ranks_a_corrected_p_below_a_smaller_one() -> None:
    assert tests.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert tests.holm([]) == []


def test_the_mixed_model_is_fitted_on_request_only_and_for_scores_only() -> None:
    for kind in Kind:
        study = drawn(kind)
        wanted = analyse(study.answers(), study.study(), Options(mixed=True)).everyone.mixed
        assert (wanted is not None) == (kind not in (Kind.AB, Kind.ABX, Kind.INTELLIGIBILITY))
        assert analyse(study.answers(), study.study()).everyone.mixed is None


def test_scores_that_leave_nothing_to_chance_get_no_mixed_model() -> None:
    study = drawn(Kind.MOS)
    flat = [replace(a, score=3.0 if a.rater < "r04" else 4.0) for a in study.answers()]
    assert analyse(flat, study.study(), Options(mixed=True)).everyone.mixed is None


def test_the_arena_counts_who_votes_often_less_and_who_takes_one_button_not_at_all() -> None:
    study = drawn(Kind.AB)
    whole = analyse(study.answers(), study.study()).everyone
    halved = analyse(study.answers(), study.study(), Options(weights={"r00": 0.5, "r01": 0.0})).everyone
    assert (whole.raters, halved.raters) == (8, 7)
    sums, weights = study.totals().sums[:, 0], study.totals().weights[:, 0]
    factors = np.array([0.5, 0, 1, 1, 1, 1, 1, 1])
    assert halved.cells[0].value.value == pytest.approx((factors @ sums) / (factors @ weights))


def test_vote_weights_come_from_how_often_and_which_button() -> None:
    def votes(rater: str, count: int, side: int | None) -> tuple[Rater, list[Answer]]:
        slots = [("a", "b") if k % 2 else ("b", "a") for k in range(count)]
        plan = tuple(Trial(Role.TEST, f"i{k}", pair) for k, pair in enumerate(slots))
        chosen = ["a" if side is None else pair[side] for pair in slots]
        said = [
            Answer("t", rater, "k", k + 1, Kind.AB, Role.TEST, f"i{k}", "a", float(one == "a"), "b")
            for k, one in enumerate(chosen)
        ]
        return Rater(rater, "t", 0, "", plan, None, None, ""), said

    raters, said = zip(votes("few", 5, 0), votes("many", 40, None), votes("lazy", 12, 1), strict=True)
    assert vote_weights(raters, [vote for own in said for vote in own]) == {
        "few": 1.0,
        "many": 0.5,
        "lazy": 0.0,
    }


def test_a_test_without_answers_has_an_empty_analysis() -> None:
    found = analyse([], STUDY)
    assert (found.everyone.raters, found.everyone.cells, found.everyone.contrasts) == (0, (), ())
