"""The list of pronunciations: what is respelled, for whom, and what is never touched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from studio.errors import InvalidRequest, NotFound
from studio.library.pronunciations import Pronunciations


@pytest.fixture
def words(tmp_path: Path) -> Iterator[Pronunciations]:
    made = Pronunciations(tmp_path)
    yield made
    made.close()


def test_whole_words_are_respelled_whatever_their_case(words: Pronunciations) -> None:
    words.add("SQL", "sequel")
    assert words.respell("SQL, sql and MySQL; SQLite.", "v") == "sequel, sequel and MySQL; SQLite."


def test_hanzi_are_respelled_inside_a_sentence_and_latin_words_beside_them(words: Pronunciations) -> None:
    words.add("重庆", "虫庆")
    words.add("AI", "诶哀")
    assert words.respell("我在重庆用AI说话", "v") == "我在虫庆用诶哀说话"


def test_longer_words_win_and_nothing_is_respelled_twice(words: Pronunciations) -> None:
    words.add("New York", "Nu York")
    words.add("York", "Yark")
    words.add("Yark", "never")
    assert words.respell("New York, York", "v") == "Nu York, Yark"


def test_a_voices_own_pronunciation_wins_for_it_alone(words: Pronunciations) -> None:
    words.add("tomato", "tuh-may-toe")
    words.add("tomato", "tuh-mah-toe", voice="british")
    assert words.respell("Tomato!", "british") == "tuh-mah-toe!"
    assert words.respell("Tomato!", "other") == "tuh-may-toe!"


def test_tags_and_pauses_are_left_alone(words: Pronunciations) -> None:
    words.add("pause", "paws")
    words.add("laughter", "laff-ter")
    said = words.respell("[pause 1s] a pause [laughter] laughter", "v")
    assert said == "[pause 1s] a paws [laughter] laff-ter"


def test_adding_again_replaces_and_a_restart_keeps_all(words: Pronunciations, tmp_path: Path) -> None:
    words.add("data", "dah-ta")
    words.add("Data", "day-ta")
    again = Pronunciations(tmp_path)
    assert [(p.word, p.said) for p in again.all()] == [("Data", "day-ta")]
    again.delete(again.all()[0].id)
    assert words.all() == [] and again.respell("data", "v") == "data"
    with pytest.raises(NotFound):
        words.delete("nothing")
    again.close()


@pytest.mark.parametrize(("word", "said"), [("", "x"), ("?!", "x"), ("w" * 65, "x"), ("w", ""), ("w", "[pause 1s]")])
def test_what_cannot_be_a_pronunciation_is_refused(words: Pronunciations, word: str, said: str) -> None:
    with pytest.raises(InvalidRequest):
        words.add(word, said)


def test_letters_of_patterns_are_taken_as_they_are(words: Pronunciations) -> None:
    words.add("C++", "see plus plus")
    words.add("a.b", "ay bee")
    assert words.respell("C++ and a.b, not axb", "v") == "see plus plus and ay bee, not axb"


def test_words_begin_and_end_with_any_letter_and_the_longest_that_fits_is_said(words: Pronunciations) -> None:
    words.add("new york city", "en why see")
    words.add("New York", "Nu York")
    words.add(".net", "dot net")
    words.add("Москва", "Maskva")
    assert words.respell("NEW YORK citys, new york city; ASP.NET москва", "v") == (
        "Nu York citys, en why see; ASPdot net Maskva"
    )


def test_word_for_one_voice_hides_no_shorter_one_from_another(words: Pronunciations) -> None:
    words.add("read out", "red out", voice="one")
    words.add("read", "reed")
    assert words.respell("read out", "other") == "reed out"


def test_full_list_is_respelled_word_by_word(words: Pronunciations, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("studio.library.pronunciations.MOST", 40)
    for n in range(40):
        words.add(f"w {n}", f"said{n}")
    assert words.respell(" ".join(f"w {n}" for n in range(41)), "v").split() == [
        *(f"said{n}" for n in range(40)), "w", "40",
    ]  # fmt: skip
    with pytest.raises(InvalidRequest):
        words.add("one more", "x")
