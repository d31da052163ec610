"""GPU memory and use by part, from a driver that is scripted."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from studio.admin.gpus import GpuMeter
from studio.admin.monitor import HISTORY, Monitor
from studio.admin.processes import ProcessMeter
from studio.backends.fake import ManualClock
from tests.unit.test_admin import StillEngine

PIDS = {"web": {1}, "lm": {10, 11}, "token2wav": {20}}


class NVMLError(Exception):
    pass


@dataclass
class ScriptedNvml:
    """As pynvml speaks; silent: names of what it refuses to tell."""

    memory: dict[int, int] = field(default_factory=lambda: {11: 3_000_000, 20: 1_000_000, 99: 500_000})
    uses: list[tuple[int, int, int]] = field(default_factory=list)  # pid, percent, microseconds
    silent: set[str] = field(default_factory=set)
    NVMLError = NVMLError

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and name in object.__getattribute__(self, "silent"):
            def refuse(*_: object) -> None:
                raise NVMLError("Not Supported")

            return refuse
        return object.__getattribute__(self, name)

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, handle: int) -> bytes:
        return b"Scripted 1"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(total=10_000_000, used=5_000_000)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=held) for pid, held in self.memory.items()]

    def nvmlDeviceGetProcessUtilization(self, handle: int, since: int) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=pid, smUtil=percent, timeStamp=at) for pid, percent, at in self.uses]

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(gpu=80)


def meter(nvml: ScriptedNvml) -> GpuMeter:
    return GpuMeter(lambda: PIDS, lambda: nvml)


def by_name(look: dict[str, Any]) -> dict[str, tuple[float, float | None]]:
    (gpu,) = look["gpus"]
    return {part["name"]: (part["memory_mb"], part["use_ratio"]) for part in gpu["parts"]}


def test_memory_and_use_are_told_by_part_and_the_rest_is_others() -> None:
    nvml = ScriptedNvml(uses=[(11, 60, 5), (11, 40, 6), (20, 30, 5), (99, 9, 5)])
    looked = meter(nvml).look()
    assert by_name(looked) == {"lm": (3.0, 0.5), "token2wav": (1.0, 0.3), "others": (1.0, None)}
    (gpu,) = looked["gpus"]
    assert (gpu["name"], gpu["memory_mb"], gpu["used_mb"], gpu["use_ratio"]) == ("Scripted 1", 10.0, 5.0, 0.8)


def test_use_is_that_since_the_last_look() -> None:
    nvml = ScriptedNvml(uses=[(11, 60, 5)])
    looking = meter(nvml)
    looking.look()
    nvml.uses.append((11, 20, 9))
    assert by_name(looking.look())["lm"] == (3.0, 0.2)


def test_what_a_gpu_does_not_tell_is_left_open() -> None:
    nvml = ScriptedNvml(silent={"nvmlDeviceGetProcessUtilization", "nvmlDeviceGetComputeRunningProcesses"})
    assert by_name(meter(nvml).look()) == {"others": (5.0, None)}
    nvml.silent = {"nvmlDeviceGetCount"}
    assert meter(nvml).look() == {"gpus": [], "reason": "Not Supported"}


@pytest.mark.parametrize("error", [ImportError("no pynvml"), NVMLError("Driver Not Loaded")])
def test_machine_without_a_gpu_says_so(error: Exception) -> None:
    def load() -> None:
        raise error

    looking = GpuMeter(lambda: PIDS, load)
    assert looking.look() == {"gpus": [], "reason": ""}


def test_monitor_shows_the_gpu_and_keeps_its_history() -> None:
    clock = ManualClock()
    monitor = Monitor(StillEngine(), ProcessMeter(dict), clock, clock.sleep, meter(ScriptedNvml()))
    asyncio.run(monitor.sample())
    shown = json.loads(monitor.live)
    assert shown["gpus"]["gpus"][0]["used_mb"] == 5.0
    assert {"gpu_mb", "gpu_use"} < set(HISTORY)
    assert monitor.history("10m")["gpu_mb"] == [5.0] and monitor.history("10m")["gpu_use"] == [0.8]
    assert monitor.own_gpu_mb == 4.0  # of others nothing
