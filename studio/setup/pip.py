"""What the steps do: make the environment, let pip fill it, check it. Each function may be repeated."""

from __future__ import annotations

import subprocess
from pathlib import Path

from .machine import PYTHONS, SetupProblem, find_python, python_version
from .place import Place

TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
# PyPI's torchaudio is linked against a CUDA torch; beside a CPU torch it imports only without these two.
# What we use of it, the Kaldi filter bank, is Python.
TORCHAUDIO_LIBRARIES = ("_torchaudio.so", "libtorchaudio.so")


def make_venv(place: Place, device: str) -> None:
    """Make the environment, or keep one that runs and was not made for the other device."""
    made_for = place.stamp().get("venv", device)
    if place.python.exists() and python_version(str(place.python)) in PYTHONS and made_for == device:
        return
    command = [find_python(), "-m", "venv", "--clear", str(place.venv)]
    _call(command, "the virtual environment could not be made; see above")


def install_cpu_torch(place: Place, torch: str) -> None:
    """Install the CPU build of torch from wherever pip is set to look, else from PyTorch's own index.

    Raises: SetupProblem if neither has it. Never falls back to PyPI's build, which brings gigabytes of CUDA.
    """
    for index in ([], ["--extra-index-url", TORCH_CPU_INDEX]):
        wanted = ["--no-deps", *index, torch]
        if _run(_install(place, ["--dry-run", *wanted])) == 0:
            _call(_install(place, wanted), f"{torch} was found but could not be installed; see above")
            return
    raise SetupProblem(
        f"{torch}, the CPU build, is neither where pip looks nor at {TORCH_CPU_INDEX}. Let this machine "
        "reach that address, or bring the wheel and name its folder: `pip config set global.find-links DIR`."
    )


def install_cpu_lock(place: Place, lock: Path) -> None:
    """Install exactly the lock, then make torchaudio importable beside a CPU torch."""
    install_lock(place, lock)
    for name in TORCHAUDIO_LIBRARIES:
        for library in place.venv.glob(f"lib/python*/site-packages/torchaudio/lib/{name}"):
            library.unlink()


def install_lock(place: Place, lock: Path) -> None:
    """Install exactly what `lock` names: every dependency is in it, so pip need not look for any."""
    _call(_install(place, ["--no-deps", "-r", str(lock)]), _failed(lock))


def install_set(place: Place, needs: Path) -> None:
    """Install what `needs` names and what that depends on."""
    _call(_install(place, ["-r", str(needs)]), _failed(needs))


def install_studio(place: Place) -> None:
    """Install this repository in place: vLLM's processes find the speech LM by its entry point."""
    options = ["--no-deps", "--no-build-isolation", "-e", str(place.root)]
    _call(_install(place, options), "the studio's own package could not be installed; see above")


def check(place: Place, device: str) -> None:
    """Import what was installed, in the environment's own Python."""
    command = [str(place.python), "-m", "studio.setup.check", device]
    if subprocess.run(command, cwd=place.root, check=False).returncode != 0:
        raise SetupProblem(
            f"what was installed does not work; see above. After `rm -r {place.venv}` the same command makes "
            "it anew."
        )


def _install(place: Place, options: list[str]) -> list[str]:
    quiet = ["-qq", "--disable-pip-version-check", "--no-input"]
    return [str(place.python), "-m", "pip", "install", *quiet, *options]


def _failed(needs: Path) -> str:
    return (
        f"pip could not install {needs.name}; see above. Check the connection and the disk, then give the "
        "same command again: it goes on from here"
    )


def _run(command: list[str]) -> int:
    silent = subprocess.DEVNULL
    return subprocess.run(command, stdout=silent, stderr=silent, check=False).returncode


def _call(command: list[str], failure: str) -> None:
    if subprocess.run(command, check=False).returncode != 0:
        raise SetupProblem(failure + ".")
