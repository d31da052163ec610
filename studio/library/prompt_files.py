"""Voice prompts as safetensors: read, judged and written whole. Knows no voices and no folders."""

from __future__ import annotations

import hashlib
import os
import uuid
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from studio.library.voice import Source
from studio.speech import PROMPT_MAX_S, TOKEN_RATE_HZ, VoicePrompt


def file_name(source: Source) -> str:
    """The file of a prompt in its models' folder; begins with the clip, so that all of a clip's can be found."""
    return f"{source.clip}-{hashlib.sha256(source.transcript.encode()).hexdigest()[:16]}.safetensors"


def read_prompt(file: Path, key: str, prompt_text: str) -> VoicePrompt | None:
    """The prompt of a file of ours, or None if there is none or it is damaged."""
    try:
        return _prompt(file.read_bytes(), key, prompt_text)
    except FileNotFoundError:
        return None
    except (SafetensorError, KeyError, ValueError):
        return None


def foreign_prompt(data: bytes, key: str, prompt_text: str) -> VoicePrompt | None:
    """A prompt of anybody's bytes, or None if no clip could have given it."""
    try:
        prompt = _prompt(data, key, prompt_text)
        return prompt if _is_plausible(prompt) else None
    except (SafetensorError, KeyError, ValueError, TypeError, AttributeError):
        return None


def write_prompt(file: Path, prompt: VoicePrompt) -> None:
    """Never half: under a name of its own first, then renamed."""
    tensors = {
        "speech_tokens": prompt.speech_tokens,
        "mel": prompt.mel,
        "speaker_embedding": prompt.speaker_embedding,
    }
    partial = file.with_name(f"{file.name}.{uuid.uuid4().hex}.part")
    partial.write_bytes(save(tensors))
    os.replace(partial, file)


def _prompt(data: bytes, key: str, prompt_text: str) -> VoicePrompt:
    tensors = load(data)
    parts = (tensors["speech_tokens"], tensors["mel"], tensors["speaker_embedding"])
    return VoicePrompt(key, prompt_text, *parts)


def _is_plausible(prompt: VoicePrompt) -> bool:
    tokens, floats = prompt.speech_tokens, (prompt.mel, prompt.speaker_embedding)
    if tokens.dtype != np.int32 or tokens.ndim != 1 or any(f.dtype != np.float32 for f in floats):
        return False
    if not 0 < len(tokens) / TOKEN_RATE_HZ <= PROMPT_MAX_S + 1 or tokens.min() < 0:
        return False
    return all(np.isfinite(f).all() for f in floats) and bool(prompt.speaker_embedding.any())
