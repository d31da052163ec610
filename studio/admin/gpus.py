"""Memory and use of the GPUs by part of the studio, as the driver (NVML) tells. Changes nothing."""

from __future__ import annotations

import importlib
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Any

MB = 1e6
OTHERS = "others"
"""Other programs, the driver's own, and in a container everything: process ids there are not the driver's."""


def load_nvml() -> Any:
    """The module of nvidia-ml-py, started. Raises ImportError without it, its NVMLError without a driver."""
    nvml = importlib.import_module("pynvml")
    nvml.nvmlInit()
    return nvml


class GpuMeter:
    """Owner: whoever looks, one at a time. pids: of each part of the studio now."""

    def __init__(
        self, pids: Callable[[], Mapping[str, Collection[int]]], load: Callable[[], Any] = load_nvml
    ) -> None:
        self._pids = pids
        self._nvml: Any = None
        self._seen_us: dict[int, int] = {}
        try:
            self._nvml = load()
        except Exception:  # no package, no library, no driver: no GPU of this studio's
            return

    def look(self) -> dict[str, Any]:
        """gpus: name, memory_mb, used_mb, use_ratio and parts, each with memory_mb and use_ratio; reason: why none is
        shown though a driver is there."""
        if self._nvml is None:
            return {"gpus": [], "reason": ""}
        try:
            count = self._nvml.nvmlDeviceGetCount()
            return {"gpus": [self._gpu(index) for index in range(count)], "reason": ""}
        except self._nvml.NVMLError as error:
            return {"gpus": [], "reason": str(error)}

    def _gpu(self, index: int) -> dict[str, Any]:
        nvml, handle = self._nvml, self._nvml.nvmlDeviceGetHandleByIndex(index)
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        running = self._or(nvml.nvmlDeviceGetComputeRunningProcesses, (), handle)
        held = {process.pid: process.usedGpuMemory or 0 for process in running}
        uses = self._uses(index, handle)
        parts: list[dict[str, Any]] = []
        for name, pids in self._pids().items():
            if mine := held.keys() & set(pids):
                use = None if uses is None else sum(uses.get(pid, 0.0) for pid in mine)
                parts.append(_part(name, sum(held[pid] for pid in mine), use))
        parts.append(_part(OTHERS, max(0, memory.used - sum(part["bytes"] for part in parts)), None))
        rates = self._or(nvml.nvmlDeviceGetUtilizationRates, None, handle)
        name = nvml.nvmlDeviceGetName(handle)
        return {
            "name": name.decode() if isinstance(name, bytes) else name,
            "memory_mb": memory.total / MB, "used_mb": memory.used / MB,
            "use_ratio": None if rates is None else rates.gpu / 100,
            "parts": [
                {"name": part["name"], "memory_mb": part["bytes"] / MB, "use_ratio": part["use"]} for part in parts
            ],
        }  # fmt: skip

    def _uses(self, index: int, handle: Any) -> dict[int, float] | None:
        """Use of each process since the last look, 0 to 1; None where the driver does not tell."""
        since = self._seen_us.get(index, 0)
        samples = self._or(self._nvml.nvmlDeviceGetProcessUtilization, None, handle, since)
        if samples is None:
            return None
        of_pid: dict[int, list[float]] = defaultdict(list)
        for sample in samples:
            if sample.timeStamp > since:
                of_pid[sample.pid].append(sample.smUtil / 100)
                self._seen_us[index] = max(self._seen_us.get(index, 0), sample.timeStamp)
        return {pid: sum(uses) / len(uses) for pid, uses in of_pid.items()}

    def _or(self, ask: Callable[..., Any], usual: Any, *given: Any) -> Any:
        """What the driver answers; the usual where this GPU does not tell."""
        try:
            return ask(*given)
        except self._nvml.NVMLError:
            return usual


def _part(name: str, held_bytes: int, use: float | None) -> dict[str, Any]:
    return {"name": name, "bytes": held_bytes, "use": use}
