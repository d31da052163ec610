"""Preset voices of a checkpoint, from its spk2info.pt, read with weights only. Encodes nothing."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from studio.checkpoint import PRESETS
from studio.errors import CheckpointError
from studio.models.pickle_file import read_pickle
from studio.speech import MEL_BINS, MEL_FRAMES_PER_TOKEN, SPEAKER_DIM, Float32, VoicePrompt

EMBEDDINGS = ("embedding", "flow_embedding")
"""Names of the speaker embedding: of a preset, and of a voice that upstream's own page has saved."""
TOKENS, MEL = "flow_prompt_speech_token", "prompt_speech_feat"


def read_presets(folder: Path) -> dict[str, VoicePrompt]:
    """Each voice by its name; {} if the checkpoint has none.

    A preset is an embedding alone. A voice saved by upstream has prompt speech too, but its transcript as ids only, so
    it speaks without one.

    Raises: CheckpointError if the file holds code, is damaged, or has an entry that is no voice.
    """
    if not (folder / PRESETS).is_file():
        return {}
    stored = read_pickle(folder / PRESETS)
    if not isinstance(stored, Mapping):
        raise _misfit(folder, f"holds a {type(stored).__name__}, not voices by name")
    return {str(name): _voice(folder, str(name), entry) for name, entry in stored.items()}


def read_uploaded(data: bytes) -> dict[str, VoicePrompt]:
    """The voices of such a file that somebody sent. Raises CheckpointError as `read_presets`."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / PRESETS).write_bytes(data)
        return read_presets(Path(folder))


def _voice(folder: Path, name: str, entry: Any) -> VoicePrompt:
    if not isinstance(entry, Mapping):
        raise _misfit(folder, f"{name!r} is a {type(entry).__name__}, not a voice")
    found = next((entry[key] for key in EMBEDDINGS if isinstance(entry.get(key), torch.Tensor)), None)
    if found is None or found.numel() != SPEAKER_DIM or not bool(torch.isfinite(found.float()).all()):
        raise _misfit(folder, f"{name!r} has no speaker embedding of {SPEAKER_DIM} finite values")
    tokens, mel = np.zeros(0, np.int32), np.zeros((0, MEL_BINS), np.float32)
    if isinstance(entry.get(TOKENS), torch.Tensor) and isinstance(entry.get(MEL), torch.Tensor):
        tokens = entry[TOKENS].reshape(-1).numpy().astype(np.int32)
        mel = entry[MEL].reshape(-1, MEL_BINS).float().numpy()
        count = min(len(tokens), len(mel) // MEL_FRAMES_PER_TOKEN)
        tokens, mel = tokens[:count].copy(), mel[: MEL_FRAMES_PER_TOKEN * count].copy()
    embedding: Float32 = found.float().reshape(-1).numpy().copy()
    digest = hashlib.sha256(embedding.tobytes() + tokens.tobytes() + mel.tobytes()).hexdigest()
    return VoicePrompt(f"preset-{digest[:24]}", "", tokens, mel, embedding)


def _misfit(folder: Path, reason: str) -> CheckpointError:
    return CheckpointError("checkpoint.misfit", file=PRESETS, folder=folder, reason=reason)
