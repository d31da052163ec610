"""Turns an official llm.pt (or .safetensors) into a folder that vLLM loads: merged vocabulary, narrow head.

It does not run the model. The folder is named by the content it was made from, written beside and renamed, so
that a folder that exists is whole, and may lie on a read-only disk.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from studio.checkpoint import read_config, read_lm_config
from studio.errors import CheckpointError
from studio.models.kept_folder import make_once
from studio.models.speech_lm.layout import CONTROL_IDS, END_IDS, END_IDS_3, SpeechLmLayout
from studio.models.tensor_files import Piecewise, TensorFile, open_tensors, write_safetensors

ARCHITECTURE = "CosyVoice2SpeechLM"
LAYOUT_VERSION = 1
"""Part of the folder's name: raise it when what is written changes, and old folders are left alone."""

_TEXT = "llm.model.model.embed_tokens.weight"
_TIED = "llm.model.lm_head.weight"
_SPEECH = "speech_embedding.weight"
_CONTROL = "llm_embedding.weight"
_HEAD = "llm_decoder.weight"
_BIAS = "llm_decoder.bias"
_STACK = "llm.model.model."
_PACKED = ("qweight", "qzeros", "scales", "g_idx")
"""What stands in place of a linear layer's weight in an AWQ or GPTQ checkpoint; its shapes are vLLM's to judge."""
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_KEPT = (
    "model_type",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "hidden_act",
    "max_position_embeddings",
    "rms_norm_eps",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "use_sliding_window",
    "attention_dropout",
    "initializer_range",
    "quantization_config",
)


@dataclass(frozen=True, slots=True)
class ConvertedLM:
    """A folder that vLLM loads, and where its ids lie."""

    folder: Path
    layout: SpeechLmLayout


def convert_checkpoint(llm_path: Path, config_path: Path, cache_dir: Path) -> ConvertedLM:
    """Convert once; the same content gives the same folder, at once.

    Args:    llm_path: llm.pt or llm.safetensors with the official names, fp32, fp16 or bf16;
             config_path: config.json of the tokenizer folder (Qwen2's sizes); cache_dir: where converted
             folders lie.
    Raises:  CheckpointError naming the first tensor that does not fit, the file that cannot be read, or the
             folder that cannot be written.
    """
    config = read_lm_config(config_path)
    with open_tensors(llm_path) as source:
        layout = check_tensors(source, config)
        folder = converted_folder(llm_path, config_path, cache_dir)
        make_once(folder, converted_bytes(source), lambda beside: _write(beside, source, config, layout))
    return ConvertedLM(folder, layout)


def converted_folder(llm_path: Path, config_path: Path, cache_dir: Path) -> Path:
    """Where the converted form of this content lies, or would lie."""
    return cache_dir / f"speech-lm-{_content_hash(llm_path, config_path)}"


def converted_bytes(source: TensorFile) -> int:
    """Disk that the converted form needs."""
    return sum(math.prod(shape) * source.dtypes[name].itemsize for name, shape in source.shapes.items())


def read_layout(folder: Path) -> SpeechLmLayout:
    """The layout of a converted folder, from its config.json."""
    config = read_config(folder / "config.json")
    if ARCHITECTURE not in config.get("architectures", ()):
        raise CheckpointError(
            "checkpoint.unreadable", file="config.json", reason=f"not a converted {ARCHITECTURE}"
        )
    return SpeechLmLayout(int(config["speech_codes"]), int(config["text_ids"]), int(config.get("version", 2)))


def check_tensors(source: TensorFile, config: Mapping[str, Any]) -> SpeechLmLayout:
    """Hold the file to the names and shapes that its config asks for; S is read off the speech embedding.

    Raises: CheckpointError naming the first tensor that is missing, has another shape or dtype, or is not
            known.
    """
    hidden = int(config["hidden_size"])
    if _SPEECH not in source.shapes:
        raise _misfit(source, _SPEECH, "is missing")
    speech_rows = source.shapes[_SPEECH][0]
    version = 2 if _CONTROL in source.shapes or _BIAS in source.shapes else 3
    expected = _expected_shapes(config, hidden, speech_rows, version)
    packed = _packed(source, config)
    for name in packed:
        expected.pop(f"{name.rpartition('.')[0]}.weight", None)
    for name in sorted(expected):
        if name not in source.shapes:
            if name == _TIED:
                continue  # never read: the text head is tied to the embedding and not used
            raise _misfit(source, name, "is missing")
        if tuple(source.shapes[name]) != expected[name]:
            raise _misfit(
                source, name, f"has shape {list(source.shapes[name])}, expected {list(expected[name])}"
            )
        if source.dtypes[name] not in _FLOATS:
            raise _misfit(source, name, f"holds {source.dtypes[name]}, expected float32, float16 or bfloat16")
    for name in sorted(source.shapes):
        if name not in expected and name not in packed:
            raise _misfit(source, name, "is not part of this model")
    end_ids = END_IDS if version == 2 else END_IDS_3
    if speech_rows <= end_ids:
        raise _misfit(
            source, _SPEECH, f"has {speech_rows} rows, too few to hold speech codes and {end_ids} end ids"
        )
    return SpeechLmLayout(speech_rows - end_ids, expected[_TEXT][0], version)


def _expected_shapes(
    config: Mapping[str, Any], hidden: int, speech_rows: int, version: int
) -> dict[str, tuple[int, ...]]:
    """Names and shapes of llm.pt; version 3 has its control ids among the speech rows, and no bias."""
    heads, kv_heads = int(config["num_attention_heads"]), int(config["num_key_value_heads"])
    head_dim = int(config.get("head_dim") or hidden // heads)
    q, kv, inner = heads * head_dim, kv_heads * head_dim, int(config["intermediate_size"])
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
        "self_attn.q_proj.weight": (q, hidden),
        "self_attn.q_proj.bias": (q,),
        "self_attn.k_proj.weight": (kv, hidden),
        "self_attn.k_proj.bias": (kv,),
        "self_attn.v_proj.weight": (kv, hidden),
        "self_attn.v_proj.bias": (kv,),
        "self_attn.o_proj.weight": (hidden, q),
    }
    text = (int(config["vocab_size"]), hidden)
    expected: dict[str, tuple[int, ...]] = {
        _TEXT: text,
        _TIED: text,
        _STACK + "norm.weight": (hidden,),
        _CONTROL: (CONTROL_IDS, hidden),
        _SPEECH: (speech_rows, hidden),
        _HEAD: (speech_rows, hidden),
        _BIAS: (speech_rows,),
    }
    if version == 3:
        del expected[_CONTROL], expected[_BIAS]
    for i in range(int(config["num_hidden_layers"])):
        expected.update({f"{_STACK}layers.{i}.{name}": shape for name, shape in layer.items()})
    return expected


def _packed(source: TensorFile, config: Mapping[str, Any]) -> set[str]:
    """Tensors of quantised linear layers; none unless the config says how they are quantised."""
    if not config.get("quantization_config"):
        return set()
    layers = {n for n in source.shapes if n.startswith(_STACK + "layers.")}
    return {name for name in layers if name.rpartition(".")[2] in _PACKED}


def _misfit(source: TensorFile, tensor: str, problem: str) -> CheckpointError:
    file, folder = source.path.name, source.path.parent
    return CheckpointError("checkpoint.misfit", file=file, reason=f"{tensor} {problem}", folder=folder)


def _write(folder: Path, source: TensorFile, config: Mapping[str, Any], layout: SpeechLmLayout) -> None:
    write_safetensors(folder / "model.safetensors", source, _entries(source))
    written = json.dumps(_converted_config(config, layout), indent=1)
    (folder / "config.json").write_text(written, encoding="utf-8")


def _entries(source: TensorFile) -> list[Piecewise]:
    tables = [name for name in (_SPEECH, _CONTROL, _TEXT) if name in source.shapes]
    entries = [Piecewise("model.embed_tokens.weight", tuple(tables)), Piecewise("lm_head.weight", (_HEAD,))]
    if _BIAS in source.shapes:
        entries.append(Piecewise("lm_head.bias", (_BIAS,)))
    stack = sorted(n for n in source.shapes if n.startswith(_STACK) and n != _TEXT)
    return entries + [Piecewise("model." + n.removeprefix(_STACK), (n,)) for n in stack]


def _converted_config(config: Mapping[str, Any], layout: SpeechLmLayout) -> dict[str, Any]:
    kept = {k: config[k] for k in _KEPT if k in config}
    return kept | {
        "architectures": [ARCHITECTURE],
        "vocab_size": layout.vocabulary,
        "tie_word_embeddings": False,
        "speech_codes": layout.speech_codes,
        "text_ids": layout.text_ids,
        "version": layout.version,
        "layout_version": LAYOUT_VERSION,
    }


def _content_hash(*paths: Path) -> str:
    digest = hashlib.sha256(f"speech-lm {LAYOUT_VERSION}".encode())
    for path in paths:
        with path.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()[:16]
