"""What of a text is said otherwise than it is typed, for a preview. Normalises nothing itself."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from studio.text.language import HANZI
from studio.text.normalize import only_marks
from studio.text.pauses import without_pauses

_PIECE = re.compile(rf"{HANZI.pattern}|(?:(?!{HANZI.pattern})[\w'’])+|\S")


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of what is said; typed: what stands for it in the text, where that differs ("": nothing does)."""

    said: str
    typed: str | None = None


def spans(typed: str, said: Sequence[str]) -> list[list[Span]]:
    """The spans of each segment. said: the segments' texts; joined, a segment's spans are its text."""
    typed = without_pauses(typed)
    from_pieces = list(_PIECE.finditer(typed))
    to_pieces = [(number, piece) for number, text in enumerate(said) for piece in _PIECE.finditer(text)]
    found: list[list[Span]] = [[] for _ in said]
    ends = [0] * len(said)
    matcher = SequenceMatcher(None, [m[0] for m in from_pieces], [m[0] for _, m in to_pieces])
    for kind, i1, i2, j1, j2 in matcher.get_opcodes():
        before = typed[from_pieces[i1].start() : from_pieces[i2 - 1].end()] if i2 > i1 else ""
        after = "".join(piece[0] for _, piece in to_pieces[j1:j2])
        changed = kind != "equal" and (not only_marks(before + after) or _has_symbol(before))
        numbers = sorted({number for number, _ in to_pieces[j1:j2]})
        if not numbers and changed and said:  # left out
            at = to_pieces[j1][0] if j1 < len(to_pieces) else len(said) - 1
            found[at].append(Span("", before))
        for number in numbers:
            end = max(m.end() for n, m in to_pieces[j1:j2] if n == number)
            found[number].append(Span(said[number][ends[number] : end], before if changed else None))
            ends[number], before = end, ""
    for number, text in enumerate(said):
        if rest := text[ends[number] :]:
            plain = bool(found[number]) and found[number][-1].typed is None
            found[number][-1:] = [Span(found[number][-1].said + rest)] if plain else [*found[number][-1:], Span(rest)]
    return found


def _has_symbol(text: str) -> bool:
    """Pictures and signs, which are read or left out; full stops and the like are neither."""
    return any(unicodedata.category(character)[0] == "S" for character in text)
