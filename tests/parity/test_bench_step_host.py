"""The benches of a token2wav step's host share measure it, and nothing else runs."""

from __future__ import annotations

import json

import pytest

from studio.bench import flow_step, step_host
from studio.models.flow.paged import PagedFlow
from studio.speech import LOOKAHEAD_TOKENS


def test_rows_are_stepped_to_their_end_without_any_network(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def computed(*_: object) -> None:
        raise AssertionError("a network ran")

    monkeypatch.setattr(PagedFlow, "_encode", computed)
    monkeypatch.setattr(PagedFlow, "_solve", computed)
    monkeypatch.setattr("studio.models.hift.window_network.WindowNetwork.run", computed)
    step_host.main(["--rows", "1,3", "--clips", "1"])
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [row["rows"] for row in line["step_host"]] == [1, 3]
    assert all(row["host_ms"] > 0 for row in line["step_host"])


def test_each_call_that_a_device_may_hold_up_is_told() -> None:
    bench = flow_step.Bench(flow_step.arguments(["--storage", "float32", "--repeat", "1"]))
    paged = bench.paged(12, bench.storage, bench.compute, max_slots=2)
    prompt = paged.prepare_prompt(*bench.voice(), tail_tokens=LOOKAHEAD_TOKENS)
    told = bench._host_calls(paged, prompt, 1)
    assert told.keys() == {"host_records_ms", "host_launch_encode_ms", "host_launch_solve_ms"}
    assert min(told.values()) > 0
