"""Golden fixtures and synthetic weights for the parity tests."""

from __future__ import annotations

import importlib.util
import json
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
import torch

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"golden_{name}", FIXTURES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@cache
def synthetic_weights(size: str, part: str) -> dict[str, torch.Tensor]:
    """The fixtures' deterministic tensors by name: size is mini or full, part is flow, hift or llm."""
    shapes = json.loads((FIXTURES / "keys" / f"{size}_{part}.json").read_text())
    return {name: torch.from_numpy(array) for name, array in _module("make_weights").fill(shapes).items()}


@pytest.fixture(scope="session")
def golden() -> ModuleType:
    """`compare.py` of the fixtures: inputs(name), outputs(name), check(name, got)."""
    return _module("compare")


@pytest.fixture(scope="session")
def weights():
    """A function (size, part) -> tensors by name."""
    return synthetic_weights


@pytest.fixture(scope="session")
def golden_tensors(golden):
    """A function name -> {input name without `in_`: tensor}."""

    def load(name: str) -> dict[str, torch.Tensor]:
        return {
            key.removeprefix("in_"): torch.from_numpy(array) for key, array in golden.inputs(name).items()
        }

    return load


@pytest.fixture(autouse=True)
def _few_threads():
    """Two threads at most: the numbers are small, and the machine is shared."""
    torch.set_num_threads(min(2, torch.get_num_threads()))
