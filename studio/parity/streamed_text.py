"""The LM's turns with arriving text: fixture 06_bistream, which lists what upstream's loop feeds at every step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from studio.engine.interleaving import Interleaving
from studio.parity.compare import Line, equal
from studio.parity.fixtures import Fixtures

Fed = list[tuple[str, int]]


def run_bistream(fixtures: Fixtures, name: str) -> Iterator[Line]:
    """Each case: what is fed in which order, what is spoken, and how many draws each turn but the last makes."""
    for case_name, case in fixtures.meta(name)["cases"].items():
        fed, spoken, turns = _ours(case)
        golden_fed, golden_turns = _upstreams(case)
        yield equal(name, f"{case_name} fed", fed, golden_fed)
        yield equal(name, f"{case_name} spoken", spoken, case["spoken"])
        yield equal(name, f"{case_name} turns", turns, golden_turns)


def _ours(case: Mapping[str, Any]) -> tuple[Fed, list[int], list[int]]:
    """Everything fed but for sos and task, the tokens spoken, and the draws of each turn; the case draws for us."""
    plan = Interleaving(case["prompt_text"], case["prompt_speech"])
    left, fill_at = list(case["spoken"]), case["sampler_returns_fill_at_draw"]
    spoken: list[int] = []
    turns: list[int] = []
    draws = 0
    for piece in [*case["text_pieces"], None]:
        if piece is None:
            plan.end_text()
        else:
            plan.offer(piece)
        while (turn := plan.next_turn()) is not None:
            drawn: list[int] = []
            began = draws
            while left and (turn.whole or len(drawn) < turn.most):
                draws += 1
                if draws == fill_at:
                    break
                drawn.append(left.pop(0))
            spoken += drawn
            if turn.whole:
                return [(kind, i) for kind, ids in turn.parts for i in ids], spoken, turns
            turns.append(draws - began)
            plan.take(drawn)
    return [], spoken, turns


def _upstreams(case: Mapping[str, Any]) -> tuple[Fed, list[int]]:
    """What upstream fed up to the task mark, and how many draws came of each feed of text.

    Before the last text it feeds the last spoken token a second time, which the LM never saw in training; that one is
    left out here, as it is by us (docs/decisions/0005).
    """
    fed: Fed = []
    turns: list[int] = []
    for step in case["steps"]:
        inputs = [(str(kind), int(i)) for kind, i in step["inputs"]]
        is_last = ("task", 1) in inputs
        if is_last and fed and inputs[0] == fed[-1] and inputs[0][0] == "speech":
            inputs = inputs[1:]
        fed += [one for one in inputs if one[0] in ("text", "speech")]
        if is_last:
            break
        if any(kind == "text" for kind, _ in inputs):
            turns.append(0)
        turns[-1] += "end_masked" in step  # absent where the fill was forced, without a draw
    return fed, turns
