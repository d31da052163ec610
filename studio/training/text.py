"""Text for training: the tokenizer folder, and each clip's words as read, as said and in letters.

The lexicon's reading of a word is what the studio will feed; the teacher's own phonemes are what the clip holds.
This module aligns the two word by word; `lm_data` packs both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from studio.text.spoken import spoken_words
from studio.text.spoken_en import spell, word_readings
from studio.text.spoken_symbols import MARKS, VOWELS, joined_symbols
from studio.text.spoken_zh import syllable_sounds
from studio.training.corpus import Clip

TEXT_VOCABULARY = 384
"""Rows of the text embedding: 256 bytes, two controls, the joined symbols, spare rows to a multiple of 64."""
CONTROLS = ("<|endoftext|>", "<|endofprompt|>")
FAR_READING = 0.34
"""Share of a word's sounds that may differ before the teacher is taken to have said another word form."""

_TEACHER = (
    ("eɪ", "A"), ("aɪ", "I"), ("oʊ", "O"), ("aʊ", "W"), ("ɔɪ", "Y"), ("tʃ", "ʧ"), ("dʒ", "ʤ"),
    ("ɜː", "ɜɹ"), ("ː", ""), ("ʔ", "t"), ("g", "ɡ"), ("o", "ɔ"), ("e", "ɛ"),
    ("æ", "a"), ("ð", "D"), ("ɪj", "i"), ("ij", "i"), ("ɹɹ", "ɹ"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Word:
    """One word or mark of a clip's text; its alternatives are spoken symbols, "" where there is none."""

    read: str
    said: str = ""
    spelled: str = ""


def byte_symbols() -> dict[int, str]:
    """The printable character that byte-level tokenizers write for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    shifted = [b for b in range(256) if b not in printable]
    return {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(shifted)}


@lru_cache(maxsize=1)
def symbol_ids() -> Mapping[str, int]:
    """Id of every joined symbol; a single byte's id is its place in the byte table."""
    return {symbol: 256 + i for i, symbol in enumerate((*CONTROLS, *joined_symbols()))}


def write_tokenizer(folder: Path, config: Mapping[str, object]) -> None:
    """Write tokenizer.json, tokenizer_config.json and config.json (Qwen2's sizes) of the embedded checkpoint.

    All 256 bytes are ids, so that any text is representable; spoken symbols of several bytes are added tokens,
    which a reader matches before it falls back to bytes.
    """
    byte_table = byte_symbols()
    vocabulary = {byte_table[b]: b for b in range(256)}
    added = [
        {
            "id": i,
            "content": s,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": s in CONTROLS,
        }
        for s, i in symbol_ids().items()
    ]
    by_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    tokenizer: dict[str, object] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": by_bytes,
        "post_processor": None,
        "decoder": by_bytes,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": [],
        },
    }
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": CONTROLS[0],
        "pad_token": CONTROLS[0],
        "clean_up_tokenization_spaces": False,
        "model_max_length": 4096,
    }
    folder.mkdir(parents=True, exist_ok=True)
    files = {"tokenizer.json": tokenizer, "tokenizer_config.json": settings, "config.json": config}
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf8")


@lru_cache(maxsize=1)
def _symbol_pattern() -> re.Pattern[str]:
    ordered = sorted(symbol_ids(), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, ordered)) + "|.", re.DOTALL)


def encode(sounds: str) -> list[int]:
    """Ids of a spoken string; equal to the tokenizer file's own (a test holds them together)."""
    ids = symbol_ids()
    found: list[int] = []
    for piece in _symbol_pattern().findall(sounds):
        found.extend([ids[piece]] if piece in ids else piece.encode())
    return found


def teacher_sounds(phonemes: str) -> str:
    """The teacher's phonemes of an English text in spoken symbols, marks dropped, words parted by blanks."""
    sounds = re.sub(r"[,.?!;:]", " ", phonemes)
    for old, new in _TEACHER:
        sounds = sounds.replace(old, new)
    return " ".join(sounds.split())


def clip_words(clip: Clip) -> list[Word]:
    """A clip's text as words and marks, each with the studio's reading and what the teacher said."""
    if clip.lang == "zh":
        return _chinese_words(clip)
    pieces = spoken_words(clip.text)
    said = _split_said([s for s, _ in pieces], teacher_sounds(clip.phonemes))
    return [_english_word(sounds, piece, heard) for (sounds, piece), heard in zip(pieces, said, strict=True)]


def _chinese_words(clip: Clip) -> list[Word]:
    """Runs of Hanzi by the corpus' own pinyin (what the teacher was given) beside the studio's reading."""
    syllables = iter(clip.pinyin.split())
    words = []
    for sounds, piece in spoken_words(clip.text):
        if sounds in MARKS:
            words.append(Word(sounds))
            continue
        said = "".join(syllable_sounds(next(syllables)) for _ in piece)
        words.append(Word(said, said if said == sounds else sounds))
    return words


def _english_word(sounds: str, piece: str, heard: str) -> Word:
    """The reading nearest to what was heard; what was heard alone if no reading is near."""
    if sounds in MARKS:
        return Word(sounds)
    choices = [sounds, *word_readings(piece)] if not is_spelled(sounds) else []
    best = min(choices, key=lambda c: distance(c, heard), default="")
    near = best and distance(best, heard) <= max(1.5, FAR_READING * len(heard))
    return Word(best if near else heard or sounds, heard, spell(piece))


def is_spelled(sounds: str) -> bool:
    return "\uff41" <= sounds[:1] <= "\uff5a"


def distance(a: str, b: str) -> float:
    """Edit distance of two readings; a stress mark counts a quarter, a vowel or consonant changed half."""
    row = [0.0]
    for c in b:
        row.append(row[-1] + _weight(c))
    for x in a:
        above, row = row, [row[0] + _weight(x)]
        for j, y in enumerate(b):
            row.append(min(above[j] + _swap(x, y), above[j + 1] + _weight(x), row[j] + _weight(y)))
    return row[-1]


_SOFT = frozenset(VOWELS)


def _weight(c: str) -> float:
    return 0.25 if c in "ˈˌ " else 1.0


def _swap(x: str, y: str) -> float:
    if x == y:
        return 0.0
    if x in "ˈˌ " or y in "ˈˌ ":
        return 0.25 if x in "ˈˌ " and y in "ˈˌ " else 1.25
    return 0.5 if (x in _SOFT) == (y in _SOFT) else 1.5


def _split_said(read: list[str], said: str) -> list[str]:
    """Cut the teacher's sounds into the words of the text by the cheapest alignment; marks get ""."""
    words = [w for w in read if w not in MARKS]
    chunks = said.split()
    if len(chunks) != len(words):
        chunks = _align(words, said.replace(" ", ""))
    given = iter(chunks)
    return ["" if w in MARKS else next(given) for w in read]


def _align(words: list[str], said: str) -> list[str]:
    """Cut `said` (no blanks) at the places where the read words end on the cheapest edit path."""
    flat = "".join(words)
    cost = [[0.0] * (len(said) + 1) for _ in range(len(flat) + 1)]
    for j, y in enumerate(said):
        cost[0][j + 1] = cost[0][j] + _weight(y)
    for i, x in enumerate(flat):
        cost[i + 1][0] = cost[i][0] + _weight(x)
        for j, y in enumerate(said):
            cost[i + 1][j + 1] = min(
                cost[i][j] + _swap(x, y), cost[i][j + 1] + _weight(x), cost[i + 1][j] + _weight(y)
            )
    matched = _walk_back(cost, flat, said)
    cuts, end = [0], 0
    for word in words:
        end += len(word)
        cuts.append(matched[end])
    return [said[a:b] for a, b in zip(cuts[:-1], [*cuts[1:-1], len(said)], strict=True)]


def _walk_back(cost: list[list[float]], flat: str, said: str) -> list[int]:
    """For each prefix of `flat`, how much of `said` it has used on the cheapest path."""
    i, j = len(flat), len(said)
    used = [0] * (i + 1)
    used[i] = j
    while i or j:
        if i and j and cost[i][j] == cost[i - 1][j - 1] + _swap(flat[i - 1], said[j - 1]):
            i, j = i - 1, j - 1
        elif i and cost[i][j] == cost[i - 1][j] + _weight(flat[i - 1]):
            i -= 1
        else:
            j -= 1
            continue
        used[i] = j
    return used
