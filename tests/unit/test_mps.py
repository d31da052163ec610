"""MPS is started with pipes of this studio's own and ended with it, with a script for its control program.

The script does what is relied on: -d leaves a process behind whose number is in the pipe folder, "quit" ends that one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from studio.doctor.machine import sharing_finding
from studio.engine.mps import CONTROL, gpu_sharing
from studio.errors import SettingsError

SCRIPT = """#!/bin/sh
set -e
cd "$CUDA_MPS_PIPE_DIRECTORY"
if [ "$1" = -d ]; then
  [ -z "$REFUSE" ] || { echo "no permission"; exit 3; }
  echo "started" >>"$JOURNAL"
  mkfifo ready held
  "$0" --serve >/dev/null 2>&1 </dev/null &
  echo $! >nvidia-cuda-mps-control.pid
  read -r word <ready  # else its number would be told while it has no command line yet
elif [ "$1" = --serve ]; then
  echo >ready
  read -r never <>held  # waits without a child that would outlive it
else
  read word
  echo "$word" >>"$JOURNAL"
  [ -n "$STUBBORN" ] || kill "$(cat nvidia-cuda-mps-control.pid)"
fi
"""


CRASH = """
import os, sys
from pathlib import Path
from studio.engine.mps import gpu_sharing
with gpu_sharing("mps", Path(sys.argv[1]), "cuda") as shared:
    print(shared["lm"]["CUDA_MPS_PIPE_DIRECTORY"], flush=True)
    os._exit(9)
"""


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A short one, for names of sockets are bounded; pytest's own holds the user's name."""
    with tempfile.TemporaryDirectory(prefix="mps-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the program was told, line by line."""
    script, journal = tmp_path / "bin" / CONTROL, tmp_path / "journal"
    script.parent.mkdir()
    script.write_text(SCRIPT)
    script.chmod(0o755)
    journal.touch()
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("JOURNAL", str(journal))
    return journal


def pid_of(shared: object) -> int:
    assert isinstance(shared, dict)
    return int(Path(shared["lm"]["CUDA_MPS_PIPE_DIRECTORY"], f"{CONTROL}.pid").read_text())


def is_running(pid: int) -> bool:
    """A zombie of another parent has no command line any more."""
    try:
        return CONTROL.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def wait_gone(pid: int) -> None:
    deadline_s = time.monotonic() + 120
    while is_running(pid) and time.monotonic() < deadline_s:
        os.sched_yield()
    assert not is_running(pid)


def test_nothing_is_started_where_the_gpu_is_had_in_turns_or_there_is_none(control: Path, tmp_path: Path) -> None:
    for wanted, device in (("slices", "cuda"), ("mps", "cpu")):
        with gpu_sharing(wanted, tmp_path, device) as shared:
            assert shared == {}
    assert control.read_text() == ""


def test_it_runs_with_pipes_below_the_cache_as_long_as_the_block(control: Path, tmp_path: Path) -> None:
    with gpu_sharing("mps", tmp_path, "cuda") as shared:
        pid = pid_of(shared)
        assert is_running(pid) and shared["lm"] == shared["token2wav"]
        assert all(Path(folder).is_dir() and tmp_path in Path(folder).parents for folder in shared["lm"].values())
    assert control.read_text().split() == ["started", "quit"]
    wait_gone(pid)


def test_only_token2wav_gives_way_where_the_lm_goes_first(control: Path, tmp_path: Path) -> None:
    with gpu_sharing("mps_lm_first", tmp_path, "cuda") as shared:
        assert shared["token2wav"] == shared["lm"] | {"CUDA_MPS_CLIENT_PRIORITY": "1"}


def test_two_studios_with_one_cache_have_one_each(control: Path, tmp_path: Path) -> None:
    with gpu_sharing("mps", tmp_path, "cuda") as first, gpu_sharing("mps", tmp_path, "cuda") as second:
        assert pid_of(first) != pid_of(second)
        mine = pid_of(first)
        assert is_running(mine)
    wait_gone(mine)


def test_one_that_does_not_listen_is_ended_all_the_same(
    control: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUBBORN", "1")
    with gpu_sharing("mps", tmp_path, "cuda") as shared:
        pid = pid_of(shared)
    wait_gone(pid)


def test_what_a_crashed_studio_left_is_ended_by_the_next(control: Path, tmp_path: Path) -> None:
    left = subprocess.run([sys.executable, "-c", CRASH, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    pid = int(Path(left.stdout.strip(), f"{CONTROL}.pid").read_text())
    assert is_running(pid)
    with gpu_sharing("mps", tmp_path, "cuda") as shared:
        assert shared["lm"]["CUDA_MPS_PIPE_DIRECTORY"] == left.stdout.strip() and pid_of(shared) != pid
        wait_gone(pid)


@pytest.fixture
def hangup() -> Iterator[Callable[[int], None]]:
    """What a hang-up does to the process that is tested, whatever the tests were started under."""
    usual = signal.getsignal(signal.SIGHUP)

    def does(handler: int) -> None:
        signal.signal(signal.SIGHUP, handler)

    yield does
    signal.signal(signal.SIGHUP, usual)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_it_is_ended_also_where_the_studio_is_told_to_end(
    control: Path, tmp_path: Path, hangup: Callable[[int], None], number: int
) -> None:
    hangup(signal.SIG_DFL)
    with pytest.raises(SystemExit), gpu_sharing("mps", tmp_path, "cuda") as shared:
        pid = pid_of(shared)
        signal.raise_signal(number)
    wait_gone(pid)
    assert signal.getsignal(number) is signal.SIG_DFL


def test_under_nohup_a_hangup_ends_nothing(control: Path, tmp_path: Path, hangup: Callable[[int], None]) -> None:
    hangup(signal.SIG_IGN)
    with gpu_sharing("mps", tmp_path, "cuda") as shared:
        signal.raise_signal(signal.SIGHUP)
        assert is_running(pid_of(shared))


def test_a_refusal_is_told_in_the_programs_own_words(
    control: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFUSE", "1")
    with pytest.raises(SettingsError, match=r"gpu_sharing.*no permission"), gpu_sharing("mps", tmp_path, "cuda"):
        pass


def test_a_machine_without_the_program_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SettingsError, match="is not installed"), gpu_sharing("mps", tmp_path, "cuda"):
        pass


def test_the_doctor_says_whether_it_is_there(
    control: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sharing_finding().verdict == "ok" and CONTROL in sharing_finding().detail
    monkeypatch.setenv("PATH", str(tmp_path))
    assert sharing_finding().verdict == "note"


def test_a_path_too_long_for_a_pipe_is_refused_before_anything_starts(control: Path, tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    with pytest.raises(SettingsError, match="cache_dir"), gpu_sharing("mps", deep, "cuda"):
        pass
    assert control.read_text() == ""
