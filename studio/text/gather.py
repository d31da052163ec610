"""Upstream's way to cut text for the official models: sentences gathered until they are long enough to be said well.

Better than upstream where that fails: a number such as 3.14 or 10:30 is no end, nothing is longer than the limit, and a
mark before a closing quote at the start is no error. Fixture 07_text holds the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from studio.text.normalize import TAG, is_chinese, only_marks
from studio.text.segment import fit

Length = Callable[[str], int]
"""Of a piece of text: its characters in Chinese, its tokens else."""

CHINESE_MARKS = "。？！；：、.?!;"
OTHER_MARKS = ".?!;:。？！；："
_CLOSERS = "\"”"


@dataclass(frozen=True, slots=True)
class GatherLimits:
    """Lengths. Sentences are gathered until more than `enough` would become more than `most`.

    Less than `enough` may take one more sentence, up to most + rest (upstream: of any length); a last part below `rest`
    joins the one before. So every segment is below most + 2 rest.
    """

    most: int = 80
    enough: int = 60
    rest: int = 20


def gather(
    text: str, length: Length, limits: GatherLimits = GatherLimits(), language: str = ""
) -> list[str]:
    """Segments in order, each with something to say and none longer than the limits; language: as in `normalize`."""
    segments, gathered = [], ""
    for piece in _pieces(text, length, limits.most, CHINESE_MARKS if is_chinese(text, language) else OTHER_MARKS):
        together = length(gathered + piece)
        if gathered and together > limits.most and (
            length(gathered) > limits.enough or together > limits.most + limits.rest
        ):
            segments.append(gathered)
            gathered = ""
        gathered += piece
    if segments and length(gathered) < limits.rest:
        segments[-1] += gathered
    elif gathered:
        segments.append(gathered)
    return [segment for segment in segments if not only_marks(segment)]


def _pieces(text: str, length: Length, most: int, marks: str) -> list[str]:
    """Sentences with their marks, of marks in a row the first; one that is too long alone is cut at its best places."""
    pieces: list[str] = []
    begin = 0
    for at in (m.start() for m in re.finditer(f"[{re.escape(marks)}]", text)):
        if at < begin or _is_inside(text, at):
            continue
        end = at + 1
        while end < len(text) and text[end] in _CLOSERS:
            end += 1
        piece, begin = text[begin:end], end
        if piece.strip(marks + _CLOSERS + " "):
            pieces.append(piece)
        elif pieces and piece[-1] in _CLOSERS:
            pieces[-1] += piece.lstrip(marks)
    if text[begin:].strip():
        pieces.append(text[begin:])
    return [part for piece in pieces for part in ([piece] if length(piece) <= most else fit(piece, length, most))]


def _is_inside(text: str, at: int) -> bool:
    """Whether the mark belongs to a number or a tag."""
    number = at and text[at - 1].isdigit() and text[at + 1 : at + 2].isdigit()
    return bool(number) or any(m.start() <= at < m.end() for m in TAG.finditer(text))
