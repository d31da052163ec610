"""Every fixture of tests/fixtures through our code, as `python -m studio.parity tests/fixtures` does it."""

from __future__ import annotations

import pytest

from studio.parity.run import run_fixture
from tests.parity.conftest import FIXTURES, GOLDEN

ASIDE = {"07_text": 3}
NAMES = [pytest.param(n, marks=pytest.mark.full) if n.endswith("_full") else n for n in GOLDEN.names()]


@pytest.mark.parametrize("name", NAMES)
def test_our_code_gives_the_golden_numbers(name):
    lines = list(run_fixture(GOLDEN, name))
    assert lines and [str(line) for line in lines if line.verdict not in ("pass", "aside")] == []
    assert sum(line.verdict == "aside" for line in lines) == ASIDE.get(name, 0), "or ours was silently let off"


def test_no_fixture_is_left_out():
    assert len(NAMES) == len(list(FIXTURES.glob("0?_*.json"))) == 16
