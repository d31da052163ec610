"""Who hears what in which order: balanced over raters, drawn from the design's seed. Pure; knows no sound.

The same design and rater number give the same plan. Positions are balanced by Latin squares over blocks of raters;
which letter of the square stands for which condition is drawn anew for each block and trial.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random
from typing import Any

from studio.listening.answers import Kind, Role
from studio.listening.design import GOLD, REFERENCE, Design


@dataclass(frozen=True, slots=True)
class Trial:
    """One question. slots: condition ids as shown, first button first; x: of ABX, the slot that X repeats.

    reference: condition id of the clip that is played as the named reference, "" for none. wanted: what a trap tells
    the rater to choose.
    """

    role: Role
    item: str
    slots: tuple[str, ...]
    x: int | None = None
    reference: str = ""
    wanted: float | None = None

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> Trial:
        return cls(**(given | {"role": Role(given["role"]), "slots": tuple(given["slots"])}))


def latin_row(letters: int, row: int) -> list[int]:
    """A row of a Williams square: over all rows each letter stands once in each place.

    For an even number of letters each also follows each other letter once.
    """
    zigzag = [place // 2 if place % 2 == 0 else letters - 1 - place // 2 for place in range(letters)]
    return [(letter + row) % letters for letter in zigzag]


def balanced(letters: Sequence[str], rater: int, draw: str) -> tuple[str, ...]:
    """The letters in this rater's order: over a block of len(letters) raters each is once in each place."""
    count = len(letters)
    shuffled = list(letters)
    rng = Random(f"{draw}/{rater // count}")
    rng.shuffle(shuffled)
    rows = list(range(count))
    rng.shuffle(rows)  # else the next rater's order would follow from this one's
    return tuple(shuffled[place] for place in latin_row(count, rows[rater % count]))


def trials_of(design: Design, items: int) -> int:
    """How many trials a plan over so many sentences has at most; nothing is drawn."""
    rated = max(0, items - design.training)
    letters = len(design.rated)
    each = {"one": 1 if design.coverage == "latin" else letters, "pair": letters * (letters - 1) // 2, "all": 1}
    extras = design.traps + design.gold + design.repeats
    return min(items, design.training) + design.rounds * rated * each[design.shape] + extras


def plan(design: Design, items: Sequence[str], rater: int) -> tuple[Trial, ...]:
    """All trials of the rater with this number (from 0), training first."""
    draw = f"{design.seed}/{design.kind}"
    trained, rated = list(items[: design.training]), list(items[design.training :])
    training = [_one_of(design, item, rater, draw) for item in trained]
    rounds = [
        trial
        for number in range(design.rounds)
        for trial in _round(design, rated, rater, f"{draw}/round {number}")
    ]
    rng = Random(f"{draw}/extras/{rater}")
    for extra in [*_traps(design, rated, rng), *_golds(design, rated, rng)]:
        rounds.insert(rng.randint(min(1, len(rounds)), len(rounds)), extra)
    _add_repeats(design, rounds, rng)
    return (*training, *rounds)


def _round(design: Design, items: Sequence[str], rater: int, draw: str) -> list[Trial]:
    if design.shape == "one":
        return _singles(design, items, rater, draw)
    order = _shuffled(items, f"{draw}/items/{rater}")
    if design.shape == "all":
        return [_all_of(design, item, rater, draw) for item in order]
    trials = [
        _pair(design, pair, item, rater, draw) for item in order for pair in combinations(design.rated, 2)
    ]
    return _shuffled(trials, f"{draw}/pairs/{rater}")


def _singles(design: Design, items: Sequence[str], rater: int, draw: str) -> list[Trial]:
    """Blocks that hold each item once; an item's condition goes on by one from block to block, rater to rater."""
    count = len(design.rated)
    blocks = 1 if design.coverage == "latin" else count
    first = _shuffled(items, f"{draw}/items")
    cycles = {item: balanced(design.rated, rater, f"{draw}/{item}") for item in items}
    trials: list[Trial] = []
    for block in range(blocks):
        places = {item: (first.index(item) + block) % count for item in items}
        order = _shuffled(items, f"{draw}/block {block}/{rater}")
        if trials and len(order) > 1 and trials[-1].item == order[0]:
            order = [*order[1:], order[0]]  # never the same sentence twice running
        trials += [_single(design, item, cycles[item][places[item]]) for item in order]
    return trials


def _single(design: Design, item: str, condition: str, role: Role = Role.TEST) -> Trial:
    reference = REFERENCE if design.reference == "voice" else design.reference
    heard = f"{reference}:{condition}" if design.reference == "voice" else reference
    return Trial(role, item, (condition,), reference=heard if design.kind is Kind.SIMILARITY else "")


def _pair(design: Design, pair: tuple[str, str], item: str, rater: int, draw: str) -> Trial:
    """Two raters running hear a pair in both orders; which of them first is drawn, and so is X."""
    rng = Random(f"{draw}/{item}/{pair}/{rater // 2}")
    flipped = (rng.random() < 0.5) != bool(rater % 2)
    slots = pair[::-1] if flipped else pair
    # X is drawn for each rater, on its own: an order that helped to guess it would make ABX easier than chance.
    x = Random(f"{draw}/x/{item}/{pair}/{rater}").randrange(2) if design.kind is Kind.ABX else None
    return Trial(Role.TEST, item, slots, x)


def _all_of(design: Design, item: str, rater: int, draw: str) -> Trial:
    named = design.reference if design.kind is Kind.MUSHRA else ""
    return Trial(Role.TEST, item, balanced(design.rated, rater, f"{draw}/{item}"), reference=named)


def _one_of(design: Design, item: str, rater: int, draw: str) -> Trial:
    """One trial about an item, as training."""
    rng = Random(f"{draw}/training/{item}/{rater}")
    made = {
        "one": lambda: _single(design, item, rng.choice(design.rated)),
        "pair": lambda: _pair(design, tuple(rng.sample(design.rated, 2)), item, rater, draw),  # type: ignore[arg-type]
        "all": lambda: _all_of(design, item, rater, draw),
    }[design.shape]()
    return Trial(Role.TRAINING, item, made.slots, made.x, made.reference)


def _traps(design: Design, items: Sequence[str], rng: Random) -> list[Trial]:
    """Ordinary trials that tell the rater what to choose."""
    traps = []
    for _ in range(design.traps):
        base = _one_of(design, rng.choice(items), rng.randrange(2**16), str(rng.random()))
        traps.append(Trial(Role.TRAP, base.item, base.slots, base.x, base.reference, _told(design.kind, rng)))
    return traps


def _told(kind: Kind, rng: Random) -> float:
    if kind in (Kind.AB, Kind.ABX):
        return float(rng.randrange(2))  # the button, first or second
    if kind in (Kind.MUSHRA, Kind.MUSHRA_NMR):
        return float(rng.randrange(10, 91, 10))
    if kind is Kind.INTELLIGIBILITY:
        return float(rng.randrange(100, 1000))  # a number to type
    low, high = {Kind.MOS: (1, 5), Kind.CMOS: (-3, 3), Kind.SIMILARITY: (1, 4)}[kind]
    return float(rng.randint(low, high))


def _golds(design: Design, items: Sequence[str], rng: Random) -> list[Trial]:
    """A spoilt clip alone, or beside what it was made of."""
    golds = []
    for _ in range(design.gold):
        slots: tuple[str, ...] = (GOLD,)
        if design.shape == "pair":
            slots = tuple(rng.sample((design.rated[0], GOLD), 2))
        x = rng.randrange(2) if design.kind is Kind.ABX else None
        golds.append(Trial(Role.GOLD, rng.choice(items), slots, x))
    return golds


def _add_repeats(design: Design, trials: list[Trial], rng: Random) -> None:
    """Ask some trials of the first half again in the second, shown in another order."""
    half = max(1, len(trials) // 2)
    asked = [trial for trial in trials[:half] if trial.role is Role.TEST]
    for trial in rng.sample(asked, min(design.repeats, len(asked))):
        slots = list(trial.slots)
        if len(slots) == 2:
            slots.reverse()
        else:
            rng.shuffle(slots)
        x = rng.randrange(2) if trial.x is not None else None
        again = Trial(Role.REPEAT, trial.item, tuple(slots), x, trial.reference)
        trials.insert(rng.randint(min(half + 1, len(trials)), len(trials)), again)


def _shuffled(values: Sequence[Any], draw: str) -> list[Any]:
    found = list(values)
    Random(draw).shuffle(found)
    return found
