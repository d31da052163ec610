"""The LM's turns with arriving text, held against what upstream's loop feeds at every step."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from studio.engine.interleaving import Interleaving

GOLDEN = json.loads((Path(__file__).parents[1] / "fixtures" / "06_bistream.json").read_text())["cases"]
Fed = list[tuple[str, int]]


def scripted(fill_at: int | None) -> Iterator[int | None]:
    """The golden sampler: draw n gives 7 n mod 243, or the fill (None) at one draw."""
    draw = 0
    while True:
        draw += 1
        yield None if draw == fill_at else 7 * draw % 243


def run(case: dict) -> tuple[Fed, list[int], list[int]]:
    """Everything fed (without sos and task), the tokens spoken, and the lengths of the turns."""
    plan = Interleaving(case["prompt_text"], case["prompt_speech"])
    sampler, spoken, lengths = scripted(case["sampler_returns_fill_at_draw"]), [], []
    for piece in [*case["text_pieces"], None]:
        plan.end_text() if piece is None else plan.offer(piece)
        while (turn := plan.next_turn()) is not None:
            drawn = []
            for _ in range(4 if turn.whole else turn.most):
                token = next(sampler)
                if token is None:
                    break
                drawn.append(token)
            spoken += drawn
            lengths.append(len(drawn))
            if turn.whole:
                return [(kind, i) for kind, ids in turn.parts for i in ids], spoken, lengths
            plan.take(drawn)
    raise AssertionError("the last turn never came")


def golden(case: dict) -> tuple[Fed, list[int]]:
    """What upstream fed up to the task mark; the token that it feeds a second time before the last text is left out."""
    fed: Fed = []
    for step in case["steps"]:
        inputs = [tuple(one) for one in step["inputs"]]
        ends = ("task", 1) in inputs
        if ends and fed and inputs[0] == fed[-1] and inputs[0][0] == "speech":
            inputs = inputs[1:]
        fed += [one for one in inputs if one[0] in ("text", "speech")]
        if ends:
            return fed, case["spoken"]
    raise AssertionError("no task mark")


@pytest.mark.parametrize("name", GOLDEN)
def test_turns_feed_what_upstream_feeds(name: str) -> None:
    fed, spoken, _ = run(GOLDEN[name])
    expected_fed, expected_spoken = golden(GOLDEN[name])
    assert fed == expected_fed
    assert spoken == expected_spoken


def test_last_spoken_token_is_not_fed_a_second_time_before_the_last_text() -> None:
    """Upstream does (fixture no_prompt: 210 twice), which the LM never saw in training."""
    case = GOLDEN["no_prompt"]
    twice = [step["inputs"] for step in case["steps"] if ["task", 1] in step["inputs"]]
    assert twice[0][0] == ["speech", 210]
    assert sum(one == ("speech", 210) for one in run(case)[0]) == 1


def test_long_piece_is_taken_in_turns_and_does_not_wait_for_the_next_one() -> None:
    """Upstream takes five ids of each piece, however long, and all others at the end in one lump."""
    plan = Interleaving([], [])
    plan.offer(range(23))
    turns = 0
    while (turn := plan.next_turn()) is not None:
        assert (turn.whole, turn.most) == (False, 15)
        plan.take([7] * 15)
        turns += 1
    assert turns == 4
    plan.end_text()
    last = plan.next_turn()
    assert last is not None and last.whole and last.parts[-1] == ("text", (20, 21, 22))
    assert last.most == 20 * 23 - 4 * 16
