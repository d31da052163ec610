"""What a container's quota withheld, in both forms in which Linux tells it, and who runs on which cores."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from studio.bench.cores import Host, quota, split, withheld


def test_a_quota_is_told_in_cores_whichever_control_groups_there_are(tmp_path: Path) -> None:
    assert quota(tmp_path) == {} and withheld(tmp_path) == {}
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert quota(tmp_path) == {}
    (tmp_path / "cpu.max").write_text("1600000 100000\n")
    (tmp_path / "cpu.stat").write_text("usage_usec 5\nnr_periods 9\nnr_throttled 3\nthrottled_usec 4500\n")
    assert quota(tmp_path) == {"cpu_quota": 16.0}
    assert withheld(tmp_path) == {"nr_throttled": 3, "throttled_ms": 4}


def test_the_older_groups_are_read_too(tmp_path: Path) -> None:
    folder = tmp_path / "cpu"
    folder.mkdir()
    (folder / "cpu.cfs_quota_us").write_text("250000\n")
    (folder / "cpu.cfs_period_us").write_text("100000\n")
    (folder / "cpu.stat").write_text("nr_periods 9\nnr_throttled 2\nthrottled_time 7000000\n")
    assert quota(tmp_path) == {"cpu_quota": 2.5}
    assert withheld(tmp_path) == {"nr_throttled": 2, "throttled_ms": 7}


def test_programs_are_on_cores_of_their_own_for_a_while() -> None:
    every = os.sched_getaffinity(0)
    programs = [subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) for _ in range(2)]
    try:
        host = Host({"a": programs[0].pid})
        with host.watched(), split([program.pid for program in programs]):
            shares = [os.sched_getaffinity(program.pid) for program in programs]
        assert shares[0] | shares[1] <= every and (len(every) < 2 or not shares[0] & shares[1])
        assert all(os.sched_getaffinity(program.pid) == every for program in programs)
        assert host.row["a_cores"] >= 0
    finally:
        for program in programs:
            program.kill()
            program.wait()
