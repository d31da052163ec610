"""Arrays on their way to a device: the host writes into pinned memory that was taken once, and waits for no copy.

To take pinned memory costs milliseconds and may wait for all that the device has to do: nothing here takes any later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor

PIECES = 3
"""A copy lies behind all that was launched before it; with three the host is two packs of work ahead of the device."""


class Marker(Protocol):
    """`torch.cuda.Event`: a place on the device's stream, and a wait until it was passed."""

    def record(self) -> None: ...

    def synchronize(self) -> None: ...


class Uploads:
    """Pieces of host memory used in turn, each written again only once the device has read it. Owner: one thread.

    Args:    rows, width: most that is sent at once. marker: makes what a copy is waited for by; None on a CPU.
    """

    def __init__(
        self,
        rows: int,
        width: int,
        dtype: torch.dtype,
        device: torch.device,
        marker: Callable[[], Marker] | None = None,
    ) -> None:
        on_gpu = device.type == "cuda"
        if on_gpu and marker is None:
            marker = waiting_event
        self._pieces = [torch.zeros(rows, width, dtype=dtype, pin_memory=on_gpu) for _ in range(PIECES)]
        self._read = [marker() if marker else None for _ in range(PIECES)]
        self._sent = [False] * PIECES
        self._at = 0

    def claim(self) -> NDArray[Any]:
        """The next piece [rows, width], to be written before `send`; what it held is still there."""
        self._at = (self._at + 1) % PIECES
        read = self._read[self._at]
        if read is not None and self._sent[self._at]:
            read.synchronize()
        return self._pieces[self._at].numpy()

    def send(self, to: Tensor) -> None:
        """Copy the first len(to) rows of the claimed piece to the device, in the order of its stream."""
        to.copy_(self._pieces[self._at][: len(to)], non_blocking=True)
        read = self._read[self._at]
        if read is not None:
            read.record()
            self._sent[self._at] = True


def waiting_event() -> torch.cuda.Event:
    """Where the host waits, it sleeps: to spin would take a core from the speech LM, to be woken takes some 50 us."""
    return torch.cuda.Event(blocking=True)
