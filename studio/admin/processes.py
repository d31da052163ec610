"""CPU and memory of the studio's processes, and which processes they are."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from typing import Any

import psutil


class ProcessMeter:
    """Measures this process and the workers. pids: names and process ids of now; children count with them."""

    def __init__(self, pids: Callable[[], Mapping[str, int]]) -> None:
        self._pids = pids
        self._known: dict[int, psutil.Process] = {}
        self._parts: list[dict[str, Any]] = []
        self.pids: dict[str, frozenset[int]] = {}
        """The processes of each part, as `total` found them."""

    def parts(self) -> list[dict[str, Any]]:
        """name, cpu (cores used since the last look) and rss_mb of each part, as `total` found them."""
        return self._parts

    def total(self) -> dict[str, float]:
        """Look now; cores used and memory of all parts together."""
        self._parts = [self._measure(name, pid) for name, pid in {"web": os.getpid(), **self._pids()}.items()]
        self.pids = {part["name"]: frozenset(part.pop("pids")) for part in self._parts}
        alive = frozenset[int]().union(*self.pids.values())
        self._known = {pid: process for pid, process in self._known.items() if pid in alive}
        return {name: sum(part[name] for part in self._parts) for name in ("cpu", "rss_mb")}

    def memory_mb(self) -> dict[str, float]:
        """Resident memory of each part now; none of a part that is not running."""
        found = {}
        for name, pid in {"web": os.getpid(), **self._pids()}.items():
            with contextlib.suppress(psutil.Error):  # it has just ended
                found[name] = round(sum(p.memory_info().rss for p in _family(pid)) / 1e6, 1)
        return found

    def _measure(self, name: str, pid: int) -> dict[str, Any]:
        part: dict[str, Any] = {"name": name, "cpu": 0.0, "rss_mb": 0.0, "pids": []}
        try:
            whole = _family(pid)
        except psutil.Error:
            return part
        for found in whole:
            process = self._known.setdefault(found.pid, found)
            try:
                part["cpu"] += process.cpu_percent() / 100
                part["rss_mb"] += process.memory_info().rss / 1e6
                part["pids"].append(found.pid)
            except psutil.Error:
                continue  # it has just ended
        return part


def _family(pid: int) -> list[psutil.Process]:
    """A process and its descendants; of ours only itself, for its children are the workers. Raises psutil.Error."""
    process = psutil.Process(pid)
    return [process] if pid == os.getpid() else [process, *process.children(recursive=True)]
