"""Long text cut into segments that the speech LM says well: whole sentences, short ones joined, long ones cut.

Every segment is within the limit, whatever the text; a number such as 3.14 is cut only if it alone is longer.
Works on characters and an estimate of their length in speech; knows no tokenizer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from studio.text.language import HANZI
from studio.text.normalize import TAG, only_marks

HANZI_S = 0.22
LETTER_S = 0.065
"""Rough seconds of speech: about 4.5 Hanzi or 15 letters and blanks a second."""

_SENTENCE, _CLAUSE, _BLANK, _HANZI = 4, 3, 2, 1
"""How good a place is for a cut; other places are taken only when there is none of these."""

_CLOSERS = "[\"'”’）)】》」』]*"
_SENTENCE_END = re.compile(rf"[。！？!?…]+{_CLOSERS}\s*")
_FULL_STOP = re.compile(rf"(?P<word>[^\s.]*(?:\.[A-Za-z])*)\.+{_CLOSERS}(?:\s+|$|(?={HANZI.pattern}))")
_CLAUSE_END = re.compile(rf"[,;:，、；：—](?!\d){_CLOSERS}\s*")
_BLANKS = re.compile(r"\s+")
_BETWEEN_HANZI = re.compile(rf"(?<={HANZI.pattern})(?={HANZI.pattern})")
_WHOLE = re.compile(rf"{TAG.pattern}|\d+(?:[.,:/]\d+)+|\d+")
"""What a cut must not go through."""

_ABBREVIATIONS = frozenset(
    ["mr", "mrs", "ms", "dr", "prof", "st", "jr", "sr", "vs", "etc", "no", "fig", "e.g", "i.e", "a.m", "p.m"]
)


@dataclass(frozen=True, slots=True)
class SegmentLimits:
    """Estimated seconds of speech. A segment is at most `most_s`; one shorter than `least_s` is joined."""

    most_s: float = 12.0
    least_s: float = 2.0


def cut(text: str, limits: SegmentLimits = SegmentLimits()) -> list[str]:
    """Segments in order, each with something to say; joined they are the text but for blanks at the cuts."""
    places = _places(text)
    ends = sorted({0, len(text), *sentence_ends(text)})
    pieces = [piece for start, end in pairwise(ends) for piece in _fit(text, start, end, places, limits.most_s)]
    joined = (text[start:end].strip() for start, end in _join_short(text, pieces, limits))
    return [segment for segment in joined if not only_marks(segment)]


def sentence_ends(text: str) -> list[int]:
    """Places behind which a new sentence begins, in order."""
    return sorted(at for at, worth in _places(text).items() if worth == _SENTENCE)


def fit(text: str, length: Callable[[str], int], most: int) -> list[str]:
    """A text cut at its best places into parts of like length, none of which measures more than `most`."""
    places, parts = _places(text), max(1, -(-length(text) // most))
    while True:
        most_s = 1.25 * spoken_s(text) / parts
        cuts = [text[start:end] for start, end in _fit(text, 0, len(text), places, most_s)]
        if parts >= len(text) or all(length(piece) <= most for piece in cuts):
            return cuts
        parts += 1


def spoken_s(text: str) -> float:
    """A guess of how long a text takes to say, in seconds."""
    return sum(HANZI_S if HANZI.match(c) else LETTER_S for c in text)


def _places(text: str) -> dict[int, int]:
    """Where the text may be cut, and how good each place is; blanks and closing marks stay with what they end."""
    places = dict.fromkeys((m.end() for m in _BETWEEN_HANZI.finditer(text)), _HANZI)
    places |= dict.fromkeys((m.end() for m in _BLANKS.finditer(text)), _BLANK)
    places |= dict.fromkeys((m.end() for m in _CLAUSE_END.finditer(text)), _CLAUSE)
    places |= dict.fromkeys((m.end() for m in _SENTENCE_END.finditer(text)), _SENTENCE)
    places |= dict.fromkeys((m.end() for m in _FULL_STOP.finditer(text) if _ends_sentence(m["word"])), _SENTENCE)
    return places


def _ends_sentence(word: str) -> bool:
    """Whether a dot behind this word ends a sentence: not after "Dr", "e.g" or an initial."""
    bare = word.lstrip("\"'“‘（(").lower()
    return bare not in _ABBREVIATIONS and not (len(bare) == 1 and bare.isascii() and bare.isalpha() and bare != "i")


def _fit(text: str, start: int, end: int, places: dict[int, int], most_s: float) -> Iterator[tuple[int, int]]:
    """A sentence as it is, or cut at its best places into parts of like length, each within the limit."""
    while (left_s := spoken_s(text[start:end])) > most_s:
        target_s = left_s / -int(-left_s // most_s)
        at = _best_place(text, start, end, places, target_s, most_s)
        yield start, at
        start = at
    yield start, end


def _best_place(
    text: str, start: int, end: int, places: dict[int, int], target_s: float, most_s: float
) -> int:
    best, best_worth, now_s = 0, (0, 0.0), 0.0
    last = start + 1
    for at in range(start + 1, end):
        now_s += spoken_s(text[at - 1])
        if now_s > most_s:
            break
        last = at
        worth = (places.get(at, 0), -abs(now_s - target_s))
        if worth[0] and now_s >= 0.4 * target_s and worth > best_worth:
            best, best_worth = at, worth
    if best:
        return best
    through = next((m for m in _WHOLE.finditer(text, start, end) if m.start() < last < m.end()), None)
    return through.start() if through and through.start() > start else last


def _join_short(
    text: str, pieces: list[tuple[int, int]], limits: SegmentLimits
) -> list[tuple[int, int]]:
    """Pieces that are too short to be said well alone go with the one before, if both fit."""
    joined: list[tuple[int, int]] = []
    for start, end in pieces:
        if joined:
            before = text[joined[-1][0] : joined[-1][1]]
            short = min(spoken_s(before), spoken_s(text[start:end])) < limits.least_s
            if short and spoken_s(text[joined[-1][0] : end]) <= limits.most_s:
                joined[-1] = (joined[-1][0], end)
                continue
        joined.append((start, end))
    return joined
