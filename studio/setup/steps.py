"""The steps of an installation, in order.

Each has a fingerprint of what it was made from, and runs when that differs from the stamped one: a second
call does nothing, a changed lock repeats what depends on it, a broken run resumes at the step that broke.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import pip
from .place import Place

CPU_LOCK, CUDA_SET, DEV_LOCK = "requirements-cpu.lock", "requirements.txt", "requirements-dev.lock"


@dataclass(frozen=True)
class Step:
    """One thing to do: `label` is for people, `fingerprint` decides whether it is done already."""

    name: str
    label: str
    fingerprint: str
    run: Callable[[], None]


def plan(place: Place, device: str, dev: bool) -> list[Step]:
    """Return the steps for `device` ("cpu" or "cuda"), with the tools for tests if `dev`."""
    steps = [Step("venv", f"making {place.venv}", device, lambda: pip.make_venv(place, device))]
    steps += _cpu_packages(place) if device == "cpu" else _cuda_packages(place)
    if dev:
        tools = place.file(DEV_LOCK)
        label = f"installing {DEV_LOCK}, 0.4 GB"
        steps.append(Step("dev", label, digest(tools), lambda: pip.install_lock(place, tools)))
    studio = f"{place.root} {digest(place.file('pyproject.toml'))}"
    steps.append(Step("studio", "installing the studio itself", studio, lambda: pip.install_studio(place)))
    made_from = "\n".join(step.fingerprint for step in steps)
    checked = hashlib.sha256(made_from.encode()).hexdigest()[:16]
    steps.append(Step("check", "checking what was installed", checked, lambda: pip.check(place, device)))
    return steps


def pending(place: Place, steps: list[Step]) -> list[Step]:
    """Return the steps that are not done, or were done from something else."""
    stamp = place.stamp()
    return [step for step in steps if stamp.get(step.name) != step.fingerprint]


def _cpu_packages(place: Place) -> list[Step]:
    lock = place.file(CPU_LOCK)
    torch, label = locked(lock, "torch"), f"installing {CPU_LOCK}, 0.5 GB"
    return [
        Step("torch", f"installing {torch}, 0.2 GB", torch, lambda: pip.install_cpu_torch(place, torch)),
        Step("packages", label, digest(lock), lambda: pip.install_cpu_lock(place, lock)),
    ]


def _cuda_packages(place: Place) -> list[Step]:
    needs, label = place.file(CUDA_SET), f"installing {CUDA_SET}, several GB"
    return [Step("packages", label, digest(needs), lambda: pip.install_set(place, needs))]


def locked(lock: Path, name: str) -> str:
    """Return the line of `lock` that pins `name`, as "name==version"."""
    for line in lock.read_text().splitlines():
        if line.startswith(name + "=="):
            return line.split("#")[0].strip()
    raise ValueError(f"{lock} pins no {name}")


def digest(path: Path) -> str:
    """Return a short fingerprint of a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
