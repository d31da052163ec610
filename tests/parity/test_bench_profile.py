"""Arithmetic of the bench's profile."""

from __future__ import annotations

import pytest

from studio.bench.profile_step import Work, busy_s, summary


def test_work_that_overlaps_is_busy_once() -> None:
    works = [Work("b", 2.0, 3.0), Work("a", 0.0, 1.0), Work("a", 0.5, 1.5), Work("c", 0.6, 0.7)]
    assert busy_s(works) == pytest.approx(2.5)
    first, costliest, *_ = summary("flow", works).splitlines()
    assert first == "flow: 4 pieces of work in 3000.00 ms, busy 83% of it"
    assert costliest.endswith("2 x  a")
