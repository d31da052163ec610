"""Programs that pip cannot bring: which are missing, and Debian's packages for them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

from .machine import SetupProblem

# program -> what goes without it
FOR_RUN = {"ffmpeg": "clips in m4a, aac and webm cannot be read, and mp3, opus and aac cannot be written"}
FOR_TESTS = {"ffmpeg": FOR_RUN["ffmpeg"], "chromium": "the browser tests fail"}


def missing(programs: Sequence[str]) -> list[str]:
    """Return those of `programs` that are not on the PATH; a program's Debian package has the same name."""
    return [name for name in programs if shutil.which(name) is None]


def can_install() -> bool:
    """Return whether this process may install Debian packages."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def install(packages: Sequence[str]) -> None:
    """Install Debian `packages`, without asking.

    Raises: SetupProblem if apt-get fails.
    """
    apt = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]
    for command in ([*apt, "update"], [*apt, "install", "-y", "--no-install-recommends", *packages]):
        if subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode != 0:
            raise SetupProblem("`{}` failed; see above. {}".format(" ".join(command[2:]), remedy(packages)))


def remedy(packages: Sequence[str]) -> str:
    """Return the sentence that tells a person how to install `packages`."""
    return "On Debian and Ubuntu: `sudo apt-get install {}`.".format(" ".join(packages))
