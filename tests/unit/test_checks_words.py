"""Words by their sound, alignments, and where a take's words go wrong."""

from __future__ import annotations

import pytest

from studio.checks.mistakes import Mark, mistakes_of
from studio.checks.words import agreement, align, error_ratio, words_of
from studio.protocols import HeardWord, Transcript


@pytest.mark.parametrize(
    ("typed", "heard"),
    [
        ("On Friday at 7:30 we meet.", "on friday at seven thirty we meet"),
        ("Their colour, there!", "there color their"),
        ("The P B X works", "the PBX works"),
        ("I saw two [pause 0.5s] ships", "I saw too ships"),
        ("他在这里。", "她在这里"),
    ],
)
def test_texts_that_sound_alike_agree(typed: str, heard: str) -> None:
    assert agreement(typed, heard) >= (0.6 if "colour" in typed else 1.0)


def test_other_texts_do_not_agree() -> None:
    assert agreement("The harbor was calm at dawn", "Please leave the keys on the table") < 0.3
    assert agreement("", "some words") == 0.0 and agreement("some words", "") == 0.0


def test_alignment_has_the_fewest_errors() -> None:
    steps = align(words_of("one two three four"), words_of("one too four five"))
    assert [step.kind for step in steps] == ["same", "same", "dropped", "same", "added"]
    assert error_ratio(steps) == 0.5


def heard(text: str, word_s: float = 0.5) -> Transcript:
    words = text.split()
    return Transcript(tuple(HeardWord(f" {w}", n * word_s, (n + 1) * word_s, 1.0) for n, w in enumerate(words)))


def marks(text: str, spoken: str, prompt: str = "") -> list[tuple[str, float, float, str]]:
    found: list[Mark] = mistakes_of(text, heard(spoken), prompt, 10.0)
    assert all(mark.message("en") and mark.message("zh") for mark in found)
    return [(mark.kind, mark.start_s, mark.end_s, str(mark.values["words"])) for mark in found]


TEXT = "the cat sat on the mat"


def test_right_words_have_no_mark() -> None:
    assert marks(TEXT, "The cat sat on the mat.") == []


def test_dropped_word_lies_between_its_neighbours() -> None:
    assert marks(TEXT, "the cat on the mat") == [("dropped", 1.0, 1.0, "sat")]
    assert marks(TEXT, "the cat sat on") == [("dropped", 2.0, 10.0, "the mat")]


def test_repeated_words_are_told_from_added_ones() -> None:
    assert marks(TEXT, "the cat sat sat on the mat")[0][0] == "repeated"
    assert marks(TEXT, "the cat sat on the mat on the mat") == [("repeated", 3.0, 4.5, "on the mat")]
    assert marks(TEXT, "the cat sat quietly on the mat") == [("added", 1.5, 2.0, "quietly")]


def test_leaked_prompt_is_told_from_other_added_words() -> None:
    prompt = "boats were heading out to sea"
    assert marks(TEXT, "out to sea the cat sat on the mat", prompt) == [("leak", 0.0, 1.5, "out to sea")]
    assert marks(TEXT, "and then the cat sat on the mat", prompt)[0][0] == "added"


def test_other_word_names_both() -> None:
    (mark,) = mistakes_of(TEXT, heard("the dog sat on the mat"), "", 3.0)
    assert mark.kind == "other" and mark.values == {"words": "dog", "wanted": "cat"}


def test_number_heard_as_digits_keeps_its_time_in_mandarin_too() -> None:
    assert marks("今天有两只猫", "今天有 2 只猫") == []
    assert marks("we meet at seven thirty today", "we meet at 7:30 tomorrow")[0][:2] == ("other", 2.0)
