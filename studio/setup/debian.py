"""What pip cannot bring: which programs and libraries are missing, and Debian's packages for them."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .machine import SetupProblem


def has_program(name: str) -> bool:
    """Return whether a program of that name is on the PATH."""
    return shutil.which(name) is not None


def has_library(name: str) -> bool:
    """Return whether the system can load a shared library of that name."""
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


@dataclass(frozen=True)
class Need:
    """A program or library outside pip: its Debian package, what fails without it, whether that stops us."""

    name: str
    package: str
    without: str
    required: bool
    has: Callable[[str], bool] = has_program


NUMA = Need("libnuma.so.1", "libnuma1", "vLLM does not load on a CPU", True, has_library)
FFMPEG = Need("ffmpeg", "ffmpeg", "m4a and webm clips cannot be read, nor mp3, opus and aac made", False)
CHROMIUM = Need("chromium", "chromium", "the browser tests fail", True)
PROMETHEUS = Need("prometheus", "prometheus", "the tests of the dashboard and the alerts fail", True)
COMPILER = Need("g++", "g++", "pyworld, which measures pitch for the evaluation, has to be built", True)


def missing(device: str, dev: bool) -> list[Need]:
    """Return what this machine lacks to run on `device`, and to run the tests if `dev`."""
    needs = ([NUMA] if device == "cpu" else []) + [FFMPEG] + ([CHROMIUM, COMPILER, PROMETHEUS] if dev else [])
    return [need for need in needs if not need.has(need.name)]


def can_install() -> bool:
    """Return whether this process may install Debian packages."""
    return os.geteuid() == 0 and has_program("apt-get")


def install(packages: Sequence[str]) -> None:
    """Install Debian `packages`, without asking.

    Raises: SetupProblem if apt-get fails.
    """
    apt = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]
    for command in ([*apt, "update"], [*apt, "install", "-y", "--no-install-recommends", *packages]):
        if subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode != 0:
            raise SetupProblem(f"`{' '.join(command[2:])}` failed; see above. {remedy(packages)}")


def remedy(packages: Sequence[str]) -> str:
    """Return the sentence that tells a person how to install `packages`."""
    return f"On Debian and Ubuntu: `sudo apt-get install {' '.join(packages)}`."
