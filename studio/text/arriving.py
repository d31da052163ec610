"""Text that is still being typed or written: how much of it can be spoken already. Normalises nothing."""

from __future__ import annotations

import re

from studio.text.language import HANZI
from studio.text.normalize import TAG, only_marks
from studio.text.segment import SegmentLimits, sentence_ends, spoken_s

_SURE_END = re.compile(r"[。！？…；\n][\"'”’）)】》」』]*$")
"""Ends a sentence whatever follows; a dot may yet become 3.14 or an abbreviation, so it waits for what follows it."""
_WORD_END = re.compile(rf"(?=\s)|(?<={HANZI.pattern})|(?<=[,;:!?，、；：。！？])")
_WORD_AND_BLANK = re.compile(rf"\s|{HANZI.pattern}|[,;:!?，、；：。！？]")
_CLAUSE_END = re.compile(r"(?<=[,;:!?，、；：。！？])(?!\d)")


def whole_sentences(text: str, limits: SegmentLimits) -> tuple[str, str]:
    """What ends with a sentence and is long enough to be said well, and the rest, which waits for more text.

    Text that is too long for a segment does not wait: all but its last segment's worth is given.
    """
    ends = [at for at in sentence_ends(text) if at < len(text) or text[-1].isspace()]
    at = len(text) if _SURE_END.search(text) else max(ends, default=0)
    if not at and spoken_s(text) > 1.5 * limits.most_s:
        at = _last(_WORD_END, text, len(text) - 1)
    if only_marks(text[:at]) or spoken_s(text[:at]) < limits.least_s:
        return "", text
    return text[:at], text[at:]


def up_to_a_blank(text: str) -> tuple[str, str]:
    """What ends with a blank, a mark or a Chinese character, and the rest: the beginning of a word."""
    at = max((m.end() for m in _WORD_AND_BLANK.finditer(text)), default=0)
    return text[:at], text[at:]


def whole_words(text: str) -> tuple[str, str]:
    """What ends between words, before the blank, and the rest.

    A number waits for the end of its clause, by which it is read.
    """
    at = _last(_WORD_END, text, len(text))
    if re.search(r"\d", text[:at]):
        at = _last(_CLAUSE_END, text, len(text) - 1)
    if any(m.start() < at < m.end() for m in TAG.finditer(text)):
        at = 0
    return text[:at], text[at:]


def _last(place: re.Pattern[str], text: str, before: int) -> int:
    """The last place not after `before`; 0 if there is none."""
    return max((m.start() for m in place.finditer(text) if m.start() <= before), default=0)
