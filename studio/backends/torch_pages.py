"""Who gets pages of the flow's pool when there are too few: rows go, wait for a later step, or give theirs back.

A row that gave its pages back begins anew behind its prompt, in the same few packed steps as a prompt; nothing of it
is lost but time. It computes nothing itself; `torch_rows.py` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from studio.backends.torch_row import TorchRow
from studio.models.flow.paged import PagedFlow, PagedState
from studio.models.flow.sizes import BLOCK_FRAMES, NOISE_FRAMES
from studio.protocols import Clock, RowStep

IDLE_S = 2.0
"""A row that had no step for so long counts as idle: its listener does not read, or has much in hand."""


class PageTurns:
    """The order in which rows get pages. Owner: token2wav's one thread.

    rows: all open ones by id, in the order of their opening. rewind: gives a row's pages back. evict: gives those of
    voices that no row uses back.
    """

    def __init__(
        self,
        flow: PagedFlow,
        rows: Mapping[str, TorchRow],
        rewind: Callable[[TorchRow], None],
        evict: Callable[[], object],
        clock: Clock,
    ) -> None:
        self._flow = flow
        self._rows = rows
        self._rewind = rewind
        self._evict = evict
        self._clock = clock

    @property
    def free(self) -> int:
        return self._flow.pool.figures().free

    def waiting(self, steps: Sequence[RowStep]) -> list[RowStep]:
        """Which of the steps are put off, since there are no pages for them beside the others.

        Last steps never are: they end with all pages of their rows free. The others get what is left in the order
        given; with nothing left, the longest open of them may take from those opened later, so that one always gets on
        and no two take from each other in turn.
        """
        now_s = self._clock()
        for step in steps:
            self._rows[step.row_id].stepped_s = now_s
        needed = {step.row_id: self.needed(step) for step in steps}
        if sum(needed.values()) <= self.free:
            return []
        self._evict()
        left = self.free - sum(needed[step.row_id] for step in steps if step.final)
        going = any(step.final for step in steps)
        put_off = []
        for step in (step for step in steps if not step.final):
            if needed[step.row_id] <= max(0, left):
                left -= needed[step.row_id]
                going = True
            else:
                put_off.append(step)
        if put_off and not going:
            age = {row_id: number for number, row_id in enumerate(self._rows)}
            open_longest = min(put_off, key=lambda step: age[step.row_id])
            if self.make_room(needed[open_longest.row_id], self._idle_and_later(open_longest.row_id)):
                put_off.remove(open_longest)
        return put_off

    def fitting(self, steps: Sequence[RowStep]) -> list[RowStep]:
        """The leading steps that the free pages are enough for; at least one, for which others give theirs back."""
        left, fitting = self.free, []
        for step in steps:
            left -= self.needed(step)
            if left < 0:
                break
            fitting.append(step)
        if fitting or not steps:
            return fitting
        row = self._rows[steps[0].row_id]
        if not self.make_room(self.needed(steps[0]), self.others(row)):
            row.release()  # longer than the whole pool
        return [steps[0]]

    def needed(self, step: RowStep) -> int:
        """Pages that a step takes; none for a row so long that the flow will refuse it."""
        row = self._rows[step.row_id]
        if not isinstance(row.flow, PagedState):
            return 0
        pages = self._flow.pages_needed(row.flow, row.new_count(step), step.final)
        return pages if row.flow.frames + pages * BLOCK_FRAMES <= NOISE_FRAMES else 0

    def make_room(self, pages: int, givers: Iterable[TorchRow]) -> bool:
        """Have rows give their pages back, one after the other, until so many are free; whether they are.

        Nobody gives any if all together would not do.
        """
        givers = list(givers)
        if self.free + sum(map(self._own, givers)) < pages:
            return False
        for row in givers:
            if self.free >= pages:
                break
            self._rewind(row)
        return self.free >= pages

    def others(self, row: TorchRow | None = None) -> list[TorchRow]:
        """All rows but one that have pages of their own: the idle first, then those opened last."""
        others = [
            other for other in reversed(list(self._rows.values())) if other is not row and self._own(other)
        ]
        return sorted(others, key=lambda other: not self._idle(other))

    def _idle_and_later(self, row_id: str) -> list[TorchRow]:
        row, rows = self._rows[row_id], list(self._rows.values())
        later = rows[rows.index(row) + 1 :]
        return [other for other in self.others(row) if self._idle(other) or other in later]

    def _idle(self, row: TorchRow) -> bool:
        return self._clock() - row.stepped_s > IDLE_S

    def _own(self, row: TorchRow) -> int:
        """Pages that a row would give back."""
        return row.flow.bytes // self._flow.page_bytes if isinstance(row.flow, PagedState) else 0
