"""`python -m studio.bench.seeds` on the real speech LM, as it is run on a GPU, at a small size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from studio.bench.seeds import main
from tests.official_layout import write_official


@pytest.mark.timeout(900)
def test_seeds_are_the_same_beside_others_as_alone_on_the_cpu(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder, out = write_official(tmp_path / "official"), tmp_path / "seeds.jsonl"
    sizes = ("--requests", "5", "--beside", "3", "--most-tokens", "40", "--seconds", "3")
    assert main(["--model-dir", str(folder), "--device", "cpu", *sizes, "--out", str(out)]) == 0
    row = json.loads(out.read_text())  # one line, for batch invariance is for GPUs
    assert (row["requests"], row["same"], row["parted_least"]) == (5, 5, None)
    assert (row["device"], row["seed_holds"], row["beside"]) == ("cpu", "beside_others", 3)
    assert row["tokens"] > 5 and row["tokens_per_s_alone"] > 0 and row["tokens_per_s_beside"] > 0
    printed = json.loads(capfd.readouterr().out.splitlines()[0])
    assert printed.items() <= row.items() and row["bench"] == "seeds"
