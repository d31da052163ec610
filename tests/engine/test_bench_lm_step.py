"""`python -m studio.bench.lm_step` on the real workers, as it is run on a GPU, at a small size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from studio.bench.lm_step import main
from tests.official_layout import write_official


@pytest.mark.timeout(900)
def test_both_workers_are_timed_alone_and_beside_each_other(tmp_path: Path) -> None:
    folder, out = write_official(tmp_path / "official"), tmp_path / "lm.jsonl"
    loads = (
        "--streams",
        "1,3",
        "--tokens",
        "12",
        "--beside-rows",
        "2",
        "--beside-streams",
        "1",
        "--seconds",
        "0.2",
    )
    given = ("--model-dir", str(folder), "--device", "cpu", "--set", "kv_cache_gib=0.1", "--commit", "abc")
    assert main([*given, *loads, "--check", "--split", "--label", "all", "--out", str(out)]) == 0
    started, *rows = map(json.loads, out.read_text().splitlines())
    assert {row["variant"] for row in rows} == {"all"}
    law = next(row for row in rows if "check" in row)
    assert 0 <= law["law_error_max"] < 1e-3 and law["first_law"][0][1] >= law["first_law"][1][1]
    rows = [row for row in rows if "check" not in row]
    apart = [row for row in rows if row.get("cores") == "split"]
    assert [row.get("beside_rows") for row in apart] == [2, None] and apart[0]["token2wav_cores"] > 0
    rows = [row for row in rows if row.get("cores") != "split"]
    assert started["commit"] == "abc" and started["lm_start_s"]["weights_s"] > 0
    lm, voicing = [row for row in rows if "streams" in row], [row for row in rows if "rows" in row]
    assert [(row["streams"], row.get("beside_rows")) for row in lm] == [(1, None), (3, None), (1, 2)]
    assert [(row["rows"], row["lm_streams"]) for row in voicing] == [(2, 0), (2, 1)]
    assert all(row["tokens"] >= 12 * row["streams"] and row["first_token_p99_ms"] > 0 for row in lm)
    assert all(row["steps"] > 0 and row["t2w_step_p99_ms"] > 0 for row in voicing)


@pytest.mark.timeout(900)
def test_folder_that_is_no_checkpoint_ends_it_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "lm.jsonl"
    assert main(["--model-dir", str(tmp_path), "--device", "cpu", "--out", str(out)]) == 1
    assert "cosyvoice2.yaml" in json.loads(out.read_text())["failed"]
