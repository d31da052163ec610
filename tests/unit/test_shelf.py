"""Sound crosses from a worker to the studio through memory that both have."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest

from studio import shelf
from studio.shelf import ShelfReader, ShelfWriter


@pytest.mark.parametrize("most_bytes", [None, 5])
def test_arrays_are_taken_as_they_were_put(most_bytes: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """However few bytes the system moves in a call, and however many arrays there are."""

    def moving_few(move: Callable[..., int]) -> Callable[..., int]:
        return lambda file, parts, offset: move(file, [parts[0][:most_bytes]], offset)

    if most_bytes:
        for name in ("pwritev", "preadv"):
            monkeypatch.setattr(os, name, moving_few(getattr(os, name)))
    monkeypatch.setattr(shelf, "MOST_AT_ONCE", 2)
    writer = ShelfWriter()
    reader = ShelfReader(writer.path)
    for lengths in ([3, 0, 5, 1], [], [2]):
        arrays = [np.random.default_rng(n).normal(size=n).astype(np.float32) for n in lengths]
        assert writer.put(arrays) == lengths
        taken = reader.take(lengths)
        assert all(np.array_equal(*pair) for pair in zip(arrays, taken, strict=True))
    reader.close()


def test_shelf_with_less_than_was_asked_for_is_an_error_and_no_wait() -> None:
    writer = ShelfWriter()
    writer.put([np.zeros(3, np.float32)])
    with pytest.raises(EOFError):
        ShelfReader(writer.path).take([4])
