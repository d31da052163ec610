"""What a checkpoint folder says of itself in cosyvoice2.yaml or cosyvoice3.yaml. Reads no weights.

Ours holds plain values under `checkpoint:`. The official file has tags of a Python configuration language (!new:,
!name:, !ref); they are read as plain values, so nothing in the file can run code, and its missing `checkpoint:` part
means the official model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from studio.errors import CheckpointError
from studio.speech import MODES, SOUND_TAGS, Mode, Sampling

FILE = "cosyvoice2.yaml"
FILE_3 = "cosyvoice3.yaml"
TOKENIZER_FOLDER = "CosyVoice-BlankEN"
LM_SIZES = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads",
)  # fmt: skip
"""What a speech LM's config.json must say, each a whole number."""
VOICE_ENCODERS = ("campplus.onnx", "speech_tokenizer_v2.onnx")
VOICE_ENCODERS_3 = ("campplus.onnx", "speech_tokenizer_v3.onnx")
PRESETS = "spk2info.pt"
LAYOUT: tuple[tuple[str, ...], ...] = (
    (FILE,),
    *((f"{part}.safetensors", f"{part}.pt") for part in ("llm", "flow", "hift")),
    *((name,) for name in VOICE_ENCODERS),
    (f"{TOKENIZER_FOLDER}/config.json",),
    (f"{TOKENIZER_FOLDER}/tokenizer.json", f"{TOKENIZER_FOLDER}/vocab.json"),
    (f"{TOKENIZER_FOLDER}/tokenizer.json", f"{TOKENIZER_FOLDER}/merges.txt"),
)
"""What a whole checkpoint has: one file of each row, the first where there are both."""
LAYOUT_3 = tuple(
    tuple({FILE: FILE_3, VOICE_ENCODERS[1]: VOICE_ENCODERS_3[1]}.get(name, name) for name in row) for row in LAYOUT
)
"""The same of CosyVoice3."""
SILENT_TOKENS_3 = frozenset((1, 2, 28, 29, 55, 248, 494, 2241, 2242, 2322, 2323))
OTHER_VERSIONS = {"cosyvoice.yaml": "CosyVoice 1"}
LFS_POINTER = b"version https://git-lfs"
HASHED_END_BYTES = 1 << 20
FrontendKind = Literal["raw", "spoken"]
LANGUAGES = ("en", "zh", "ja", "ko")
LANGUAGES_3 = (*LANGUAGES, "de", "es", "fr", "it", "ru")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """version: 2 or 3 of the model family. id: name in /v1/models; text_frontend: "raw" or "spoken" (text/spoken.py).

    Speech tokens of a segment are at least min_token_text_ratio and at most max_token_text_ratio times its text ids;
    most_tokens_are_end: speech of the greatest number ends there, as upstream's does, and is no error.
    sampling: what a request that names no sampling gets. modes, sound_tags, interleaved: what it honours, as in
    ServedModel. The defaults are the official model's.
    """

    folder: Path
    id: str
    text_frontend: FrontendKind = "raw"
    languages: tuple[str, ...] = LANGUAGES
    min_token_text_ratio: float = 2.0
    max_token_text_ratio: float = 20.0
    most_tokens_are_end: bool = True
    sampling: Sampling = field(default_factory=Sampling)
    modes: tuple[Mode, ...] = MODES
    sound_tags: tuple[str, ...] = SOUND_TAGS
    interleaved: bool = True
    version: int = 2

    @property
    def silent_tokens(self) -> frozenset[int]:
        """Speech tokens of silence, of which CosyVoice3 makes too many in a row."""
        return frozenset() if self.version == 2 else SILENT_TOKENS_3

    @property
    def voice_encoders(self) -> tuple[str, str]:
        """File names of the speaker encoder and the speech tokenizer."""
        return VOICE_ENCODERS if self.version == 2 else VOICE_ENCODERS_3

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
    layout = layout_of({name for name in (FILE, FILE_3) if (folder / name).is_file()})
    version, file = (2 if layout is LAYOUT else 3), folder / layout[0][0]
    if not file.is_file():
        for other, name in OTHER_VERSIONS.items():
            if (folder / other).is_file():
                raise CheckpointError("checkpoint.other_version", file=other, version=name, folder=folder)
        raise CheckpointError("checkpoint.missing_file", file=FILE, folder=folder)
    try:
        found = yaml.load(file.read_text(encoding="utf-8"), Loader=_PlainLoader)
        given: dict[str, Any] = dict((found or {}).get("checkpoint") or {})
        given["languages"] = tuple(given.get("languages") or (LANGUAGES if version == 2 else LANGUAGES_3))
        for name in {"modes", "sound_tags"} & given.keys():
            given[name] = tuple(given[name] or ())
        given["sampling"] = Sampling(**(given.get("sampling") or {}))
        checkpoint = Checkpoint(folder, **{"id": folder.resolve().name, "version": version, **given})
    except (OSError, yaml.YAMLError, UnicodeDecodeError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError("checkpoint.unreadable", file=file.name, reason=error, folder=folder) from error
    reason = ""
    if checkpoint.text_frontend not in get_args(FrontendKind):
        reason = f"text_frontend {checkpoint.text_frontend!r} is none of {', '.join(get_args(FrontendKind))}"
    if unknown := [mode for mode in checkpoint.modes if mode not in MODES]:
        reason = f"mode {unknown[0]!r} is none of {', '.join(MODES)}"
    if reason:
        raise CheckpointError("checkpoint.unreadable", file=file.name, reason=reason, folder=folder)
    return checkpoint


def read_config(path: Path) -> dict[str, Any]:
    """A config.json as a table. Raises CheckpointError if it is missing or no JSON object."""
    if not path.is_file():
        raise CheckpointError("checkpoint.missing_file", file=path.name, folder=path.parent)
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError("checkpoint.unreadable", file=path.name, reason=error) from error
    if not isinstance(config, dict):
        raise CheckpointError("checkpoint.unreadable", file=path.name, reason="it is no JSON object")
    return config


def read_lm_config(path: Path) -> dict[str, Any]:
    """The config.json of the tokenizer folder, with the speech LM's sizes. Raises CheckpointError for a bad one."""
    config = read_config(path)
    if config.get("head_dim") is None:  # what Qwen2's own reader takes for none
        config.pop("head_dim", None)
    for name in (*LM_SIZES, *(("head_dim",) if "head_dim" in config else ())):
        if type(config.get(name)) is not int or config[name] < 1:
            reason = f"{name} is {config[name]!r}" if name in config else f"it has no {name}"
            raise CheckpointError("checkpoint.unreadable", file=path.name, reason=reason)
    return config


def weight_file(folder: Path, part: str) -> Path:
    """The weights of llm, flow or hift: safetensors before the official .pt. Raises CheckpointError for neither."""
    for suffix in (".safetensors", ".pt"):
        if (folder / (part + suffix)).is_file():
            return folder / (part + suffix)
    raise CheckpointError("checkpoint.missing_file", file=f"{part}.pt", folder=folder)


def layout_of(present: Collection[str]) -> tuple[tuple[str, ...], ...]:
    """The layout of the version that the names of a folder or a listing show; CosyVoice2's where nothing does."""
    return LAYOUT_3 if FILE_3 in present and FILE not in present else LAYOUT


def wanted_files(present: Collection[str]) -> tuple[list[str], str | None]:
    """Of the file names of a folder or a listing, those that are read, and the first that is missing."""
    wanted, missing = [], None
    for row in layout_of(present):
        name = next((name for name in row if name in present), None)
        if name is None:
            missing = missing or row[-1]
        elif name not in wanted:
            wanted.append(name)
    return wanted + [name for name in (PRESETS,) if name in present], missing


def check_files(folder: Path) -> list[Path]:
    """The files that are read, all there. Looks at names and first bytes; whether weights fit is for who reads them.

    Raises: CheckpointError for the first that is missing, unreadable, empty or a pointer.
    """
    present = {str(p.relative_to(folder)) for p in (*folder.glob("*"), *folder.glob(f"{TOKENIZER_FOLDER}/*"))}
    wanted, missing = wanted_files(present)
    if missing:
        raise CheckpointError("checkpoint.missing_file", file=missing, folder=folder)
    for name in wanted:
        check_file(folder, name)
    return [folder / name for name in wanted]


def check_file(folder: Path, name: str) -> None:
    """Raises CheckpointError if a file is missing, may not be read, is empty or a clone's pointer without Git LFS."""
    if not (folder / name).is_file():
        raise CheckpointError("checkpoint.missing_file", file=name, folder=folder)
    try:
        with (folder / name).open("rb") as file:
            head = file.read(len(LFS_POINTER))
    except OSError as error:
        reason = error.strerror or str(error)
        raise CheckpointError("checkpoint.no_access", file=name, folder=folder, reason=reason) from error
    if head == LFS_POINTER:
        raise CheckpointError("checkpoint.pointer", file=name, folder=folder)
    if not head:
        raise CheckpointError("checkpoint.damaged", file=name, folder=folder)


def fingerprint(checkpoint: Checkpoint) -> str:
    """What voice prompts are bound to: the checkpoint's id and the models that encode clips.

    Of each model the size and both ends are hashed, since the official ones are too large to be read whole at a start;
    a missing one is left to the worker to tell.
    """
    digest = hashlib.sha256()
    for name in checkpoint.voice_encoders:
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
