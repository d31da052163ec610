"""Memory of paged streams: what the flow keeps of one block of 50 mel frames is a page; all are taken at once.

It counts who holds which page; what is written into them, and by whom, is `view.PagedView`'s business.

Axes: S steps of the solve, L layers, P pages, G lanes (guidance branches), H heads, T frames of a block, D width of a
head, C channels.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from studio.models.flow.history import RateMemory

NOTHING, SCRATCH = 0, 1
"""Page ids that nobody is given: what stands before a stream's first block (zeros), and where padding is written."""
RESERVED = 2


class PoolFull(torch.OutOfMemoryError):
    """Fewer pages are free than a step needs; nothing has been taken."""


@dataclass(frozen=True, slots=True)
class PagedRate:
    """Sizes of what a page holds for the layers of one rate, and the types it is kept in."""

    memory: RateMemory
    block: int  # tokens or frames of a page
    steps: int
    lanes: int
    storage: torch.dtype  # of keys and values
    edges: torch.dtype  # of convolution edges: what the layers compute in

    @property
    def page_bytes(self) -> int:
        memory = self.memory
        kept = 2 * memory.layers * memory.heads * memory.head_dim * self.block * self.storage.itemsize
        taps = sum((conv.taps - 1) * conv.channels_in for conv in memory.convolutions)
        return self.steps * self.lanes * (kept + taps * self.edges.itemsize)


class RateStore:
    """The pages of one rate: keys and values by step and layer, edges by convolution."""

    def __init__(self, rate: PagedRate, pages: int, device: torch.device) -> None:
        memory = rate.memory
        tile = (memory.heads, rate.block, memory.head_dim)
        size = (rate.steps, memory.layers, pages, rate.lanes, 2, *tile)
        sizes = (rate.steps, pages, rate.lanes)
        self.keys_values = torch.empty(size, dtype=rate.storage, device=device)  # [S, L, P, G, 2, H, T, D]
        self.edges = [
            torch.empty((*sizes, conv.taps - 1, conv.channels_in), dtype=rate.edges, device=device)
            for conv in memory.convolutions
        ]
        # What lies in fresh memory may be no number, and a weight of zero times that is none either.
        self.keys_values.view(torch.uint8)[:, :, :RESERVED].zero_()
        for edge in self.edges:
            edge[:, :RESERVED].zero_()


@dataclass(frozen=True, slots=True)
class PoolFigures:
    """Pages that may be given out, those free now, and those that more than one holder has (prompts in use)."""

    pages: int
    free: int
    shared: int
    page_bytes: int


class PagePool:
    """A bounded set of pages and how many hold each. Taken and released by one thread; released by others as well,
    since a stream that nobody remembers gives its pages back when it is collected.

    Args:    pages: to be given out, at least one.
    """

    def __init__(self, rates: Sequence[PagedRate], pages: int, device: torch.device) -> None:
        if pages < 1:
            raise ValueError(f"a pool of {pages} pages holds nothing")
        self.stores = [RateStore(rate, pages + RESERVED, device) for rate in rates]
        self.page_bytes = sum(rate.page_bytes for rate in rates)
        self.pages = pages
        self._free = list(range(pages + RESERVED - 1, RESERVED - 1, -1))
        self._holders = [0] * (pages + RESERVED)
        self._shared = 0
        # A collection may begin within any line, so the thread that has the lock may come again.
        self._lock = threading.RLock()

    def figures(self) -> PoolFigures:
        return PoolFigures(self.pages, len(self._free), self._shared, self.page_bytes)

    def take(self, count: int) -> list[int]:
        """Page ids for one holder. Raises PoolFull if there are not so many."""
        with self._lock:
            if count > len(self._free):
                raise PoolFull(f"{count} pages are needed and {len(self._free)} are free")
            taken = [self._free.pop() for _ in range(count)]
            for page in taken:
                self._holders[page] = 1
            return taken

    def share(self, pages: Iterable[int]) -> None:
        """One holder more."""
        with self._lock:
            for page in pages:
                self._holders[page] += 1
                self._shared += self._holders[page] == 2

    def release(self, pages: Iterable[int]) -> None:
        """One holder less; pages without any are free."""
        with self._lock:
            for page in pages:
                self._holders[page] -= 1
                self._shared -= self._holders[page] == 1
                if not self._holders[page]:
                    self._free.append(page)
