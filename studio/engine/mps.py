"""NVIDIA's MPS for the workers of one studio: its control program, started, ended, and cleared away after a crash.

Without it two processes have the GPU in turns, in slices of time. Each studio has a control program of its own, with
pipes in a folder of its own: studios on one machine neither meet nor end each other's. Computes nothing on a GPU.
Source: NVIDIA, Multi-Process Service, chapters "Environment Variables" and "nvidia-cuda-mps-control".
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import IO, Literal

import psutil

from studio.errors import SettingsError

logger = logging.getLogger(__name__)

Sharing = Literal["slices", "mps", "mps_lm_first"]
CONTROL = "nvidia-cuda-mps-control"
MOST_STUDIOS = 64
PIPE_PATH_BYTES = 107
"""Of a socket of Linux, whose longest name in the folder of pipes is LONGEST_PIPE."""
LONGEST_PIPE = "control_privileged"
START_LIMIT_S = QUIT_LIMIT_S = 20.0
OF_TOKEN2WAV: Mapping[Sharing, Mapping[str, str]] = MappingProxyType({
    "mps": {},
    "mps_lm_first": {"CUDA_MPS_CLIENT_PRIORITY": "1"},  # below normal: kernels of others that wait go first
})


@contextmanager
def gpu_sharing(wanted: Sharing, cache: Path, device: str) -> Iterator[dict[str, dict[str, str]]]:
    """Let the GPU be shared as wanted until the block ends; gives what each worker's environment must have.

    cache: below it lie pipes and logs. Raises: SettingsError if MPS is wanted, and is not there or does not start.
    """
    if wanted == "slices" or device == "cpu":
        yield {}
        return
    with _own_folder(cache.resolve() / "mps") as folder, _running(folder):
        variables = _variables(folder)
        yield {"lm": variables, "token2wav": {**variables, **OF_TOKEN2WAV[wanted]}}


def _variables(folder: Path) -> dict[str, str]:
    return {
        "CUDA_MPS_PIPE_DIRECTORY": str(folder / "pipe"),
        "CUDA_MPS_LOG_DIRECTORY": str(folder / "log"),
    }


@contextmanager
def _own_folder(parent: Path) -> Iterator[Path]:
    """The first folder that no running studio has; the lock ends with this process, however that ends."""
    parent.mkdir(parents=True, exist_ok=True)
    for number in range(MOST_STUDIOS):
        lock = (parent / f"{number}.lock").open("w")
        if _locked(lock):
            break
        lock.close()
    else:
        raise _refusal("mps", f"{MOST_STUDIOS} studios have a folder in {parent}")
    with lock:
        yield parent / str(number)


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _running(folder: Path) -> Iterator[None]:
    pipe = folder / "pipe"
    if len(os.fsencode(pipe / LONGEST_PIPE)) > PIPE_PATH_BYTES:
        raise _refusal(str(pipe), "too long a path for the pipes of MPS; cache_dir names a shorter one")
    if shutil.which(CONTROL) is None:
        raise _refusal("mps", f"{CONTROL} is not installed; it comes with NVIDIA's driver")
    if pipe.exists():  # of a studio that crashed
        _end(folder)
    shutil.rmtree(folder / "log", ignore_errors=True)
    for each in (pipe, folder / "log"):
        each.mkdir(parents=True, mode=0o700)
    # Else uvicorn would let a signal end the process where it stands, and a closed terminal too, unless under nohup.
    usual = {
        number: signal.signal(number, _leave)
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        _start(folder)
        yield
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
        _end(folder)


def _leave(number: int, _: object) -> None:
    raise SystemExit(128 + number)


def _start(folder: Path) -> None:
    # To files, for the control program keeps what it is given open, and whoever read a pipe would wait for its end.
    with (folder / "log" / "start.txt").open("w+") as said:
        try:
            ended = subprocess.run(
                _command(folder, "-d"), stdin=subprocess.DEVNULL, stdout=said, stderr=said, timeout=START_LIMIT_S
            )
        except subprocess.TimeoutExpired as error:
            raise _refusal("mps", f"{CONTROL} -d does not return") from error
        if ended.returncode:
            said.seek(0)
            raise _refusal("mps", said.read().strip() or f"{CONTROL} ended with status {ended.returncode}")
    logger.info("MPS runs in %s", folder)


def _end(folder: Path) -> None:
    """Ask the control program to end, and make it; it has no clients left, for workers end with their studio."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(
            _command(folder), input=b"quit\n", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            timeout=QUIT_LIMIT_S,
        )  # fmt: skip
    if pid := _alive(folder / "pipe"):
        _make_end(pid)
    shutil.rmtree(folder / "pipe", ignore_errors=True)


def _make_end(pid: int) -> None:
    """The folder, which alone tells of it, goes next; so it must be gone."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        process.terminate()
        try:
            process.wait(QUIT_LIMIT_S)
        except psutil.TimeoutExpired:
            process.kill()


def _command(folder: Path, *flags: str) -> list[str]:
    return ["env", *(f"{name}={value}" for name, value in _variables(folder).items()), CONTROL, *flags]


def _alive(pipe: Path) -> int | None:
    """Process id of the control program of this folder, if it runs: the number may be another program's by now."""
    try:
        pid = int((pipe / f"{CONTROL}.pid").read_text())
        named = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, ValueError):
        return None
    return pid if CONTROL.encode() in named else None


def _refusal(value: str, reason: str) -> SettingsError:
    return SettingsError("settings.bad", name="gpu_sharing", value=value, reason=reason)
