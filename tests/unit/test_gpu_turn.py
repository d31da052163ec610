"""Workers take memory of one GPU one after the other."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from studio.backends.gpu_turn import gpu_turn


def test_nobody_else_has_a_turn_meanwhile(tmp_path: Path) -> None:
    def is_free() -> bool:
        with (tmp_path / "gpu.lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

    reading, writing = os.pipe()
    with pytest.raises(RuntimeError), gpu_turn(tmp_path, "cuda"):
        assert not is_free()
        if not (forked := os.fork()):
            os.close(writing)
            os.read(reading, 1)  # until the test is over: an engine process that lives on
            os._exit(0)
        raise RuntimeError("of the start")
    assert is_free()
    os.close(writing)
    os.waitpid(forked, 0)
    os.close(reading)


def test_on_a_cpu_nobody_waits(tmp_path: Path) -> None:
    with gpu_turn(tmp_path, "cpu"), gpu_turn(tmp_path, "cpu"):
        assert not list(tmp_path.iterdir())
