"""Golden fixtures and synthetic weights for the parity tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

from studio.parity.fixtures import Fixtures

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
GOLDEN = Fixtures(FIXTURES)


@cache
def synthetic_weights(size: str, part: str) -> dict[str, torch.Tensor]:
    """The fixtures' deterministic tensors by name: size is mini or full, part is flow, hift or llm."""
    return GOLDEN.weights(size, part)


@pytest.fixture(scope="session")
def weights() -> Callable[[str, str], dict[str, torch.Tensor]]:
    """A function (size, part) -> tensors by name."""
    return synthetic_weights


@pytest.fixture(autouse=True)
def _same_for_all():
    """Draws of their own for each test, whatever ran before in its process. Two threads at most: the numbers are small,
    and the machine is shared; one beside another worker of tests."""
    torch.manual_seed(0)
    torch.set_num_threads(min(1 if "PYTEST_XDIST_WORKER" in os.environ else 2, torch.get_num_threads()))
