"""Orders are balanced over raters, repeatable from the seed, and say nothing about the conditions."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import asdict, replace

import pytest

from studio.listening.answers import Kind, Role
from studio.listening.design import Condition, Design
from studio.listening.orders import Trial, balanced, latin_row, plan, trials_of

ITEMS = [f"s{n:02d}" for n in range(1, 9)]


def design(kind: Kind, conditions: int = 4, **how: object) -> Design:
    names = tuple(Condition(f"c{n}", f"system {n}") for n in range(1, conditions + 1))
    return Design(kind, "t", names, reference="c1" if kind in (Kind.MUSHRA, Kind.SIMILARITY) else "", **how)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", range(1, 9))
def test_williams_square_is_latin_and_balances_what_follows_what(count: int) -> None:
    rows = [latin_row(count, row) for row in range(count)]
    for column in zip(*rows, strict=True):
        assert sorted(column) == list(range(count))
    if count % 2 == 0:
        following = Counter(pair for row in rows for pair in itertools.pairwise(row))
        assert set(following.values()) <= {1}


@pytest.mark.parametrize("kind", list(Kind))
def test_plan_is_the_same_each_time_and_another_for_another_seed(kind: Kind) -> None:
    how = design(kind, training=1, traps=1, repeats=2)
    assert plan(how, ITEMS, 3) == plan(how, ITEMS, 3)
    assert plan(how, ITEMS, 3) != plan(replace(how, seed=1), ITEMS, 3)
    assert plan(how, ITEMS, 3) != plan(how, ITEMS, 4)


@pytest.mark.parametrize("kind", list(Kind))
def test_length_of_a_plan_is_reckoned_without_drawing_it(kind: Kind) -> None:
    coverage = "latin" if kind is Kind.INTELLIGIBILITY else "full"
    how = design(kind, training=2, traps=1, repeats=2, rounds=3, coverage=coverage)
    assert trials_of(how, len(ITEMS)) == len(plan(how, ITEMS, 0))


def test_every_sentence_is_heard_in_every_condition_by_each_rater() -> None:
    heard = Counter((t.item, t.slots[0]) for t in plan(design(Kind.MOS), ITEMS, 5))
    assert len(heard) == 8 * 4 and set(heard.values()) == {1}


@pytest.mark.parametrize("kind", [Kind.MOS, Kind.INTELLIGIBILITY])
def test_latin_coverage_gives_each_sentence_once_and_is_balanced_over_a_block_of_raters(kind: Kind) -> None:
    how = design(kind, coverage="latin")
    plans = [plan(how, ITEMS, rater) for rater in range(4)]
    assert all(sorted(t.item for t in trials) == ITEMS for trials in plans)
    heard = Counter((t.item, t.slots[0]) for trials in plans for t in trials)
    assert len(heard) == 8 * 4 and set(heard.values()) == {1}


@pytest.mark.parametrize("kind", [Kind.CMOS, Kind.AB, Kind.ABX])
def test_two_raters_running_hear_every_pair_in_both_orders(kind: Kind) -> None:
    first, second = (plan(design(kind, 3), ITEMS, rater) for rater in (6, 7))
    heard = Counter((t.item, t.slots) for t in (*first, *second))
    assert len(heard) == 8 * 6 and set(heard.values()) == {1}


def test_x_is_either_clip_about_as_often_and_independent_of_order() -> None:
    trials = [t for rater in range(100) for t in plan(design(Kind.ABX, 2), ITEMS, rater)]
    cells = Counter((t.slots[0], t.x) for t in trials)
    assert len(cells) == 4
    # 800 trials, 200 to a cell on average, standard deviation 12; the draw is seeded, so this cannot flicker
    assert all(150 < n < 250 for n in cells.values())


def test_mushra_shows_each_condition_in_each_place_equally_often() -> None:
    how = design(Kind.MUSHRA, 3)
    conditions = len(how.rated)
    assert how.rated == ("c1", "c2", "c3", "anchor35", "anchor70")
    places = Counter(
        (t.item, place, c) for r in range(conditions) for t in plan(how, ITEMS, r) for place, c in enumerate(t.slots)
    )
    assert set(places.values()) == {1} and len(places) == 8 * conditions * conditions
    assert {t.reference for t in plan(how, ITEMS, 0)} == {"c1"}


def test_order_of_one_rater_does_not_tell_the_next_ones() -> None:
    orders = {balanced(("a", "b", "c", "d"), rater, "draw") for rater in range(40)}
    assert len(orders) > 8


def test_training_comes_first_on_sentences_that_are_not_rated_later() -> None:
    trials = plan(design(Kind.AB, 2, training=2), ITEMS, 0)
    assert [t.role for t in trials[:2]] == [Role.TRAINING] * 2
    assert {t.item for t in trials[:2]} == {"s01", "s02"}
    assert {t.item for t in trials[2:]} == set(ITEMS[2:])


@pytest.mark.parametrize("kind", [Kind.MOS, Kind.CMOS, Kind.AB, Kind.ABX])
def test_gold_and_trap_items_are_mixed_in(kind: Kind) -> None:
    trials = plan(design(kind, 2, traps=2, gold=2), ITEMS, 1)
    roles = Counter(t.role for t in trials)
    assert roles[Role.TRAP] == 2 and roles[Role.GOLD] == 2
    assert all("gold" in t.slots for t in trials if t.role is Role.GOLD)
    assert all(t.wanted is not None for t in trials if t.role is Role.TRAP)
    assert trials[0].role is Role.TEST


def test_repeated_trials_come_later_and_turned_round() -> None:
    trials = plan(design(Kind.CMOS, 2, repeats=3), ITEMS, 2)
    again = [(n, t) for n, t in enumerate(trials) if t.role is Role.REPEAT]
    assert len(again) == 3
    for n, trial in again:
        earlier = next(m for m, t in enumerate(trials) if t.item == trial.item and t.role is Role.TEST)
        assert earlier < n and trials[earlier].slots == trial.slots[::-1]


def test_no_sentence_comes_twice_running() -> None:
    for rater in range(20):
        trials = plan(design(Kind.MOS), ITEMS, rater)
        assert all(a.item != b.item for a, b in itertools.pairwise(trials))


def test_similarity_hears_the_reference_and_never_rates_it() -> None:
    trials = plan(design(Kind.SIMILARITY, 3), ITEMS, 0)
    assert {t.reference for t in trials} == {"c1"}
    assert {t.slots[0] for t in trials} == {"c2", "c3"}


def test_trial_survives_json() -> None:
    trial = plan(design(Kind.ABX, 2, traps=1), ITEMS, 0)[3]
    assert Trial.from_dict(asdict(trial)) == trial
