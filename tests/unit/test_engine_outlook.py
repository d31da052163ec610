"""What is promised to who waits, and the rule that chooses a quality."""

from __future__ import annotations

import pytest

from studio.engine.outlook import wait_s
from studio.engine.quality import EFFORTS, HELD_S, choose
from studio.messages import render


def shared(running: int) -> float:
    """Two seconds of sound a second in all, shared by who runs."""
    return 2.0 / running


def test_no_wait_while_a_place_is_free() -> None:
    assert wait_s([], [], 1, shared) == 0.0
    assert wait_s([10.0], [], 2, shared) == 0.0


def test_first_place_is_free_when_the_shortest_request_ends() -> None:
    assert wait_s([4.0], [], 1, shared) == 2.0
    assert wait_s([4.0, 1.0], [], 2, shared) == 1.0


def test_those_ahead_take_the_places_first() -> None:
    """1 s left beside 4: over after 1 s; then 3 of the long one beside the 5 of who was ahead: over after 3 more."""
    assert wait_s([4.0, 1.0], [5.0], 2, shared) == pytest.approx(4.0)
    assert wait_s([1.0], [2.0, 3.0], 1, shared) == pytest.approx(3.0)


def test_rule_is_fast_under_load_best_where_it_costs_little_and_balanced_else() -> None:
    assert choose(0, 0, 8, 10.0, 2.0).quality == "balanced"
    assert choose(0, 0, 8, 10.0, None).quality == "balanced"
    assert choose(0, 0, 8, HELD_S * 4.0, 4.0).quality == "best"
    assert choose(4, 0, 8, 0.1, 4.0).quality == "fast"
    assert choose(3, 0, 8, 100.0, 4.0).quality == "balanced"
    assert choose(1, 1, 8, 0.1, 4.0).quality == "fast"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_rule_says_what_it_chose(language: str) -> None:
    for choice in (choose(5, 1, 8, 1.0, 1.0), choose(0, 0, 8, 0.1, 9.0), choose(0, 0, 8, 30.0, 2.0)):
        said = render(choice.reason, language, seconds=choice.seconds, others=choice.others)
        assert said and "{" not in said


def test_more_effort_never_does_less() -> None:
    fast, balanced, best = EFFORTS["fast"], EFFORTS["balanced"], EFFORTS["best"]
    assert fast.retakes < balanced.retakes < best.retakes
    assert (fast.judged, balanced.judged, best.judged) == (False, False, True)
