"""The checkpoint's own text tokenizer, read from its folder; text ids only, no speech ids."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from studio.errors import CheckpointError
from studio.speech import SOUND_TAGS

_QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How Qwen2 parts a text before its byte-level merges."""

_QWEN2_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
END_OF_PROMPT = "<|endofprompt|>"
COSYVOICE2_SPECIAL = (END_OF_PROMPT, *SOUND_TAGS)
"""Tags that CosyVoice2 adds behind Qwen2's own, in this order; they are in no file of the checkpoint."""
COSYVOICE3_SOUNDS = tuple((Path(__file__).parent / "cosyvoice3_sounds.txt").read_text(encoding="utf-8").split())
"""Phones (ARPAbet) and parts of pinyin by which a text for CosyVoice3 sets a pronunciation, in their ids' order."""
COSYVOICE3_SPECIAL = (*COSYVOICE2_SPECIAL, "<|endofsystem|>", *COSYVOICE3_SOUNDS)


def load_tokenizer(folder: Path, version: int = 2) -> Tokenizer:
    """The tokenizer of a checkpoint's tokenizer folder: its tokenizer.json, or vocab.json and merges.txt of Qwen2.

    Raises: CheckpointError naming the file that is missing or unreadable.
    """
    whole, vocab, merges = (folder / name for name in ("tokenizer.json", "vocab.json", "merges.txt"))
    if not whole.is_file() and not vocab.is_file():
        raise CheckpointError("checkpoint.missing_file", file=whole.name, folder=folder)
    if not whole.is_file() and not merges.is_file():
        raise CheckpointError("checkpoint.missing_file", file=merges.name, folder=folder)
    file = whole if whole.is_file() else vocab
    try:
        return Tokenizer.from_file(str(whole)) if file is whole else _qwen2(vocab, merges, version)
    except Exception as error:  # tokenizers raises bare Exception
        raise CheckpointError("checkpoint.unreadable", file=file.name, reason=error, folder=folder) from error


def text_ids(tokenizer: Tokenizer, text: str) -> tuple[int, ...]:
    """Ids of a text, nothing added before or behind."""
    return tuple(tokenizer.encode(text, add_special_tokens=False).ids)


def _qwen2(vocab_file: Path, merges_file: Path, version: int) -> Tokenizer:
    vocab = json.loads(vocab_file.read_text(encoding="utf-8"))
    lines = merges_file.read_text(encoding="utf-8").splitlines()
    pairs = (line.partition(" ") for line in lines if line and not line.startswith("#version"))
    merges = [(left, right) for left, _, right in pairs]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, byte_fallback=False))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_QWEN2_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    added = COSYVOICE2_SPECIAL if version == 2 else COSYVOICE3_SPECIAL
    tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t in (*_QWEN2_SPECIAL, *added)])
    return tokenizer
