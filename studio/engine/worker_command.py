"""The command of a worker program, with the variables that must stand before it begins. Starts nothing."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from studio.threads import Part, quiet_environment, thread_count

Variables = Mapping[str, Mapping[str, str]]
"""What a worker's environment has beyond that of this process, by the worker's name."""
ALONE: Variables = MappingProxyType({})
"""Of workers that have the GPU in turns."""


def worker_command(program: str, variables: Mapping[str, str] | None = None) -> list[str]:
    """program: a module of studio.backends. variables: read by libraries as they are loaded."""
    set_first = ["env", *(f"{name}={value}" for name, value in variables.items())] if variables else []
    return [*set_first, sys.executable, "-m", f"studio.backends.{program}"]


def worker_variables(part: Part, values: Mapping[str, Any], device: str, shared: Variables) -> dict[str, str]:
    """values: rows of the settings table. shared: what `mps.gpu_sharing` gives. None on a CPU."""
    if device == "cpu":
        return {}
    return {**quiet_environment(thread_count(part, values, device, cores=1)), **shared.get(part, {})}
