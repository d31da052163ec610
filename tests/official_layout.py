"""A checkpoint folder as the official one is laid out, with weights made by the fixtures' recipe: it speaks noise.

"small" has the mini's flow and vocoder and an LM that vLLM can serve; "full" has every official size (3.5 GB).
`python -m tests.official_layout FOLDER SIZE [STAND_INS]` writes one where neither pytest nor onnx is: STAND_INS is a
folder that was written elsewhere, whose ONNX files are taken.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import torch

from studio.models.prompt.encoder import SPEAKER_FILE, TOKENIZER_FILE
from tests.fixtures.make_weights import tensor

FIXTURES = Path(__file__).with_name("fixtures")
SPECIAL_YAML = """\
# As the official file: tags of a configuration language, nothing of ours.
sample_rate: 24000
llm_input_size: 896
llm: !new:cosyvoice.llm.llm.Qwen2LM
    llm_input_size: !ref <llm_input_size>
    mix_ratio: [5, 15]
    sampling: !name:cosyvoice.utils.common.ras_sampling
        top_p: 0.8
        top_k: 25
allowed_special: 'all'
"""
CONFIG = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu", "rms_norm_eps": 1e-6,
    "max_position_embeddings": 32768, "rope_theta": 1000000.0, "tie_word_embeddings": True, "use_sliding_window": False,
}  # fmt: skip
SMALL = {
    "vocab_size": 512, "hidden_size": 128, "intermediate_size": 192, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1,
}  # fmt: skip
FULL = {
    "vocab_size": 151936, "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
    "num_attention_heads": 14, "num_key_value_heads": 2,
}  # fmt: skip


def write_official(folder: Path, size: Literal["small", "full"] = "small", stand_ins: Path | None = None) -> Path:
    """Every file of the layout. Made part by part, since the whole would not fit into a small machine twice."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("flow", "hift", "llm"):
        torch.save(_weights(size, part), folder / f"{part}.pt")
    (folder / "cosyvoice2.yaml").write_text(SPECIAL_YAML)
    write_tokenizer_folder(folder / "CosyVoice-BlankEN", CONFIG | (SMALL if size == "small" else FULL))
    if stand_ins is None:
        from tests.stand_in_onnx import write_speaker, write_tokenizer

        write_speaker(folder / SPEAKER_FILE)
        write_tokenizer(folder / TOKENIZER_FILE)
    else:
        for name in (SPEAKER_FILE, TOKENIZER_FILE):
            shutil.copy(stand_ins / name, folder)
    generator = torch.Generator().manual_seed(0)
    torch.save({"中文女": {"embedding": torch.randn(1, 192, generator=generator)}}, folder / "spk2info.pt")
    return folder


def _weights(size: str, part: str) -> dict[str, torch.Tensor]:
    shapes = json.loads((FIXTURES / "keys" / f"{'full' if size == 'full' else 'mini'}_{part}.json").read_text())
    if size == "small" and part == "llm":
        wider = {64: SMALL["hidden_size"], 128: SMALL["intermediate_size"], 32: 64}
        shapes = {name: [wider.get(n, n) for n in shape] for name, shape in shapes.items()}
    # numpy draws without Python's lock, so that cores share the full size.
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        arrays = pool.map(lambda name: tensor(name, tuple(shapes[name])), shapes)
        return {name: torch.from_numpy(array) for name, array in zip(shapes, arrays, strict=True)}


def write_tokenizer_folder(folder: Path, config: dict[str, object]) -> None:
    """Qwen2's config.json, and a vocabulary of the 256 bytes with two merges."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = [chr(byte) for byte in printable] + [chr(256 + n) for n in range(len(others))]
    words = [*letters, "he", "ll"]
    (folder / "vocab.json").write_text(json.dumps({word: n for n, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\nh e\nl l\n")


if __name__ == "__main__":
    into, wanted, *given = sys.argv[1:]
    assert wanted in ("small", "full"), wanted
    write_official(Path(into), wanted, Path(given[0]) if given else None)  # type: ignore[arg-type]
