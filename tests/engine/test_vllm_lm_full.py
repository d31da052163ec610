"""The golden numbers of the official size, through vLLM on the class that it serves, from official names.

2 GB of weights are made, converted and loaded, so it is marked `full`.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from studio.engine.worker import WorkerProcess
from studio.models.tensor_files import Piecewise, TensorFile, write_safetensors
from studio.protocols import LmPrompt

FIXTURES = Path(__file__).parents[1] / "fixtures"
CONFIG = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": 151936, "hidden_size": 896,
    "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
    "hidden_act": "silu", "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
    "tie_word_embeddings": True, "use_sliding_window": False,
}  # fmt: skip


def fixture_module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"full_{name}", FIXTURES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_checkpoint(folder: Path) -> None:
    """llm.safetensors with the official names, each tensor made as it is written."""
    make_weights = fixture_module("make_weights")
    shapes = json.loads((FIXTURES / "keys" / "full_llm.json").read_text())
    shapes.pop("llm.model.lm_head.weight")  # tied
    source = TensorFile(
        "recipe", {k: tuple(v) for k, v in shapes.items()}, dict.fromkeys(shapes, torch.float32),
        lambda name: torch.from_numpy(make_weights.tensor(name, tuple(shapes[name]))),
    )  # fmt: skip
    write_safetensors(folder / "llm.safetensors", source, [Piecewise(name, (name,)) for name in shapes])
    (folder / "cosyvoice2.yaml").write_text("checkpoint: {id: random}\n")
    (folder / "CosyVoice-BlankEN").mkdir()
    (folder / "CosyVoice-BlankEN" / "config.json").write_text(json.dumps(CONFIG))


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
        compare = fixture_module("compare")
        given = compare.inputs("06_llm_full")
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
    golden = compare.outputs("06_llm_full")["out_logits"].astype(np.float64)
    shift = np.log(np.exp(golden - golden.max(1, keepdims=True)).sum(1, keepdims=True)) + golden.max(
        1, keepdims=True
    )
    assert compare.check("06_llm_full", {"out_logits": got + shift}) == []
