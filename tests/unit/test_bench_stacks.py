"""What is made of stacks that were found, and that a program which cannot be looked into is no failure."""

from __future__ import annotations

import asyncio

import pytest

from studio.bench.stacks import counted, sampled


def test_a_call_counts_once_a_look_and_what_every_look_goes_through_is_left_out() -> None:
    found = counted([
        "process 1;thread (1): MainThread;run (a/core.py:10);step (a/core.py:20);step (a/core.py:25) 6",
        "process 1;thread (1): MainThread;run (a/core.py:10);wait (b/event.py:3) 4",
        "process 1;thread (2): Other;run (a/core.py:10) 90",
    ])  # fmt: skip
    assert found["looks"] == 10
    assert found["at"] == [("step core.py", 0.6), ("wait event.py", 0.4)]
    assert found["inside"] == [("step core.py", 0.6), ("wait event.py", 0.4)]


def test_nothing_is_told_without_the_program(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert asyncio.run(sampled(1, 1.0)) is None
