"""Seconds that a device spent between two places of the code, without waiting for it there."""

from __future__ import annotations

import time
from itertools import pairwise

import torch


class Spans:
    """Marks on the stream that is current at each of them; on a CPU, times of the clock. Begins with a mark."""

    def __init__(self, device: torch.device) -> None:
        self._on_cuda = device.type == "cuda"
        self._events: list[torch.cuda.Event] = []
        self._times_s: list[float] = []
        self.mark()

    def mark(self) -> None:
        """The end of a span; launches nothing that has to be waited for."""
        if self._on_cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._events.append(event)
        else:
            self._times_s.append(time.monotonic())

    def seconds(self) -> list[float]:
        """Of each span; waits for the device, so ask once all else is done."""
        if self._on_cuda:
            self._events[-1].synchronize()
            return [begin.elapsed_time(end) / 1e3 for begin, end in pairwise(self._events)]
        return [end_s - begin_s for begin_s, end_s in pairwise(self._times_s)]
