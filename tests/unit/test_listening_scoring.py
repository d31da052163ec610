"""What buttons and sliders said becomes rows about conditions, whatever was shown first."""

from __future__ import annotations

import pytest

from studio.errors import InvalidRequest
from studio.listening.answers import Answer, Kind, Role
from studio.listening.design import Condition, Design
from studio.listening.headphones import ROUNDS, right, softest
from studio.listening.orders import Trial
from studio.listening.scoring import Reply, answers
from studio.listening.words import word_errors

CONDITIONS = (Condition("c1", "one"), Condition("c2", "two"))


def rows(kind: Kind, slots: tuple[str, ...], reply: Reply, said: str = "", **trial: object) -> list[Answer]:
    shown = Trial(trial.pop("role", Role.TEST), "s", slots, **trial)  # type: ignore[arg-type]
    head = Answer("t", "r", "x", 1, kind, shown.role, "s", "", 0.0)
    return answers(Design(kind, "t", CONDITIONS), shown, reply, said, head)


FIRST, TURNED = ("c1", "c2"), ("c2", "c1")


@pytest.mark.parametrize(("slots", "given", "score"), [(FIRST, 2, -2), (TURNED, 2, 2), (FIRST, 0, 0)])
def test_cmos_is_about_the_first_condition_of_the_design(slots: tuple[str, str], given: float, score: float) -> None:
    [row] = rows(Kind.CMOS, slots, Reply((given,)))
    assert (row.condition, row.against, row.score) == ("c1", "c2", score)


@pytest.mark.parametrize(
    ("slots", "given", "score"), [(FIRST, 0, 1), (FIRST, 1, 0), (TURNED, 1, 1), (TURNED, 0.5, 0.5)]
)
def test_preference_is_about_the_condition_not_the_button(slots: tuple[str, str], given: float, score: float) -> None:
    [row] = rows(Kind.AB, slots, Reply((given,)))
    assert (row.condition, row.score) == ("c1", score)


@pytest.mark.parametrize(("x", "given", "score"), [(0, 0, 1), (0, 1, 0), (1, 1, 1)])
def test_abx_is_right_or_wrong(x: int, given: float, score: float) -> None:
    [row] = rows(Kind.ABX, ("c2", "c1"), Reply((given,)), x=x)
    assert row.score == score


def test_sliders_give_a_row_each() -> None:
    found = rows(Kind.MUSHRA_NMR, ("c2", "c1"), Reply((80, 20), comment="hm"))
    assert {row.condition: row.score for row in found} == {"c1": 20, "c2": 80}
    assert len({row.trial for row in found}) == 1 and found[0].comment == "hm"


def test_trap_is_passed_by_obeying_and_gold_by_hearing() -> None:
    [trap] = rows(Kind.MUSHRA_NMR, ("c1", "c2"), Reply((40, 55)), role=Role.TRAP, wanted=40.0)
    assert trap.score == 55 and (trap.wanted_low, trap.wanted_high) == (37, 43)
    [gold] = rows(Kind.AB, ("gold", "c1"), Reply((0,)), role=Role.GOLD)
    assert (gold.condition, gold.against, gold.score, gold.wanted_low) == ("c1", "gold", 0, 1)
    [typed] = rows(Kind.INTELLIGIBILITY, ("c1",), Reply(typed="321"), role=Role.TRAP, wanted=321.0)
    assert typed.score == typed.wanted_high == 0


@pytest.mark.parametrize(("said", "typed", "found"), [
    ("Good morning, all.", "good morning ALL", (0, 3)),
    ("Good morning", "good warning sign", (2, 2)),
    ("It’s late", "it's late", (0, 2)),
    ("今天天气好", "今天天气很好", (1, 5)),
    ("one two three", "-", (3, 3)),
])  # fmt: skip
def test_word_errors_of_what_was_typed(said: str, typed: str, found: tuple[int, int]) -> None:
    assert word_errors(said, typed) == found
    if "-" not in typed:
        [row] = rows(Kind.INTELLIGIBILITY, ("c1",), Reply(typed=typed), said)
        assert (row.score, row.words) == found


@pytest.mark.parametrize(("kind", "slots", "reply"), [
    (Kind.MOS, ("c1",), Reply((0,))),
    (Kind.MOS, ("c1",), Reply((2.5,))),
    (Kind.AB, ("c1", "c2"), Reply((0.25,))),
    (Kind.CMOS, ("c1", "c2"), Reply((1, 1))),
    (Kind.MUSHRA_NMR, ("c1", "c2"), Reply((101, 0))),
    (Kind.MUSHRA_NMR, ("c1", "c2"), Reply((float("nan"), 0))),
    (Kind.INTELLIGIBILITY, ("c1",), Reply(typed=" ")),
])  # fmt: skip
def test_impossible_replies_are_refused(kind: Kind, slots: tuple[str, ...], reply: Reply) -> None:
    with pytest.raises(InvalidRequest):
        rows(kind, slots, reply)


def test_headphone_rounds_differ_between_raters_and_are_counted() -> None:
    chosen = [softest("ada", n)[0] for n in range(1, ROUNDS + 1)]
    assert right("ada", chosen) == ROUNDS and right("bob", chosen) < ROUNDS
    assert all(soft != opposite for soft, opposite in (softest("ada", n) for n in range(1, ROUNDS + 1)))
