"""What a checkpoint folder says of itself in cosyvoice2.yaml. Reads no weights.

Ours holds plain values under `checkpoint:`. The official file has tags of a Python configuration language (!new:,
!name:, !ref); they are read as plain values, so nothing in the file can run code, and its missing `checkpoint:` part
means the official model.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from studio.errors import CheckpointError
from studio.speech import MODES, SOUND_TAGS, Mode, Sampling

FILE = "cosyvoice2.yaml"
TOKENIZER_FOLDER = "CosyVoice-BlankEN"
VOICE_ENCODERS = ("campplus.onnx", "speech_tokenizer_v2.onnx")
HASHED_END_BYTES = 1 << 20
FrontendKind = Literal["raw", "spoken"]
LANGUAGES = ("en", "zh", "ja", "ko")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """id: name in /v1/models; text_frontend: "raw" or "spoken" (text/spoken.py).

    Speech tokens of a segment are at least min_token_text_ratio and at most max_token_text_ratio times its text ids.
    sampling: what a request that names no sampling gets. modes, sound_tags, interleaved: what it honours, as in
    ServedModel. The defaults are the official model's.
    """

    folder: Path
    id: str
    text_frontend: FrontendKind = "raw"
    languages: tuple[str, ...] = LANGUAGES
    min_token_text_ratio: float = 2.0
    max_token_text_ratio: float = 20.0
    sampling: Sampling = field(default_factory=Sampling)
    modes: tuple[Mode, ...] = MODES
    sound_tags: tuple[str, ...] = SOUND_TAGS
    interleaved: bool = True

    @property
    def tokenizer_folder(self) -> Path:
        return self.folder / TOKENIZER_FOLDER


class _PlainLoader(yaml.SafeLoader):
    """YAML whose unknown tags are read as the plain value they stand on."""


def _plain(loader: yaml.SafeLoader, _tag: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return loader.construct_scalar(node)


_PlainLoader.add_multi_constructor("!", _plain)


def read_checkpoint(folder: Path) -> Checkpoint:
    """The folder's description. Raises CheckpointError, naming the file and what is wrong with it."""
    file = folder / FILE
    if not file.is_file():
        raise CheckpointError("checkpoint.missing_file", file=FILE, folder=folder)
    try:
        found = yaml.load(file.read_text(encoding="utf-8"), Loader=_PlainLoader)
        given: dict[str, Any] = dict((found or {}).get("checkpoint") or {})
        given["languages"] = tuple(given.get("languages") or LANGUAGES)
        for name in {"modes", "sound_tags"} & given.keys():
            given[name] = tuple(given[name] or ())
        given["sampling"] = Sampling(**(given.get("sampling") or {}))
        checkpoint = Checkpoint(folder, **{"id": folder.resolve().name, **given})
    except (yaml.YAMLError, UnicodeDecodeError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError("checkpoint.unreadable", file=FILE, reason=error, folder=folder) from error
    reason = ""
    if checkpoint.text_frontend not in get_args(FrontendKind):
        reason = f"text_frontend {checkpoint.text_frontend!r} is none of {', '.join(get_args(FrontendKind))}"
    if unknown := [mode for mode in checkpoint.modes if mode not in MODES]:
        reason = f"mode {unknown[0]!r} is none of {', '.join(MODES)}"
    if reason:
        raise CheckpointError("checkpoint.unreadable", file=FILE, reason=reason, folder=folder)
    return checkpoint


def fingerprint(checkpoint: Checkpoint) -> str:
    """What voice prompts are bound to: the checkpoint's id and the models that encode clips.

    Of each model the size and both ends are hashed, since the official ones are too large to be read whole at a start;
    a missing one is left to the worker to tell.
    """
    digest = hashlib.sha256()
    for name in VOICE_ENCODERS:
        file = checkpoint.folder / name
        if not file.is_file():
            continue
        size = file.stat().st_size
        digest.update(f"{name}:{size}:".encode())
        with file.open("rb") as model:
            digest.update(model.read(HASHED_END_BYTES))
            model.seek(max(0, size - HASHED_END_BYTES))
            digest.update(model.read(HASHED_END_BYTES))
    return f"{checkpoint.id}:{digest.hexdigest()[:16]}"
