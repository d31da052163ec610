"""Normalised text to the string that the embedded voice's speech LM reads; nothing is loaded at import.

English words become sounds by a lexicon (`spoken_en`), Hanzi become Mandarin sounds (`spoken_zh`), marks stay
because they carry prosody. It expands no numbers or abbreviations (`normalize` does) and cuts no segments.
"""

from __future__ import annotations

import re
import unicodedata

from studio.text import spoken_en
from studio.text.spoken_symbols import MARKS
from studio.text.spoken_zh import HANZI, read_hanzi

_MARKS = str.maketrans(
    {
        "。": ".", "．": ".", "…": ".", "，": ",", "、": ",", "？": "?", "！": "!", "；": ";", "：": ":",
        "—": ",", "–": ",", "―": ",", "’": "'", "‘": "'", "ʼ": "'", "&": " and ",
    }
)  # fmt: skip
_PIECE = re.compile(
    f"(?P<hanzi>{HANZI})" + r"|(?P<word>[A-Za-z]+(?:'[A-Za-z]+)*'?)|(?P<mark>[,.?!;:])|(?P<digit>[0-9])"
)
_DIGITS_EN = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_DIGITS_ZH = "零一二三四五六七八九"


def spoken(text: str) -> str:
    """The sounds and marks of a text, ready for the embedded checkpoint's tokenizer.

    Args:    text: normalised text, English, Mandarin or both; a digit that is left is read by itself.
    Returns: symbols of `spoken_symbols`: a blank before every word, the first too, so that texts can be
             joined; a mark right after the word before it. "" if the text holds nothing to speak.
    """
    joined = " ".join(sounds for sounds, _ in spoken_words(text))
    joined = re.sub(r" +([,.?!;:])", r"\1", joined)
    joined = re.sub(r"([,.?!;:])[,.?!;: ]*(?=[,.?!;:])", "", joined)  # of marks in a row the last one counts
    joined = joined.strip(" ").lstrip(",.?!;: ")
    return " " + joined if joined else ""


def spoken_words(text: str) -> list[tuple[str, str]]:
    """The same by pieces: (sounds, piece of the text) for each word, run of Hanzi and mark, in order."""
    return _read(_pieces(text))


def _pieces(text: str) -> list[tuple[str, str]]:
    """(kind, piece) for all that can be spoken; accents are dropped, other signs part words."""
    text = unicodedata.normalize("NFKD", text.translate(_MARKS)).translate(_MARKS)
    text = "".join(c for c in text if not unicodedata.combining(c))
    return [(m.lastgroup or "", m.group()) for m in _PIECE.finditer(text)]


def _read(pieces: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Sounds of each piece, read from the end since `the` depends on the word after it."""
    chinese = any(kind == "hanzi" for kind, _ in pieces)
    read: list[tuple[str, str]] = []
    following = ""
    befores = ["", *(piece for _, piece in pieces)]
    for (kind, piece), before in zip(reversed(pieces), reversed(befores[:-1]), strict=True):
        if kind == "hanzi":
            sounds = read_hanzi(piece)
        elif kind == "word":
            sounds = spoken_en.read_word(piece, following, before)
        elif kind == "digit":
            digit = int(piece)
            sounds = read_hanzi(_DIGITS_ZH[digit]) if chinese else spoken_en.read_word(_DIGITS_EN[digit])
        else:
            sounds = piece
        following = "" if sounds in MARKS else sounds
        if sounds:
            read.append((sounds, piece))
    return read[::-1]
