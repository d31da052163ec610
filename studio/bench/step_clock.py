"""How long a step takes that a device does for the host: until it is done, and until the host is free again."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch


def wait(device: torch.device | str) -> None:
    """Until the device has done all that it was told; a CPU has."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()


def seconds_a_step(
    step: Callable[[], None], device: torch.device | str, steps: int, unmeasured: int
) -> tuple[float, float]:
    """Seconds of a step until the device is done, and until the host is free, mean of so many after some unmeasured."""
    for _ in range(unmeasured):
        step()
    wait(device)
    began_s = time.perf_counter()
    for _ in range(steps):
        step()
    host_s = time.perf_counter() - began_s
    wait(device)
    return (time.perf_counter() - began_s) / steps, host_s / steps
