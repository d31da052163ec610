"""Rows of a vocoder in windows, on the host: what each remembers, and what every pass of a step is told of it.

Arithmetic only, no tensors: the counts of samples are known here before a device has computed any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from studio.models.hift.window_geometry import WindowGeometry

SLOTS = 3  # of a row: what it has, and two that the passes of a step write in turn
_UNKNOWN = 1 << 40  # frames: more than any utterance has
SPARE_SLOT = 0  # slot of the rows that fill a launch up


@dataclass(slots=True)
class Lease:
    """A row's place in the pools: three slots, of which every state of the row names one."""

    row: int
    bytes: int
    open: bool = True

    def others(self, slot: int) -> list[int]:
        """The slots of the row without one."""
        first = 1 + SLOTS * self.row
        return [other for other in range(first, first + SLOTS) if other != slot]


@dataclass(slots=True)
class WindowState:
    """What one row's stream remembers; what is on the device lies in a slot of the pools.

    Of a state and its copies one may go on: a step writes to slots that the given state does not name, so that state
    stays good until the step's outcome goes on itself.
    """

    seed: int
    lease: Lease
    slot: int
    frames: int = 0
    samples_given: int = 0
    closed: bool = False

    def copy(self) -> WindowState:
        # By hand, as `moved_on`: dataclasses.replace takes ten times as long, and a step does both for each row.
        return WindowState(
            self.seed, self.lease, self.slot, self.frames, self.samples_given, self.closed
        )

    def become(self, other: WindowState) -> None:
        """Take over where another state of the same row has come to."""
        self.slot, self.frames = other.slot, other.frames
        self.samples_given, self.closed = other.samples_given, other.closed

    def bytes(self) -> int:
        return self.lease.bytes


class Entry(NamedTuple):
    """One row in one pass: what the device is told of it, in this order, and where its new frames begin."""

    read: int = SPARE_SLOT
    write: int = SPARE_SLOT
    seed: int = 0
    before: int = 0
    fresh: int = 0
    total: int = 0
    skipped: int = 0  # samples of the window in front of the new ones
    new: int = 0
    offset: int = 0  # of the first new sample in all that the step gives
    dump: int = 0  # where all others go
    start: int = 0


def moved_on(state: WindowState, count: int, final: bool, geometry: WindowGeometry) -> WindowState:
    """The state behind a step, but for its slot."""
    frames = state.frames + count
    end, total = (frames + geometry.end_frames, frames) if final else (frames, None)
    per_frame = geometry.source.rate
    given = geometry.samples_until(end, total, per_frame)
    return WindowState(state.seed, state.lease, state.slot, frames, given, final)


def passes_of(
    states: Sequence[WindowState], after: Sequence[WindowState], geometry: WindowGeometry, width: int
) -> list[list[Entry]]:
    """The rows of each pass of a step; leaves in `after` the slot that a row's last pass writes.

    after: the states as the step will leave them; width: samples that are kept for each row.
    """
    per_frame = geometry.source.rate
    passes: list[list[Entry]] = []
    start = 0
    for row, (state, later) in enumerate(zip(states, after, strict=True)):
        total = later.frames if later.closed else None
        before, given, read = state.frames, state.samples_given, state.slot
        end = later.frames + (geometry.end_frames if total else 0)
        for number, first in enumerate(range(before, end, geometry.hop)):
            fresh = min(geometry.hop, end - first)
            window = (first + fresh - geometry.hop) * per_frame - geometry.held_back
            until = geometry.samples_until(first + fresh, total, per_frame)
            write = state.lease.others(state.slot)[number % 2]
            if number == len(passes):
                passes.append([])
            passes[number].append(
                Entry(
                    read,
                    write,
                    state.seed,
                    first,
                    fresh,
                    _UNKNOWN if total is None else total,
                    given - window,
                    until - given,
                    row * width + given - state.samples_given,
                    len(states) * width,
                    start + first - before,
                )
            )
            given, read = until, write
        later.slot = read
        start += later.frames - state.frames
    return passes
