"""Pack what the speech LM is trained on into one small file: speech tokens, text variants, phonemes of each token.

Runs where the lexicon is (no GPU); the trainer then needs numpy and torch alone. It does not tokenise audio.
"""

from __future__ import annotations

import argparse
import json
import random
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from studio.training.corpus import Clip, phoneme_labels, read_index
from studio.training.text import Word, clip_words, encode

VARIANTS = ("read", "said", "spelled")
"""As the studio will read the text; half of the words as the teacher said them; some English words in letters."""
SAID_SHARE, SPELLED_SHARE = 0.5, 0.25
PROGRESS_STEPS = 32
LANGUAGES = ("en", "zh")


@dataclass(frozen=True, slots=True, eq=False)
class LmData:
    """All clips, flat. Row i of `tokens` is tokens[token_starts[i] : token_starts[i + 1]], and so on.

    codes: the speech codes in use, sorted; `tokens` are places in this list. labels: 50 Hz phoneme classes, two a token.
    texts: per variant, flat ids and starts.
    """

    tokens: NDArray[np.uint16]
    labels: NDArray[np.uint8]
    progress: NDArray[np.uint8]
    token_starts: NDArray[np.int64]
    texts: tuple[NDArray[np.uint16], ...]
    text_starts: tuple[NDArray[np.int64], ...]
    speaker: NDArray[np.int16]
    language: NDArray[np.uint8]
    validation: NDArray[np.bool_]
    text_key: NDArray[np.uint32]
    codes: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.speaker)

    def speech(self, i: int) -> NDArray[np.uint16]:
        return self.tokens[self.token_starts[i] : self.token_starts[i + 1]]

    def text(self, i: int, variant: int) -> NDArray[np.uint16]:
        starts = self.text_starts[variant]
        return self.texts[variant][starts[i] : starts[i + 1]]


def read_tokens(path: Path) -> dict[str, NDArray[np.int64]]:
    """Clip id -> speech tokens, from an npz of `ids`, flat `tokens` and `lengths`."""
    with np.load(path) as file:
        ends = np.cumsum(file["lengths"])
        pieces = np.split(file["tokens"].astype(np.int64), ends[:-1])
        return dict(zip(file["ids"].tolist(), pieces, strict=True))


def write_tokens(path: Path, tokens: dict[str, NDArray[np.int64]]) -> None:
    lengths = np.array([len(t) for t in tokens.values()], dtype=np.int32)
    flat = np.concatenate(list(tokens.values())).astype(np.uint16)
    np.savez_compressed(path, ids=np.array(list(tokens)), tokens=flat, lengths=lengths)


def stand_in_tokens(clips: Iterable[Clip], codes: int = 729) -> dict[str, NDArray[np.int64]]:
    """Made-up tokens that depend on the phonemes spoken and a little noise: for trials before a tokenizer exists."""
    made = {}
    for clip in clips:
        labels = phoneme_labels(clip, 50).reshape(-1, 2)
        noise = np.random.default_rng(zlib.crc32(clip.id.encode())).integers(0, 4, len(labels))
        made[clip.id] = (labels[:, 0] * 37 + labels[:, 1] * 5 + noise) % codes
    return made


def text_variant(words: Sequence[Word], variant: str, rng: random.Random) -> list[int]:
    """Text ids of a clip; every word, but no mark, has one blank before it."""
    ids: list[int] = []
    for word in words:
        sounds = word.read
        if variant != "read" and word.said and rng.random() < SAID_SHARE:
            sounds = word.said
        if variant == "spelled" and word.spelled and rng.random() < SPELLED_SHARE:
            sounds = word.spelled
        ids.extend(encode(sounds if sounds in ",.?!;:" else " " + sounds))
    return ids


def token_progress(clip: Clip) -> NDArray[np.uint8]:
    """How far through the phonemes each token is, in steps of 1/32."""
    ends = np.cumsum(clip.durations)
    centres = (np.arange(clip.tokens) + 0.5) * 40 / 25
    place = np.searchsorted(ends, centres, side="right")
    return np.minimum(place * PROGRESS_STEPS // len(clip.durations), PROGRESS_STEPS - 1).astype(np.uint8)


def pack(clips: Sequence[Clip], tokens: dict[str, NDArray[np.int64]], path: Path) -> LmData:
    """Write the file; clips without tokens are left out. A clip may lose its last token to rounding, not more.

    Raises: ValueError if a clip's tokens are not as many as its length asks for.
    """
    kept = [c for c in clips if c.id in tokens and c.tokens > 4]
    codes = np.unique(np.concatenate([tokens[c.id] for c in kept]))
    speakers = {name: i for i, name in enumerate(sorted({c.speaker for c in kept}))}
    speech, labels, progress, texts = [], [], [], [[] for _ in VARIANTS]
    for clip in kept:
        count = min(len(tokens[clip.id]), clip.tokens)
        if abs(len(tokens[clip.id]) - clip.tokens) > 1:
            raise ValueError(f"clip {clip.id} has {len(tokens[clip.id])} tokens, expected {clip.tokens}")
        speech.append(np.searchsorted(codes, tokens[clip.id][:count]).astype(np.uint16))
        labels.append(phoneme_labels(clip, 50)[: 2 * count].astype(np.uint8))
        progress.append(token_progress(clip)[:count])
        words = clip_words(clip)
        rng = random.Random(clip.id)
        for made, variant in zip(texts, VARIANTS, strict=True):
            made.append(np.array(text_variant(words, variant, rng), dtype=np.uint16))
    arrays = {
        "tokens": np.concatenate(speech), "labels": np.concatenate(labels), "progress": np.concatenate(progress),
        "token_starts": _starts(speech), "codes": codes,
        "speaker": np.array([speakers[c.speaker] for c in kept], dtype=np.int16),
        "language": np.array([LANGUAGES.index(c.lang) for c in kept], dtype=np.uint8),
        "validation": np.array([c.validation for c in kept]),
        "text_key": np.array([zlib.crc32(c.text.encode()) for c in kept], dtype=np.uint32),
        "about": np.array(json.dumps({"speakers": list(speakers), "variants": VARIANTS})),
    }  # fmt: skip
    for i, made in enumerate(texts):
        arrays[f"text{i}"], arrays[f"text_starts{i}"] = np.concatenate(made), _starts(made)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **arrays)
    return load(path)


def _starts(pieces: Sequence[NDArray]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum([len(p) for p in pieces])]).astype(np.int64)


def load(path: Path) -> LmData:
    with np.load(path) as file:
        names = ("tokens", "labels", "progress", "token_starts", "speaker", "language", "validation", "text_key", "codes")
        ways = range(len(VARIANTS))
        return LmData(
            **{name: file[name] for name in names},
            texts=tuple(file[f"text{i}"] for i in ways),
            text_starts=tuple(file[f"text_starts{i}"] for i in ways),
        )


def main() -> None:
    """Pack one or several corpora (folder with index.jsonl.gz, and its tokens; `-` stands for made-up tokens)."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--corpus", type=Path, action="append", required=True)
    parser.add_argument("--tokens", action="append", required=True, help="one for each --corpus")
    parser.add_argument("--limit", type=int, default=0, help="only so many clips of each corpus")
    args = parser.parse_args()
    clips: list[Clip] = []
    tokens: dict[str, NDArray[np.int64]] = {}
    for folder, given in zip(args.corpus, args.tokens, strict=True):
        found = [clip for clip, _ in read_index(folder)][: args.limit or None]
        clips += found
        tokens |= stand_in_tokens(found) if given == "-" else read_tokens(Path(given))
    data = pack(clips, tokens, args.out)
    print(json.dumps({
        "clips": len(data), "speech_tokens": len(data.tokens), "text_ids": len(data.texts[0]),
        "codes": len(data.codes), "validation": int(data.validation.sum()),
        "bytes": args.out.stat().st_size,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
