"""What a preview marks as said otherwise than typed."""

from __future__ import annotations

import pytest

from studio.text.changes import Span, spans


def changed(typed: str, *said: str) -> list[tuple[str, str]]:
    found = spans(typed, said)
    assert ["".join(span.said for span in segment) for segment in found] == list(said)
    return [(span.typed, span.said.strip()) for segment in found for span in segment if span.typed is not None]


@pytest.mark.parametrize(
    ("typed", "said", "marked"),
    [
        ("Meet me at noon", ["Meet me at noon."], []),
        ("It costs $5 today", ["It costs five dollars today."], [("$5", "five dollars")]),
        ("今天是2024年", ["今天是二零二四年。"], [("2024", "二零二四")]),
        ("Hi 😀 there", ["Hi there."], [("😀", "")]),
        ("One [pause 1s] two", ["One.", "two."], []),
        ("Room 7. Floor 3.", ["Room seven.", "Floor three."], [("7", "seven"), ("3", "three")]),
    ],
)
def test_only_what_is_said_otherwise_is_marked(typed: str, said: list[str], marked: list[tuple[str, str]]) -> None:
    assert changed(typed, *said) == marked


def test_text_of_which_nothing_is_left_gives_no_spans() -> None:
    assert spans("", []) == [] and spans("hello", []) == []


def test_change_over_two_segments_is_told_once() -> None:
    found = spans("a 12:30 b", ["a twelve.", "thirty b."])
    assert [span.typed for segment in found for span in segment if span.typed] == ["12:30"]
    assert Span("a") in found[0]
