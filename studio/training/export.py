"""Turn trained prompt encoders into the ONNX files of the checkpoint layout, and check them against torch.

python -m studio.training.export OUT/speech_tokenizer.pt OUT/speaker_encoder.pt assets/voice
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn

from studio.training.encode import load_speaker_encoder, load_tokenizer


def _check(path: Path, network: nn.Module, inputs: tuple[torch.Tensor, ...], exact: bool) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_inputs()]
    got = session.run(None, dict(zip(names, (value.numpy() for value in inputs), strict=False)))[0]
    with torch.no_grad():
        wanted = network(*inputs).numpy()
    same = (got == wanted).mean() >= 0.99 if exact else np.abs(got - wanted).max() < 1e-3
    if got.shape != wanted.shape or not same:
        raise ValueError(f"{path} differs from the trained network")


def export_tokenizer(weights: Path, target: Path) -> None:
    """Inputs: features float32 [1, 128, T], length int32 [1]; output: ids int64 [1, T // 4]."""
    tokenizer = load_tokenizer(weights, "cpu")
    example = (torch.randn(1, 128, 322), torch.tensor([322], dtype=torch.int32))
    torch.onnx.export(
        tokenizer,
        example,
        str(target),
        dynamo=False,
        opset_version=17,
        input_names=["features", "length"],
        output_names=["ids"],
        dynamic_axes={"features": {2: "frames"}, "ids": {1: "tokens"}},
    )
    for frames in (101, 322, 3000):
        _check(
            target,
            tokenizer,
            (torch.randn(1, 128, frames), torch.tensor([frames], dtype=torch.int32)),
            exact=True,
        )


def export_speaker_encoder(weights: Path, target: Path) -> None:
    """Input: filter banks float32 [1, T, 80], mean removed; output: embedding float32 [1, 192]."""
    encoder = load_speaker_encoder(weights, "cpu")
    torch.onnx.export(
        encoder,
        (torch.randn(1, 300, 80),),
        str(target),
        dynamo=False,
        opset_version=17,
        input_names=["features"],
        output_names=["embedding"],
        dynamic_axes={"features": {1: "frames"}},
    )
    for frames in (98, 300, 2998):
        _check(target, encoder, (torch.randn(1, frames, 80),), exact=False)


def main() -> None:
    parser = argparse.ArgumentParser(description="Export the prompt encoders to ONNX.")
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("speaker", type=Path)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    export_tokenizer(args.tokenizer, args.folder / "speech_tokenizer_v2.onnx")
    export_speaker_encoder(args.speaker, args.folder / "campplus.onnx")


if __name__ == "__main__":
    main()
