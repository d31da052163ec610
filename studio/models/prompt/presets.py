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
from studio.speech import MEL_BINS, MEL_FRAMES_PER_TOKEN, SPEAKER_DIM, TOKEN_RATE_HZ, Float32, VoicePrompt

EMBEDDINGS = ("embedding", "flow_embedding")
"""Names of the speaker embedding: of a preset, and of a voice that upstream's own page has saved."""
TOKENS, MEL = "flow_prompt_speech_token", "prompt_speech_feat"
MOST_VOICES = 1000
MOST_TOKENS = 31 * TOKEN_RATE_HZ
"""A prompt has 30 s at most, and the models round up."""


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
    if len(stored) > MOST_VOICES:
        raise _misfit(folder, f"holds {len(stored)} voices, and {MOST_VOICES} are read at most")
    return {str(name): _voice(folder, str(name), entry) for name, entry in stored.items()}


def read_uploaded(data: bytes, codes: int) -> dict[str, VoicePrompt]:
    """The voices of such a file that somebody sent. codes: speech tokens that the models know.

    Raises: CheckpointError as `read_presets`, also for voices of models that know more.
    """
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / PRESETS).write_bytes(data)
        voices = read_presets(Path(folder))
        for name, voice in voices.items():
            if (token := int(voice.speech_tokens.max(initial=0))) >= codes:
                reason = f"{name!r} is of other models: its speech token {token} is not below {codes}"
                raise _misfit(Path(folder), reason)
        return voices


def _voice(folder: Path, name: str, entry: Any) -> VoicePrompt:
    if not isinstance(entry, Mapping):
        raise _misfit(folder, f"{name!r} is a {type(entry).__name__}, not a voice")
    found = next((entry[key] for key in EMBEDDINGS if isinstance(entry.get(key), torch.Tensor)), None)
    if found is None or found.numel() != SPEAKER_DIM:
        raise _misfit(folder, f"{name!r} has no speaker embedding of {SPEAKER_DIM} finite values")
    tokens, mel = np.zeros(0, np.int32), np.zeros((0, MEL_BINS), np.float32)
    try:
        embedding = _values(found, SPEAKER_DIM)
        if isinstance(entry.get(TOKENS), torch.Tensor) and isinstance(entry.get(MEL), torch.Tensor):
            tokens = _values(entry[TOKENS], MOST_TOKENS).astype(np.int32)
            frames = _values(entry[MEL], MOST_TOKENS * MEL_FRAMES_PER_TOKEN * MEL_BINS).reshape(-1, MEL_BINS)
            count = min(len(tokens), len(frames) // MEL_FRAMES_PER_TOKEN)
            tokens, mel = tokens[:count].copy(), frames[: MEL_FRAMES_PER_TOKEN * count].copy()
        if (tokens < 0).any():
            raise ValueError("negative speech tokens")
    except (RuntimeError, TypeError, ValueError) as error:
        raise _misfit(folder, f"{name!r} is no voice: {error}") from error
    digest = hashlib.sha256(embedding.tobytes() + tokens.tobytes() + mel.tobytes()).hexdigest()
    return VoicePrompt(f"preset-{digest[:24]}", "", tokens, mel, embedding)


def _values(tensor: torch.Tensor, most: int) -> Float32:
    """A tensor's values [n]. Raises ValueError for too many, before they take memory, and for NaN and infinity.

    An expanded tensor of any size is a few bytes in the file.
    """
    if tensor.numel() > most:
        raise ValueError(f"a tensor has {tensor.numel()} values, more than the {most} of 31 s")
    values: Float32 = tensor.detach().reshape(-1).float().numpy().copy()
    if not np.isfinite(values).all():
        raise ValueError("its values are not all finite")
    return values


def _misfit(folder: Path, reason: str) -> CheckpointError:
    return CheckpointError("checkpoint.misfit", file=PRESETS, folder=folder, reason=reason)
