"""What this machine has: system, memory, disk, programs outside pip, and the GPU. Looks only."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from studio.doctor.finding import Finding
from studio.engine import mps
from studio.setup import debian
from studio.setup import machine as limits

GIB = 1 << 30
LEAST_CAPABILITY = (7, 5)
"""Below Turing, vLLM has no kernels."""


def machine_findings(cache: Path) -> Iterator[Finding]:
    """cache: where fetched and converted checkpoints go."""
    yield from system_findings()
    memory = limits.memory_bytes()
    enough = memory >= limits.MEMORY_NEEDED_BYTES
    needed = f"; {limits.MEMORY_NEEDED_BYTES / GIB:.0f} GiB are needed: use a larger machine"
    yield Finding("ok" if enough else "FAULT", "memory", f"{memory / GIB:.1f} GiB{'' if enough else needed}")
    free = shutil.disk_usage(cache).free
    yield Finding("ok", "disk", f"{free / GIB:.1f} GiB free for checkpoints in {cache}")
    device = limits.find_device()
    for need in debian.missing(device, dev=False):
        detail = f"missing, so {need.without}. {debian.remedy([need.package])}"
        yield Finding("FAULT" if need.required else "note", need.name, detail)
    yield from (gpu_findings() if device == "cuda" else [Finding("note", "GPU", "none: models run on the CPU")])


def system_findings() -> Iterator[Finding]:
    here = tuple(int(part) for part in platform.python_version_tuple()[:2])
    fits = here in limits.PYTHONS
    wanted = "" if fits else "; 3.11 or 3.12 is needed: `make install PYTHON=python3.11`"
    yield Finding("ok" if fits else "FAULT", "Python", platform.python_version() + wanted)
    cores = len(os.sched_getaffinity(0))
    try:
        limits.check_platform(platform.system(), platform.machine())
        yield Finding("ok", "system", f"{platform.system()} {platform.machine()}, {cores} cores")
    except limits.SetupProblem as problem:
        yield Finding("FAULT", "system", str(problem))


def gpu_findings() -> Iterator[Finding]:
    """One line a GPU as the driver tells it, and whether torch can use it."""
    import torch

    for line in _driver_lines():
        yield Finding("ok", "GPU (driver)", line)
    yield sharing_finding()
    if torch.version.cuda is None:
        remedy = "`make install DEVICE=cuda` installs the CUDA set"
        yield Finding("note", "GPU", f"torch {torch.__version__} is a CPU build, so the GPU is not used; {remedy}")
        return
    if not torch.cuda.is_available():
        remedy = f"update it to one for CUDA {torch.version.cuda}"
        yield Finding("FAULT", "GPU", f"torch sees no GPU: the driver is too old or not loaded; {remedy}")
        return
    for index in range(torch.cuda.device_count()):
        yield _gpu(index)


def sharing_finding() -> Finding:
    if found := shutil.which(mps.CONTROL):
        return Finding("ok", "MPS", f"{found}: --gpu-sharing mps lets LM and token2wav compute at once")
    return Finding("note", "MPS", f"no {mps.CONTROL}: LM and token2wav have the GPU in turns")


def _gpu(index: int) -> Finding:
    import torch

    about, capability = torch.cuda.get_device_properties(index), torch.cuda.get_device_capability(index)
    free, total = torch.cuda.mem_get_info(index)
    detail = (
        f"{about.name}, {free / GIB:.1f} of {total / GIB:.1f} GiB free, compute capability "
        f"{capability[0]}.{capability[1]}, {about.multi_processor_count} multiprocessors, CUDA {torch.version.cuda}"
    )
    if capability < LEAST_CAPABILITY:
        return Finding("FAULT", f"GPU {index}", f"{detail}: too old for vLLM; --device cpu works")
    if capability[0] < 8:
        return Finding("note", f"GPU {index}", f"{detail}; no bfloat16 and no batch invariance: float16 is used")
    return Finding("ok", f"GPU {index}", f"{detail}, bfloat16, batch invariance")


def _driver_lines() -> list[str]:
    fields = "name,memory.total,driver_version,compute_cap"
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return [f"nvidia-smi does not answer ({error})"]
    return told.stdout.strip().splitlines()
