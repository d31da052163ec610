"""Small random checkpoints for worker tests: the mini weights of the fixtures and stand-in ONNX models."""

from __future__ import annotations

from pathlib import Path

import torch

from studio.models.prompt.encoder import SPEAKER_FILE, TOKENIZER_FILE
from tests.parity.conftest import synthetic_weights
from tests.stand_in_onnx import write_speaker, write_tokenizer


def write_token2wav(folder: Path) -> Path:
    """What `backends.torch_token2wav` loads, in the official layout."""
    for part in ("flow", "hift"):
        torch.save(synthetic_weights("mini", part), folder / f"{part}.pt")
    (folder / "cosyvoice2.yaml").write_text("sizes: {flow: {est_head_dim: 32}}\n")
    write_speaker(folder / SPEAKER_FILE)
    write_tokenizer(folder / TOKENIZER_FILE)
    return folder
