"""`python -m studio.bench.ras_step` as it is run on a GPU, where no kernel runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from studio.bench import ras_step
from studio.bench.rows import Out
from studio.models.speech_lm.ras_draw import IN_TORCH, Draw, Layout


def test_torch_alone_is_timed_where_there_is_no_kernel(tmp_path: Path) -> None:
    out = tmp_path / "ras.jsonl"
    given = ["--device", "cpu", "--rows", "1,3", "--steps", "2", "--commit", "abc", "--out", str(out)]
    assert ras_step.main(given) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["path"], row["rows"], row["commit"]) for row in rows] == [("torch", 1, "abc"), ("torch", 3, "abc")]
    assert all(row["step_us"] >= row["host_us"] > 0 for row in rows)


def test_a_kernel_that_draws_something_else_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def shifted(logits: torch.Tensor, records: torch.Tensor, layout: Layout) -> torch.Tensor:
        return IN_TORCH.step(logits, records, layout).roll(1, dims=1)

    monkeypatch.setattr(ras_step, "WIDTH", 60)
    monkeypatch.setattr(ras_step, "COMPARED_STEPS", 1)
    out = Out(None, {})
    assert ras_step.compared(IN_TORCH, out) and not ras_step.compared(Draw(shifted, IN_TORCH.kept_on), out)
    assert [row["drawn"] for row in out.rows] == [128, 128] and out.rows[0]["differing"] == 0
