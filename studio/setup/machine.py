"""What this machine has and whether that is enough. Looks only; changes nothing."""

from __future__ import annotations

import glob
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

PYTHONS = ((3, 11), (3, 12))
GIB = 1 << 30
# Measured on 2 cores: README, "Set-up". Both hold the unpacked environment and pip's downloads beside it.
DISK_NEEDED_BYTES = {"cpu": 6 * GIB, "cuda": 30 * GIB}
MEMORY_NEEDED_BYTES = 6 * GIB
WSL_DRIVER = "/usr/lib/wsl/lib"  # on the PATH of a login shell only

_PROBE = "import sys, venv, ensurepip; print(*sys.version_info[:2])"


class SetupProblem(Exception):
    """The machine lacks something, or a step failed; the message names the remedy."""


def find_device(dev: str = "/dev") -> str:
    """Return "cuda" where an NVIDIA GPU answers, "cpu" elsewhere. WSL 2 has no device file, so its driver is asked."""
    if glob.glob(dev + "/nvidia[0-9]*"):
        return "cuda"
    smi = shutil.which("nvidia-smi") or shutil.which("nvidia-smi", path=WSL_DRIVER)
    if smi is None:
        return "cpu"
    listed = subprocess.run([smi, "-L"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    return "cuda" if listed.returncode == 0 and b"GPU " in listed.stdout else "cpu"


def find_python(candidates: list[str] | None = None) -> str:
    """Return a Python that can make our environment: the running one if it fits, else one on the PATH.

    Raises: SetupProblem if none is 3.11 or 3.12 with the venv module.
    """
    names = candidates if candidates is not None else [sys.executable, "python3.12", "python3.11", "python3"]
    for name in names:
        path = shutil.which(name)
        if path is not None and python_version(path) in PYTHONS:
            return path
    raise SetupProblem(
        "Python 3.11 or 3.12 with the venv module is needed; this is Python {}.{}. On Debian and Ubuntu: "
        "`apt-get install python3.11 python3.11-venv`, or 3.12; elsewhere pyenv or `uv python install 3.12`. "
        "Then `make run PYTHON=/path/to/python3.11`.".format(*sys.version_info[:2])
    )


def python_version(path: str) -> tuple[int, ...] | None:
    """Return (major, minor) of a Python that runs and can make environments, else None."""
    command = [path, "-c", _PROBE]
    probe = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    if probe.returncode != 0:
        return None
    return tuple(int(part) for part in probe.stdout.split())


def check_platform(system: str, machine: str) -> None:
    """Raise SetupProblem where vLLM has no build to install."""
    if system != "Linux" or machine not in ("x86_64", "aarch64"):
        raise SetupProblem(
            f"vLLM has builds for Linux on x86_64 and aarch64; this is {system} on {machine}. "
            "Use the Dockerfile, WSL 2 or a Linux machine."
        )


def check_disk(folder: Path, device: str, free_bytes: int) -> None:
    """Raise SetupProblem if the disk under `folder` cannot take the set."""
    needed = DISK_NEEDED_BYTES[device]
    if free_bytes < needed:
        raise SetupProblem(
            f"The {device} set needs {needed / GIB:.0f} GiB of free disk; {folder} has "
            f"{free_bytes / GIB:.1f} GiB. Free some (`pip cache purge` often helps), or clone the studio to "
            "a larger disk."
        )


def check_memory(memory_bytes: int) -> None:
    """Raise SetupProblem if the engine's processes would not fit."""
    if memory_bytes < MEMORY_NEEDED_BYTES:
        raise SetupProblem(
            f"The engine's processes need {MEMORY_NEEDED_BYTES / GIB:.0f} GiB of memory; this machine, or "
            f"its container, has {memory_bytes / GIB:.1f} GiB. Use a larger one; `python3 -m studio.setup "
            "--ignore-limits` goes on all the same."
        )


def free_disk_bytes(folder: Path) -> int:
    """Return the free bytes of the disk that holds `folder`."""
    return shutil.disk_usage(folder).free


def memory_bytes(cgroup: str = "/sys/fs/cgroup/memory.max") -> int:
    """Return the memory of the machine, or the container's limit where that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path(cgroup).read_text().strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdigit() else total


def check_limits(folder: Path, device: str) -> None:
    """Raise SetupProblem at the first thing of which this machine has too little."""
    check_platform(platform.system(), platform.machine())
    check_disk(folder, device, free_disk_bytes(folder))
    check_memory(memory_bytes())
