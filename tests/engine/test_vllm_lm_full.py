"""The golden numbers of the official size, through vLLM on the class that it serves, from official names.

2 GB of weights are made, converted and loaded, so it is marked `full`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from studio.engine.worker import WorkerProcess
from studio.models.tensor_files import Piecewise, TensorFile, write_safetensors
from studio.parity.compare import compare
from studio.protocols import LmPrompt
from tests.fixtures import make_weights
from tests.official_layout import CONFIG, FULL
from tests.parity.conftest import FIXTURES, GOLDEN

NAME = "06_llm_full"


def write_checkpoint(folder: Path) -> None:
    """llm.safetensors with the official names, each tensor made as it is written."""
    shapes = json.loads((FIXTURES / "keys" / "full_llm.json").read_text())
    shapes.pop("llm.model.lm_head.weight")  # tied
    source = TensorFile(
        Path("recipe"), {k: tuple(v) for k, v in shapes.items()}, dict.fromkeys(shapes, torch.float32),
        lambda name: torch.from_numpy(make_weights.tensor(name, tuple(shapes[name]))),
    )  # fmt: skip
    write_safetensors(folder / "llm.safetensors", source, [Piecewise(name, (name,)) for name in shapes])
    (folder / "cosyvoice2.yaml").write_text("checkpoint: {id: random}\n")
    (folder / "CosyVoice-BlankEN").mkdir()
    (folder / "CosyVoice-BlankEN" / "config.json").write_text(json.dumps(CONFIG | FULL))


@pytest.mark.full
@pytest.mark.timeout(900)
async def test_golden_scores_of_the_official_size(tmp_path):
    write_checkpoint(tmp_path)
    settings = {
        "model_dir": str(tmp_path), "cache_dir": str(tmp_path / "cache"), "device": "cpu",
        "kv_cache_gib": 0.0625,
        "max_num_seqs": 2, "max_model_len": 512, "max_num_batched_tokens": 512,
    }  # fmt: skip
    worker = WorkerProcess([sys.executable, "-m", "studio.backends.vllm_lm"], "speech LM", settings)
    await worker.start()
    try:
        await worker.wait_ready()
        given = GOLDEN.arrays(NAME, "in_")
        prompt = LmPrompt(
            tuple(given["in_prompt_text"].tolist()), tuple(given["in_text"].tolist()),
            given["in_prompt_speech"].astype(np.int32),
        )  # fmt: skip
        forced = given["in_forced"].tolist()
        got = np.stack([
            await worker.call("next_log_probs", prompt=prompt, spoken=forced[:n], request_id=f"golden {n}")
            for n in range(len(forced))
        ])  # fmt: skip
    finally:
        await worker.close()
    # vLLM gives log-probabilities, the fixture logits; they differ by one number a row.
    golden = GOLDEN.arrays(NAME, "out_")["out_logits"].astype(np.float64)
    largest = golden.max(1, keepdims=True)
    shift = np.log(np.exp(golden - largest).sum(1, keepdims=True)) + largest
    (line,) = compare(GOLDEN, NAME, {"out_logits": got + shift})
    assert line.verdict == "pass", line
