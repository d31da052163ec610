"""How token2wav gets along with less memory: rows in smaller batches, caches computed again, shorter hops.

It runs batches and says what was given up; what a row's cache is and which may go, `torch_rows.py` knows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from studio.backends.torch_device import raise_if_lost
from studio.errors import OutOfMemory
from studio.protocols import RowStep, Rung

logger = logging.getLogger(__name__)

Compute = Callable[[Sequence[RowStep]], list[Tensor]]
UNBOUNDED_ROWS = 1 << 16
CALM_RUNS = 64
"""After so many runs that had their memory twice as many rows are tried: a second or two of steps on a GPU."""
RESTART_S = 30.0


class Ladder:
    """Rungs taken since they were last told, and how many rows are computed at once. Owner: token2wav's one thread."""

    def __init__(self) -> None:
        self.most_rows = UNBOUNDED_ROWS
        self._calm = 0
        self._taken: list[Rung] = []

    def went_well(self) -> None:
        """A run had its memory."""
        if self.most_rows < UNBOUNDED_ROWS:
            self._calm += 1
            if self._calm == CALM_RUNS:
                self._calm = 0
                self.most_rows = min(UNBOUNDED_ROWS, 2 * self.most_rows)

    def halve(self, rows: int) -> None:
        """No more than half of so many rows at once, for a while."""
        self.most_rows = max(1, rows // 2)
        self.take("smaller_batch")

    def take(self, rung: Rung) -> None:
        logger.warning("memory is full: %s", rung.replace("_", " "))
        self._calm = 0
        self._taken.append(rung)

    def told(self) -> tuple[Rung, ...]:
        """The rungs taken since the last call."""
        taken, self._taken = tuple(self._taken), []
        return taken


@dataclass(frozen=True, slots=True)
class Runs:
    """Stages of a step, run over as many rows at once as may be.

    joint: whether a row may share a run. relieve: makes room after a run that found none, or raises OutOfMemory.
    fitting: the leading rows of a run that there is room for.
    """

    ladder: Ladder
    joint: Callable[[RowStep], bool]
    relieve: Callable[[Sequence[RowStep]], None]
    fitting: Callable[[Sequence[RowStep]], list[RowStep]] = list

    def computed(
        self, rows: Sequence[RowStep], compute: Compute, stage: str, errors: dict[str, str]
    ) -> dict[str, Tensor]:
        """What a stage gives for each row that goes well; the others are put into errors, each for its own fault.

        compute: of a run, a tensor for each row; it leaves all rows as they were when it fails.
        """
        found: dict[str, Tensor] = {}
        alone: set[str] = set()
        waiting = list(rows)
        while waiting:
            run = self._next(waiting, alone)
            full = False
            try:
                found |= zip((row.row_id for row in run), compute(run), strict=True)
                self.ladder.went_well()
            except torch.OutOfMemoryError:
                full = True
            except Exception as error:
                raise_if_lost(error)
                if len(run) == 1:
                    logger.exception("the %s failed", stage)
                    errors[run[0].row_id] = f"{stage}: {error}"
                alone.update(row.row_id for row in run)
            if full:
                # Out of the handler, whose error holds on to the tensors of the failed try.
                self.relieve(run)
            waiting = [row for row in waiting if row.row_id not in found and row.row_id not in errors]
        return found

    def _next(self, waiting: Sequence[RowStep], alone: Collection[str]) -> list[RowStep]:
        joint = [row for row in waiting if row.row_id not in alone and self.joint(row)]
        return self.fitting(joint[: self.ladder.most_rows]) or [waiting[0]]


def out_of_memory() -> OutOfMemory:
    """For a step to raise when nothing is left to be given up: the worker ends with it and is started again."""
    return OutOfMemory("engine.out_of_memory", seconds=RESTART_S, retry_after_s=RESTART_S)
