"""`python -m studio.bench.inside` on the real studio, as it is run on a GPU, at a small size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from studio.bench.inside import main
from tests.official_layout import write_official


@pytest.mark.timeout(900)
def test_one_start_gives_table_waterfall_and_growth(tmp_path: Path) -> None:
    folder, out = write_official(tmp_path / "official"), tmp_path / "table.jsonl"
    with (folder / "cosyvoice2.yaml").open("a") as yaml:
        yaml.write("checkpoint:\n  min_token_text_ratio: 1\n  max_token_text_ratio: 1\n")
    loads = ("--streams", "1", "--fewest", "8", "--burst", "2", "--seconds", "3")
    growth = ("--growth-streams", "1", "--growth-s", "12")
    flags = ("--model-dir", str(folder), "--device", "cpu", "--kv-cache-gib", "0.1")
    assert main([*loads, *growth, "--commit", "abc", "--out", str(out), *flags]) == 0
    started, *rows = map(json.loads, out.read_text().splitlines())
    assert started["ready_s"] > 0 and started["forced"] == "1 tokens for each text id"
    found = [(row["bench"], row.get("via"), row.get("streams")) for row in rows]
    tables = [("table", "http", 1), ("table", "http", 2), ("table", "engine", 1), ("table", "engine", 2)]
    assert [name for name in found if name[0] == "table"] == tables
    others = [("waterfall", None, 1), ("waterfall", None, 2), ("growth", None, 1)]
    assert [name for name in found if name[0] != "table"] == others
    for row in rows:
        assert row["commit"] == "abc" and row["precision"] == "LM float32"
    for row in (row for row in rows if row["bench"] == "table"):
        assert row["failures"] == 0 and row["plays"] in (2, 8) and 1.4 < row["clip_s"] < 1.8
        assert (
            row["ttfa_p50_ms"] > 0 and row["prompt_s"] == 5.05 and "continuity" in row and "gpu_bytes" in row
        )
    for row in (row for row in rows if row["bench"] == "waterfall"):
        assert row["requests"] == {1: 8, 2: 2}[row["streams"]] and row["stages"]["flow"]["mean_ms"] > 0
    assert rows[-1]["speech_s"] == 12 and rows[-1]["last_over_first"] > 0
