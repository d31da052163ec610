"""`python -m studio.bench.precisions` on the real speech LM of the CPU, whose variants are its dtypes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from studio.bench.precisions import difference, main
from tests.official_layout import write_official


def test_laws_are_compared_by_what_differs() -> None:
    fair, bent = np.log(np.float32([0.5, 0.5])), np.log(np.float32([0.25, 0.75]))
    found = difference({(0, 5): fair, (1, 5): fair}, {(0, 5): fair, (1, 5): bent})
    assert found["laws"] == 2 and found["variation_most"] == pytest.approx(0.25, rel=1e-3)
    assert found["variation_mean"] == pytest.approx(0.125, rel=1e-3)
    assert found["kl_mean"] == pytest.approx(0.5 * (0.5 * np.log(2) + 0.5 * np.log(2 / 3)), rel=1e-2)
    assert found["likeliest_same"] == 0.5


@pytest.mark.timeout(900)
def test_a_coarser_type_is_seen_and_a_variant_that_cannot_run_is_said(tmp_path: Path) -> None:
    folder, out = write_official(tmp_path / "official"), tmp_path / "precisions.jsonl"
    variants = ("dtype=float32", "dtype=bfloat16", "quantization=fp8")
    sizes = ("--requests", "2", "--most-tokens", "30", "--streams", "2", "--seconds", "3")
    where = ("--model-dir", str(folder), "--device", "cpu", "--out", str(out))
    assert main([*where, "--variants", *variants, *sizes]) == 1
    reference, coarser, refused = map(json.loads, out.read_text().splitlines())
    assert (reference["same"], reference["kl_mean"], reference["likeliest_same"]) == (2, 0, 1)
    assert coarser["kl_mean"] > 0 and coarser["laws"] == reference["laws"] > 0
    assert coarser["tokens_per_s_together"] > 0 and "quantization" in refused["failed"]
