"""Bring the trained prompt encoders back from the checkpoint's ONNX files, so that a flow can be trained for them.

    python -m studio.training.recover assets/voice .carry/lease2

Writes speech_tokenizer.pt and speaker_encoder.pt as their trainers do. Nothing is lost: the ONNX files hold the
trainers' fp16 values.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from studio.models.prompt.speaker_encoder import SpeakerEncoder, SpeakerEncoderSize
from studio.models.prompt.speech_tokenizer import SpeechTokenizer, SpeechTokenizerSize
from studio.training.stepping import save_weights


def read_parameters(path: Path) -> dict[str, Tensor]:
    """The parameters of an exported network by their names in torch, float32.

    The exporter keeps the name of a parameter, except where it transposed one for a product: that is named after
    nothing, but the product's node is named after its layer.
    """
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(str(path)).graph
    values = {
        weight.name.removesuffix(".half"): numpy_helper.to_array(weight).astype(np.float32)
        for weight in graph.initializer
    }
    found = {name: value for name, value in values.items() if not name.startswith("onnx::")}
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in values:
            layer = node.name.strip("/").rpartition("/")[0].replace("/", ".")
            found[f"{layer}.weight"] = values[node.input[1]].T
    return {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in found.items()}


def restore(network: nn.Module, parameters: dict[str, Tensor], path: Path) -> None:
    """Raises: ValueError naming a parameter that the file lacks, or has and the network does not."""
    counters = {name for name in network.state_dict() if name.endswith("num_batches_tracked")}
    missing, unknown = network.load_state_dict(parameters, strict=False)
    wrong = [*(set(missing) - counters), *unknown]
    if wrong:
        raise ValueError(f"{path.name} does not hold the network: {min(wrong)}")


def recover_tokenizer(source: Path, target: Path) -> None:
    parameters = read_parameters(source)
    size = SpeechTokenizerSize(
        dim=len(parameters["norm.weight"]),
        blocks=sum(name.endswith(".qkv.weight") for name in parameters),
        code_dims=len(parameters["to_code.bias"]),
    )
    tokenizer = SpeechTokenizer(size)
    restore(tokenizer, parameters, source)
    meta = {"dim": size.dim, "blocks": size.blocks, "code_dims": size.code_dims, "head_dim": size.head_dim}
    save_weights(target, tokenizer.state_dict(), meta)


def recover_speaker_encoder(source: Path, target: Path) -> None:
    parameters = read_parameters(source)
    size = SpeakerEncoderSize(channels=len(parameters["enter.bias"]))
    encoder = SpeakerEncoder(size)
    restore(encoder, parameters, source)
    save_weights(target, encoder.state_dict(), {"channels": size.channels})


def main() -> None:
    parser = argparse.ArgumentParser(description="Recover the prompt encoders from a checkpoint.")
    parser.add_argument(
        "folder", type=Path, help="checkpoint with campplus.onnx and speech_tokenizer_v2.onnx"
    )
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    recover_tokenizer(args.folder / "speech_tokenizer_v2.onnx", args.out / "speech_tokenizer.pt")
    recover_speaker_encoder(args.folder / "campplus.onnx", args.out / "speaker_encoder.pt")


if __name__ == "__main__":
    main()
