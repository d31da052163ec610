"""Pack what the speech LM is trained on into one small file: speech tokens, text variants, phonemes of each token.

Runs where the lexicon is (no GPU); the trainer then needs numpy and torch alone. It does not tokenise audio.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from studio.training.corpus import SAMPLES_PER_TOKEN, Clip, phoneme_frames, phoneme_labels
from studio.training.text import Word, clip_words, encode

VARIANTS = ("read", "said", "spelled")
"""As the studio will read the text; half of the words as the teacher said them; some English words in letters."""
SAID_SHARE, SPELLED_SHARE = 0.5, 0.25
PROGRESS_STEPS = 32
LANGUAGES = ("en", "zh")


@dataclass(frozen=True, slots=True, eq=False)
class LmData:
    """All clips, flat. Row i of `tokens` is tokens[token_starts[i] : token_starts[i + 1]], and so on.

    codes: the speech codes in use, sorted; `tokens` are places in this list. labels: 50 Hz phoneme classes, two a
    token. texts: per variant, flat ids and starts.
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
    played: NDArray[np.float32]
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


def played_labels(clip: Clip, tokens: int, ratio: float) -> NDArray[np.uint8]:
    """Phoneme classes at 50 Hz of a clip played `ratio` times faster: [2 tokens]."""
    frames = phoneme_frames(clip)
    centres = (np.arange(2 * tokens) + 0.5) * ratio * 40 / 50
    return frames[np.minimum(centres.astype(np.int64), len(frames) - 1)].astype(np.uint8)


def token_progress(clip: Clip, tokens: int, ratio: float) -> NDArray[np.uint8]:
    """How far through the phonemes each token is, in steps of 1/32."""
    ends = np.cumsum(clip.durations)
    place = np.searchsorted(ends, (np.arange(tokens) + 0.5) * ratio * 40 / 25, side="right")
    return np.minimum(place * PROGRESS_STEPS // len(clip.durations), PROGRESS_STEPS - 1).astype(np.uint8)


@dataclass(frozen=True, slots=True)
class Reading:
    """A clip and its tokens, as tokenised at a playing speed."""

    clip: Clip
    tokens: NDArray[np.int64]
    ratio: float = 1.0

    @property
    def voice(self) -> str:
        return f"{self.clip.speaker}@{self.ratio}"


def read_words(path: Path) -> dict[str, list[Word]]:
    """Words of clips by clip id, as `write_words` left them; none if there is no file."""
    if not path.is_file():
        return {}
    with gzip.open(path, "rt", encoding="utf8") as file:
        return {name: [Word(*word) for word in words] for name, words in json.load(file).items()}


def write_words(path: Path, words_of: Mapping[str, list[Word]]) -> None:
    with gzip.open(path, "wt", encoding="utf8", compresslevel=2) as file:
        json.dump({i: [[w.read, w.said, w.spelled] for w in ws] for i, ws in words_of.items()}, file)


def pack(readings: Sequence[Reading], path: Path, words_of: dict[str, list[Word]] | None = None) -> LmData:
    """Write the file. Rounding may leave one token more or less than the clip's length says.

    Args:    words_of: words that are known already, by clip id; those that are missing are added.
    Raises: ValueError if a clip's tokens are not as many as its length asks for.
    """
    codes = np.unique(np.concatenate([r.tokens for r in readings]))
    voices = {name: i for i, name in enumerate(sorted({r.voice for r in readings}))}
    speech, labels, progress = [], [], []
    texts: list[list[NDArray[np.uint16]]] = [[] for _ in VARIANTS]
    words_of = {} if words_of is None else words_of
    for r in readings:
        expected = r.clip.samples / r.ratio / SAMPLES_PER_TOKEN
        if abs(len(r.tokens) - expected) > 1.5:
            raise ValueError(
                f"clip {r.clip.id} has {len(r.tokens)} tokens at {r.ratio}, expected {expected:.1f}"
            )
        speech.append(np.searchsorted(codes, r.tokens).astype(np.uint16))
        labels.append(played_labels(r.clip, len(r.tokens), r.ratio))
        progress.append(token_progress(r.clip, len(r.tokens), r.ratio))
        words = words_of.get(r.clip.id) or words_of.setdefault(r.clip.id, clip_words(r.clip))
        rng = random.Random(f"{r.clip.id}@{r.ratio}")
        for made, variant in zip(texts, VARIANTS, strict=True):
            made.append(np.array(text_variant(words, variant, rng), dtype=np.uint16))
    arrays = {
        "tokens": np.concatenate(speech), "labels": np.concatenate(labels), "progress": np.concatenate(progress),
        "token_starts": _starts(speech), "codes": codes,
        "speaker": np.array([voices[r.voice] for r in readings], dtype=np.int16),
        "language": np.array([LANGUAGES.index(r.clip.lang) for r in readings], dtype=np.uint8),
        "validation": np.array([r.clip.validation for r in readings]),
        "played": np.array([r.ratio for r in readings], dtype=np.float32),
        "text_key": np.array([zlib.crc32(r.clip.text.encode()) for r in readings], dtype=np.uint32),
        "about": np.array(json.dumps({"voices": list(voices), "variants": VARIANTS})),
    }  # fmt: skip
    for i, made in enumerate(texts):
        arrays[f"text{i}"], arrays[f"text_starts{i}"] = np.concatenate(made), _starts(made)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]
    return load(path)


def _starts(pieces: Sequence[NDArray]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum([len(p) for p in pieces])]).astype(np.int64)


def load(path: Path) -> LmData:
    with np.load(path) as file:
        names = (
            "tokens", "labels", "progress", "token_starts", "speaker", "language", "validation", "played", "text_key",
            "codes",
        )  # fmt: skip
        ways = range(len(VARIANTS))
        return LmData(
            **{name: file[name] for name in names},
            texts=tuple(file[f"text{i}"] for i in ways),
            text_starts=tuple(file[f"text_starts{i}"] for i in ways),
        )


def read_clips(index: Path) -> list[Clip]:
    """Every clip of an index.jsonl.gz, whether its sound is here or not."""
    clips = []
    with gzip.open(index, "rt", encoding="utf8") as lines:
        for line in lines:
            entry = json.loads(line)
            kept = {k: entry[k] for k in ("id", "lang", "text", "speaker", "speed", "samples")}
            clips.append(Clip(
                **kept, ids=tuple(entry["ids"]), durations=tuple(entry["durations"]), phonemes=entry["phonemes"],
                pinyin=entry.get("pinyin", ""),
            ))  # fmt: skip
    return clips


def main() -> None:
    """Pack corpora: index files, and their clips' tokens as FILE or FILE@RATIO; `-` stands for made-up tokens."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--index", type=Path, nargs="+", required=True)
    parser.add_argument("--tokens", nargs="+", required=True, help="each may hold clips of any index")
    parser.add_argument("--words", type=Path, help="file that keeps the words of clips for the next call")
    parser.add_argument("--limit", type=int, default=0, help="only so many clips of each index")
    args = parser.parse_args()
    clips = {c.id: c for index in args.index for c in read_clips(index)[: args.limit or None]}
    readings = []
    for given in args.tokens:
        name, _, ratio = given.partition("@")
        tokens = stand_in_tokens(clips.values()) if name == "-" else read_tokens(Path(name))
        found = [
            Reading(clips[i], t, float(ratio or 1)) for i, t in tokens.items() if i in clips and len(t) > 4
        ]
        # other speeds are for training only: validation is on voices as they are
        readings += [r for r in found if r.ratio == 1.0 or not r.clip.validation]
    words_of = read_words(args.words) if args.words else {}
    data = pack(readings, args.out, words_of)
    if args.words:
        write_words(args.words, words_of)
    print(json.dumps({
        "clips": len(data), "speech_tokens": len(data.tokens), "text_ids": len(data.texts[0]),
        "codes": len(data.codes), "validation": int(data.validation.sum()),
        "bytes": args.out.stat().st_size,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
