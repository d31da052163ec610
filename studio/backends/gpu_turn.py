"""One worker at a time measures the memory of the GPU and takes its share; the others wait for their turn.

vLLM counts what becomes less between its start and its profile as its own need: a pool that another worker takes
meanwhile would be missing in its KV cache, and one as large as ours would leave it none. What another gives back ends
its start with an error.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def gpu_turn(folder: Path, device: str) -> Iterator[None]:
    """Wait until no other worker with this folder is in its turn; a worker that dies ends its own. None on a CPU."""
    if device == "cpu":
        yield
        return
    with (folder / "gpu.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            # Closing would not do: vLLM's engine process may be forked meanwhile, and has the open file too.
            fcntl.flock(file, fcntl.LOCK_UN)
