"""Word errors between what was said and what a listener typed. Case, marks and spacing do not count."""

from __future__ import annotations

import re
import unicodedata

from studio.text.language import HANZI

_WORD = re.compile(rf"{HANZI.pattern}|[^\W_]+(?:'[^\W_]+)*")


def words_of(text: str) -> list[str]:
    """Words in lower case; every Hanzi is a word of its own."""
    plain = unicodedata.normalize("NFKC", text).replace("’", "'").casefold()
    return [part for word in _WORD.findall(plain) for part in (word if HANZI.search(word) else [word])]


def word_errors(said: str, typed: str) -> tuple[int, int]:
    """Substitutions, deletions and insertions that turn one into the other, and the number of words said."""
    wanted, got = words_of(said), words_of(typed)
    row = list(range(len(got) + 1))
    for i, word in enumerate(wanted, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(got, 1):
            diagonal, row[j] = row[j], min(diagonal + (word != other), row[j] + 1, row[j - 1] + 1)
    return row[-1], len(wanted)
