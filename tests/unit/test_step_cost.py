"""What a step costs: the fitted line, what it guesses before it has seen two sizes, and the LM's steps from outside."""

from __future__ import annotations

import pytest

from studio.admin.planner import Speed
from studio.backends.fake import ManualClock
from studio.engine.step_cost import CostLine, Costs, LmMeter, StepCost
from studio.settings import Settings


def test_line_goes_through_steps_of_two_sizes() -> None:
    cost = StepCost()
    assert cost.line(0.5) is None
    for amount in (1, 2, 3, 1, 2, 3, 1, 2, 3, 4):
        cost.add(amount, 0.1 + 0.02 * amount)
    line = cost.line(0.5)
    assert line is not None and line.seconds(2) == pytest.approx(0.14, rel=0.01)
    assert line.each_s == pytest.approx(0.02, rel=0.15)


@pytest.mark.parametrize(("shared", "of_two"), [(0.0, 0.4), (1.0, 0.2), (0.5, 0.3)])
def test_steps_of_one_size_grow_as_it_is_guessed(shared: float, of_two: float) -> None:
    cost = StepCost()
    cost.add(1, 0.2)
    line = cost.line(shared)
    assert line is not None and line.seconds(1) == pytest.approx(0.2) and line.seconds(2) == pytest.approx(of_two)


def test_latest_steps_count_most_and_another_start_forgets_them() -> None:
    cost = StepCost()
    cost.add(1, 1.0, steps=50)
    cost.add(1, 0.1, steps=500)
    line = cost.line(1.0)
    assert line is not None and line.seconds(1) == pytest.approx(0.1, rel=0.1)
    cost.forget()
    assert cost.line(1.0) is None


def test_steps_of_the_lm_are_tokens_by_the_rows_that_ran() -> None:
    clock, cost = ManualClock(), StepCost()
    meter = LmMeter(cost, clock)
    meter.rows(1)
    meter.came(10)
    clock.advance(1.0)
    meter.rows(2)  # a second one begins: ten steps of one row took a tenth of a second each
    meter.came(40)
    clock.advance(3.0)
    meter.rows(0)  # twenty steps of two rows took 0.15 s each
    clock.advance(60.0)  # nobody speaks
    meter.rows(1)
    line = cost.line(0.0)
    assert line is not None
    assert line.seconds(1) == pytest.approx(0.1, rel=0.05) and line.seconds(2) == pytest.approx(0.15, rel=0.05)


def test_streams_beyond_what_is_voiced_at_once_wait_in_line() -> None:
    speed = Speed(Settings(max_running=2), Costs(CostLine(0.0, 0.01), CostLine(0.0, 0.01)))
    two, four = speed.of(2, 8.0), speed.of(4, 8.0)
    assert two[0] is not None and four[0] is not None and two[1] == four[1]
    assert four[0] > 2 * two[0]
