"""Pauses that a text asks for, such as `[pause 0.5s]`: found, checked and taken out. Does not make silence."""

from __future__ import annotations

import re
from dataclasses import dataclass

from studio.errors import InvalidRequest

LONGEST_S = 10.0
LONGEST_TOGETHER_S = 60.0
WRITTEN = re.compile(r"\[\s*pause\b[^\]\n]*\]?", re.IGNORECASE)
_GOOD = re.compile(r"\[\s*pause\s*:?\s*(\d{1,5}(?:\.\d{1,4})?)\s*(ms|s)\s*\]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Part:
    """Text between two pauses, as typed, and the seconds of silence asked for before it: None at a start."""

    text: str
    pause_s: float | None


def without_pauses(text: str) -> str:
    """The text with a blank for each pause."""
    return WRITTEN.sub(" ", text)


def parts(text: str) -> list[Part]:
    """The text cut at its pauses, in order; the parts between two pauses in a row are empty.

    Raises: InvalidRequest for a pause that cannot be read or is too long.
    """
    found, end, pause_s, together_s = [], 0, None, 0.0
    for written in WRITTEN.finditer(text):
        found.append(Part(text[end : written.start()], pause_s))
        end, pause_s = written.end(), seconds_of(written.group())
        together_s += pause_s
    if together_s > LONGEST_TOGETHER_S:
        raise InvalidRequest("text.pauses_long", param="input", seconds=together_s, limit=LONGEST_TOGETHER_S)
    return [*found, Part(text[end:], pause_s)]


def seconds_of(written: str) -> float:
    """What one pause asks for."""
    good = _GOOD.fullmatch(written)
    seconds = float(good[1]) / (1000 if good[2].lower() == "ms" else 1) if good else 0.0
    if not 0 < seconds <= LONGEST_S:
        raise InvalidRequest("text.pause_bad", param="input", written=written[:40], limit=LONGEST_S)
    return seconds
