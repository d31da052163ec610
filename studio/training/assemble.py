"""Make the checkpoint folder of the embedded voice from trained parts: the official layout, fp16, with its card.

python -m studio.training.assemble PARTS assets/voice     (PARTS holds the trainers' *.pt files)
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import torch
import yaml
from safetensors.torch import save_file
from torch import Tensor

from studio.models.flow.sizes import FlowConfig
from studio.models.speech_lm.layout import END_IDS
from studio.models.speech_lm.qwen2 import SpeechLmSizes
from studio.training.stepping import load_weights
from studio.training.text import write_tokenizer

CHECKPOINT_ID = "cosyvoice-studio-starter"
LIMIT_BYTES = 60_000_000
UNUSED_BIAS = -30.0
"""Score of a code that the tokenizer never gave: never drawn, and finite in fp16."""
MIN_TOKEN_TEXT_RATIO, MAX_TOKEN_TEXT_RATIO = 0.5, 8.0
SAMPLING = {"top_p": 0.6, "window": 0}
"""Best of seven laws (`lm_decoding`): so few codes do repeat within 10 tokens, and the repetition rule breaks words."""


def expand_codes(tensors: Mapping[str, Tensor], codes: list[int], speech_codes: int) -> dict[str, Tensor]:
    """The LM's tensors over all `speech_codes` ids, trained rows at their codes, the rest silent."""
    wide = dict(tensors)
    rows = torch.tensor([*codes, *range(speech_codes, speech_codes + END_IDS)])
    for name in ("speech_embedding.weight", "llm_decoder.weight"):
        wide[name] = torch.zeros(speech_codes + END_IDS, tensors[name].shape[1]).index_copy(
            0, rows, tensors[name]
        )
    bias = torch.full((speech_codes + END_IDS,), UNUSED_BIAS)
    wide["llm_decoder.bias"] = bias.index_copy(0, rows, tensors["llm_decoder.bias"])
    return wide


def write_half(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write fp16 safetensors. Raises ValueError if a value is not finite in fp16."""
    half = {name: tensor.half().contiguous() for name, tensor in tensors.items()}
    for name, tensor in half.items():
        if not torch.isfinite(tensor).all():
            raise ValueError(f"{path.name}: {name} is not finite in half precision")
    save_file(half, path, metadata={"format": "pt"})


def write_lm(part: Path, folder: Path, speech_codes: int) -> dict[str, int]:
    """llm.safetensors and the tokenizer folder; gives the `sizes: llm:` entry."""
    tensors, meta = load_weights(part)
    sizes = SpeechLmSizes(**meta["sizes"])
    codes = [int(c) for c in meta["codes"]]
    write_half(expand_codes(tensors, codes, speech_codes), folder / "llm.safetensors")
    write_tokenizer(folder / "CosyVoice-BlankEN", sizes.qwen_config())
    return {
        "hidden": sizes.hidden, "layers": sizes.layers, "heads": sizes.heads, "kv_heads": sizes.kv_heads,
        "inter": sizes.ffn, "text_vocab": sizes.text_vocab,
    }  # fmt: skip


def write_flow(part: Path, folder: Path) -> tuple[dict[str, object], int]:
    """flow.safetensors; gives the `sizes: flow:` entry and the number of speech codes."""
    tensors, meta = load_weights(part)
    config = FlowConfig(**meta["config"])
    write_half(tensors, folder / "flow.safetensors")
    sizes = {
        "enc_dim": config.encoder_dim, "enc_heads": config.encoder_heads, "enc_ff": config.encoder_feed_forward,
        "enc_blocks": config.encoder_blocks, "up_blocks": config.upsampled_blocks, "chunk": 25,
        "est_channels": [config.estimator_channels], "est_heads": config.estimator_heads,
        "est_head_dim": config.estimator_head_dim, "est_n_blocks": config.estimator_transformers,
        "est_mid": config.estimator_mid_blocks,
    }  # fmt: skip
    return sizes, config.speech_tokens


def write_half_onnx(source: Path, target: Path, least_values: int = 256) -> None:
    """Copy an ONNX file with its large weights in fp16, cast back to fp32 when it is loaded (onnxruntime folds it).

    Trained weights come in fp16 (`stepping.save_weights`), so this loses next to nothing and halves the file.
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    model = onnx.load(str(source))
    casts = []
    for weight in model.graph.initializer:
        values = numpy_helper.to_array(weight)
        if weight.data_type != TensorProto.FLOAT or values.size < least_values:
            continue
        name = weight.name
        weight.CopyFrom(numpy_helper.from_array(values.astype("float16"), name + ".half"))
        casts.append(helper.make_node("Cast", [name + ".half"], [name], to=TensorProto.FLOAT))
    for place, node in enumerate(casts):
        model.graph.node.insert(place, node)
    if target.name.startswith("speech_tokenizer") and len(model.graph.input) == 1:
        # the exporter leaves out what the network does not use, but the layout has a length beside the features
        model.graph.input.append(helper.make_tensor_value_info("length", TensorProto.INT32, [1]))
    onnx.checker.check_model(model)
    onnx.save(model, str(target))


def write_description(folder: Path, sizes: Mapping[str, object], speech_codes: int) -> None:
    content = {
        "checkpoint": {
            "id": CHECKPOINT_ID, "text_frontend": "spoken", "languages": ["en", "zh"],
            "min_token_text_ratio": MIN_TOKEN_TEXT_RATIO, "max_token_text_ratio": MAX_TOKEN_TEXT_RATIO,
            "most_tokens_are_end": False,
            "sampling": SAMPLING,
        },
        "sizes": {"speech_vocab": speech_codes, "spk_dim": 192, **sizes},
    }  # fmt: skip
    note = "# The embedded voice, read by studio/checkpoint.py; sizes are for people: loaders read shapes.\n"
    (folder / "cosyvoice2.yaml").write_text(note + yaml.safe_dump(content, sort_keys=False), encoding="utf8")


CARD = """# Model card: the starter voice of CosyVoice Studio

A small checkpoint in CosyVoice 2's file layout, trained from nothing for this project, so that the studio speaks on
a machine without a GPU and without a download. It is a starter voice: it is not on a par with the official model.

## What it is
Speech LM {lm_m:.1f} M parameters, flow {flow_m:.1f} M, vocoder {hift_m:.1f} M, fp16; speech tokenizer and speaker
encoder are ONNX files.
Text is read as sounds (English phonemes by a lexicon, Mandarin syllables), not as letters: `studio/text/spoken.py`.

## Data and licences
Synthetic speech only, of Kokoro-82M (Apache-2.0) and mixes of its voices; English texts of WordNet 3.0 (its licence)
and own templates; Mandarin of own templates with jieba's words (MIT). Lexicon: misaki (Apache-2.0). No recording of
a person was made or used for training. Kokoro's author says that its training data is permissive and largely synthetic.

## Figures
See `docs/evaluation.md`.

## Limits
English and Mandarin. Real voices are cloned only roughly; emotion, singing and noise are not cloned. Prompts of
4 to 10 s work best. Do not clone a voice without its owner's consent.
"""


def write_card(folder: Path) -> None:
    """A MODEL_CARD.md with the parameter counts filled in; an existing one is left alone."""
    card = folder / "MODEL_CARD.md"
    if card.exists():
        return
    counts = {
        f"{n}_m": (folder / f"{f}.safetensors").stat().st_size / 2e6
        if (folder / f"{f}.safetensors").exists()
        else 0.0
        for n, f in (("lm", "llm"), ("flow", "flow"), ("hift", "hift"))
    }
    card.write_text(CARD.format(**counts), encoding="utf8")


def assemble(parts: Path, folder: Path, speech_codes: int | None = None, lm_name: str = "speech_lm") -> int:
    """Write all parts that are there; gives the bytes of the folder.

    Raises: ValueError if the folder would pass 60 MB, or the parts do not agree on the speech codes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sizes: dict[str, object] = {}
    sizes["flow"], flow_codes = write_flow(parts / "flow.pt", folder)
    if speech_codes not in (None, flow_codes):
        raise ValueError(f"the flow knows {flow_codes} speech codes, not {speech_codes}")
    if (parts / "hift.pt").exists():
        tensors, meta = load_weights(parts / "hift.pt")
        write_half(tensors, folder / "hift.safetensors")
        sizes["hift"] = {"base": meta["base"], "f0_channels": meta["f0_channels"]}
    sizes["llm"] = write_lm(parts / f"{lm_name}.pt", folder, flow_codes)
    for name in ("campplus.onnx", "speech_tokenizer_v2.onnx"):
        if (parts / name).exists():
            write_half_onnx(parts / name, folder / name)
    write_description(folder, sizes, flow_codes)
    write_card(folder)
    total = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if total > LIMIT_BYTES:
        raise ValueError(f"{folder} holds {total / 1e6:.1f} MB, more than {LIMIT_BYTES / 1e6:.0f} MB")
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description="Assemble the checkpoint folder.")
    parser.add_argument(
        "parts", type=Path, help="folder with flow.pt, speech_lm.pt, hift.pt and the two ONNX files"
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--lm", default="speech_lm", help="name of the LM's file")
    args = parser.parse_args()
    total = assemble(args.parts, args.folder, lm_name=args.lm)
    for path in sorted(args.folder.rglob("*")):
        if path.is_file():
            print(f"{path.stat().st_size:>11,} {path.relative_to(args.folder)}")
    print(f"{total:>11,} in all")


if __name__ == "__main__":
    main()
