"""What a host's cores gave to processes while something was measured, and what was withheld; who runs on which."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from studio.bench.rows import Row

CGROUP = Path("/sys/fs/cgroup")


def quota(cgroup: Path = CGROUP) -> Row:
    """Cores that this container may use on average, whatever it sees; nothing where no bound is told."""
    for name in ("cpu.max", "cpu/cpu.cfs_quota_us"):
        with contextlib.suppress(OSError):
            told = (cgroup / name).read_text().split()
            if told and told[0] not in ("max", "-1"):
                period = told[1] if len(told) > 1 else (cgroup / "cpu/cpu.cfs_period_us").read_text()
                return {"cpu_quota": round(int(told[0]) / int(period), 2)}
    return {}


def withheld(cgroup: Path = CGROUP) -> dict[str, int]:
    """Periods in which this container had used its share and stood still, and for how long in all, since it began."""
    for name in ("cpu.stat", "cpu/cpu.stat"):
        with contextlib.suppress(OSError):
            told = dict(line.split() for line in (cgroup / name).read_text().splitlines())
            us = int(told.get("throttled_usec", int(told.get("throttled_time", 0)) // 1000))
            return {"nr_throttled": int(told.get("nr_throttled", 0)), "throttled_ms": us // 1000}
    return {}


@dataclass(slots=True)
class Host:
    """What the programs of these process ids, with all that they started, took of the host's cores."""

    pids: Mapping[str, int]
    row: Row = field(default_factory=dict)

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """`row` tells of the block: cores busy on average, by program, and what was withheld."""
        before, used, began_s = withheld(), self._used_s(), time.monotonic()
        yield
        wall_s = time.monotonic() - began_s
        busy = {f"{name}_cores": round((s - used.get(name, 0.0)) / wall_s, 2) for name, s in self._used_s().items()}
        self.row = {**busy, **{name: value - before.get(name, 0) for name, value in withheld().items()}}

    def _used_s(self) -> dict[str, float]:
        return {name: sum(sum(p.cpu_times()[:2]) for p in family(pid)) for name, pid in self.pids.items()}


def family(pid: int) -> list[psutil.Process]:
    first = psutil.Process(pid)
    return [first, *first.children(recursive=True)]


@contextlib.contextmanager
def split(pids: Sequence[int]) -> Iterator[None]:
    """Each of these programs on a share of the cores of its own, all threads; back on all of them after."""
    cores = sorted(os.sched_getaffinity(0))
    share = max(1, len(cores) // len(pids))
    for place, pid in enumerate(pids):
        _bind(pid, set(cores[place * share : (place + 1) * share] or cores))
    try:
        yield
    finally:
        for pid in pids:
            _bind(pid, set(cores))


def _bind(pid: int, cores: set[int]) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in family(pid):
            for thread in process.threads():
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setaffinity(thread.id, cores)
