"""What a report is made of: titled sections of paragraphs, tables and pictures, for any form to write."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A sentence or a few; `warning` must not be overlooked."""

    text: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows below a heading; the first cell of a row names it."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """One of `pictures.picture_names`, and what it shows in words."""

    name: str
    shows: str


Block = Paragraph | Table | Picture


@dataclass(frozen=True, slots=True)
class Section:
    """A titled part of a report."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """A report, ready to be written in any form."""

    language: str
    title: str
    sections: tuple[Section, ...]
