"""A small CosyVoice3 checkpoint with random weights: the names of the fixtures' key lists, at small sizes."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import torch

from studio.models.prompt.encoder import SPEAKER_FILE, TOKENIZER_FILE_3
from tests.fixtures import make_weights
from tests.official_layout import FIXTURES, write_tokenizer_folder
from tests.stand_in_onnx import write_speaker, write_tokenizer

CODES, END_IDS, TEXT_IDS = 243, 200, 1024
BLOCKS = 2
SIZES = {
    "flow": {1024: 128, 2048: 256, 6144: 768, 6561: CODES},
    "hift": {512: 64, 256: 32, 128: 16, 64: 8},
    "llm": {6761: CODES + END_IDS, 151936: TEXT_IDS, 896: 128, 4864: 192, 128: 64},
}
SHAPES = {
    "decoder.estimator.input_embed.conv_pos_embed.conv1.0.weight": (128, 8, 31),
    "decoder.estimator.input_embed.conv_pos_embed.conv2.0.weight": (128, 8, 31),
}
ROTARY = "decoder.estimator.rotary_embed.inv_freq"
LM_CONFIG = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": TEXT_IDS, "hidden_size": 128,
    "intermediate_size": 192, "num_hidden_layers": BLOCKS, "num_attention_heads": 2, "num_key_value_heads": 1,
    "hidden_act": "silu", "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
    "tie_word_embeddings": True, "use_sliding_window": False,
}  # fmt: skip


@cache
def tensors(part: str) -> dict[str, torch.Tensor]:
    """Tensors of llm, flow or hift by their official names."""
    listed = json.loads((FIXTURES / "keys" / f"cosyvoice3_{part}.json").read_text())
    made = {}
    for name, shape in listed.items():
        if _block(name) >= BLOCKS:
            continue
        smaller = SHAPES.get(name, tuple(SIZES[part].get(n, n) for n in shape))
        made[name] = torch.from_numpy(make_weights.tensor(name, smaller))
    if part == "flow":
        made[ROTARY] = 1e4 ** (-torch.arange(0, 64, 2).float() / 64)
    return made


def _block(name: str) -> int:
    for repeated in ("transformer_blocks.", "model.layers."):
        if repeated in name:
            return int(name.split(repeated)[1].split(".")[0])
    return 0


def write_checkpoint(folder: Path) -> Path:
    """The whole folder in the official layout, with stand-in ONNX models and tokenizer."""
    for part in ("llm", "flow", "hift"):
        torch.save(tensors(part), folder / f"{part}.pt")
    (folder / "cosyvoice3.yaml").write_text("sample_rate: 24000\n")
    write_speaker(folder / SPEAKER_FILE)
    write_tokenizer(folder / TOKENIZER_FILE_3)
    write_tokenizer_folder(folder / "CosyVoice-BlankEN", LM_CONFIG)
    return folder



