"""Arrays that cross to our other process through memory that both have; their message goes over the channel.

A pipe takes 12 MB, one second of sound of 128 rows, in 200-kB pieces, each copied twice and waited for by both ends.
There is one shelf a worker: whoever asked takes what was put there before asking again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import numpy as np

from studio.speech import Float32

MOST_AT_ONCE = 512
"""Arrays in one call; Linux takes 1024."""


class ShelfWriter:
    """The worker's end; a system other than Linux has no such memory. Owner: one thread at a time."""

    def __init__(self) -> None:
        self._file = os.memfd_create("sound") if hasattr(os, "memfd_create") else None

    @property
    def path(self) -> str:
        """By which another process of the same user finds it; empty if there is none."""
        return "" if self._file is None else f"/proc/{os.getpid()}/fd/{self._file}"

    def put(self, arrays: Sequence[Float32]) -> list[int]:
        """Put arrays there in place of those before; gives their lengths, by which they are taken."""
        assert self._file is not None, "whoever has no path asks for nothing on the shelf"
        _whole(os.pwritev, self._file, arrays)
        return [len(array) for array in arrays]


class ShelfReader:
    """The other end. Raises OSError where that process cannot be reached so."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDONLY)

    def take(self, lengths: Sequence[int]) -> list[Float32]:
        """The arrays that were put there: copies, each in memory of its own."""
        arrays = [np.empty(length, np.float32) for length in lengths]
        _whole(os.preadv, self._file, arrays)
        return arrays

    def close(self) -> None:
        os.close(self._file)


def _whole(move: Callable[..., int], file: int, arrays: Sequence[Float32]) -> None:
    """Read or write all arrays behind each other, however few bytes a call moves. Raises EOFError at the end."""
    offset, left = 0, [array.view(np.uint8).data for array in arrays if len(array)]
    while left:
        moved = move(file, left[:MOST_AT_ONCE], offset)
        if not moved:
            raise EOFError("less lies on the shelf than was asked for")
        offset += moved
        while left and moved >= len(left[0]):
            moved -= len(left.pop(0))
        if left:
            left[0] = left[0][moved:]
