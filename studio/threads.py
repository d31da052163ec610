"""How many CPU threads the workers of the models take where nobody says, and how those wait. Starts none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Part = Literal["lm", "token2wav"]
BESIDE_GPU: dict[Part, int] = {"lm": 1, "token2wav": 2}
"""What a worker computes itself where the GPU does the rest: a few small arrays a step, and an uploaded clip."""


def thread_count(part: Part, values: Mapping[str, Any], device: str, cores: int) -> int:
    """values: rows of the settings table. On a CPU the LM takes half of the cores, and token2wav what that leaves."""
    if wanted := values.get(f"{part}_threads"):
        return int(wanted)
    if device != "cpu":
        return BESIDE_GPU[part]
    lm = int(values.get("lm_threads") or max(1, cores // 2))
    return lm if part == "lm" else max(1, cores - lm)


def quiet_environment(threads: int) -> dict[str, str]:
    """Variables for a program whose device is a GPU: so many threads, which sleep while they wait.

    By default OpenMP's keep turning for some milliseconds after each array that they worked on, on cores that the other
    worker launches its kernels from. They are read when torch is loaded.
    """
    count = str(threads)
    return {
        "OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count, "OPENBLAS_NUM_THREADS": count,
        "OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0",
    }  # fmt: skip
