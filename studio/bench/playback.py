"""What a listener would have heard: the page's player, over the times at which sound came. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LEAST_REBUFFER_S = 0.2
MOST_REBUFFER_S = 1.0  # both as in assets/web/worklet.js


@dataclass(frozen=True, slots=True)
class Arrival:
    """Sound that came. at_s: seconds since the request was sent; audio_s: seconds of sound in it."""

    at_s: float
    audio_s: float


@dataclass(frozen=True, slots=True)
class Heard:
    """How a play went. first_sound_s: since the request; dry_s: silence in between, all gaps together."""

    first_sound_s: float
    underruns: int
    dry_s: float


def play(arrivals: Sequence[Arrival], prebuffer_s: float, ended_s: float) -> Heard:
    """Play as the page does: begin with so much in hand, or when no more comes; after a gap hold twice as much.

    Args:    arrivals: at least one, in order of time. ended_s: when the reply ended.
    """
    first_s: float | None = None
    until_s = 0.0  # when all that was let out so far has been played
    held_s, needed_s, underruns, dry_s = 0.0, prebuffer_s, 0, 0.0
    for number, arrival in enumerate(arrivals):
        if first_s is not None and not held_s and arrival.at_s > until_s:
            underruns += 1
            needed_s = min(max(2 * needed_s, LEAST_REBUFFER_S), MOST_REBUFFER_S)
        elif first_s is not None and not held_s:
            until_s += arrival.audio_s
            continue
        held_s += arrival.audio_s
        last = number == len(arrivals) - 1
        if held_s < needed_s and not last:
            continue
        resumed_s = arrival.at_s if held_s >= needed_s else ended_s
        if first_s is None:
            first_s = resumed_s
        else:
            dry_s += resumed_s - until_s
        until_s, held_s = resumed_s + held_s, 0.0
    assert first_s is not None
    return Heard(first_s, underruns, dry_s)
