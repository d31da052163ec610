"""Text that still arrives: what can be spoken already, cut the same wherever the pieces are cut."""

import random

import pytest

from studio.text.arriving import up_to_a_blank, whole_sentences, whole_words
from studio.text.segment import SegmentLimits, spoken_s

LIMITS = SegmentLimits(most_s=4.0, least_s=0.5)


def sentences(pieces: list[str]) -> list[str]:
    given, waiting = [], ""
    for piece in pieces:
        ready, waiting = whole_sentences(waiting + piece, LIMITS)
        given += [ready] if ready else []
    return [*given, waiting]


@pytest.mark.parametrize(
    ("pieces", "given"),
    [
        (["Hello the", "re. How", " are you"], ["Hello there. ", "How are you"]),
        (["It costs 3.", "14 dollars. ", "Yes"], ["It costs 3.14 dollars. ", "Yes"]),
        (["We met Dr. ", "Brown today."], ["We met Dr. Brown today."]),
        (["今天天气", "不错。我们", "走吧！"], ["今天天气不错。", "我们走吧！", ""]),
        (["No. ", "This is a sentence of its own. And"], ["No. This is a sentence of its own. ", "And"]),
    ],
)
def test_sentence_is_given_once_it_is_sure_that_it_has_ended(pieces: list[str], given: list[str]) -> None:
    assert sentences(pieces) == given


def test_text_without_marks_does_not_wait_for_ever() -> None:
    given = sentences(["word "] * 60)
    assert max(map(spoken_s, given)) <= 2 * LIMITS.most_s
    assert "".join(given) == "word " * 60


def test_words_are_given_before_the_blank_and_numbers_by_the_clause() -> None:
    assert whole_words("Hello wor") == ("Hello", " wor")
    assert whole_words("你好世") == ("你好世", "")
    assert whole_words(" costs 3") == (" costs", " 3")
    assert whole_words("costs 3.14 dol") == ("", "costs 3.14 dol")
    assert whole_words("costs 3.14 dollars, or") == ("costs 3.14 dollars,", " or")
    assert whole_words("1,2") == ("", "1,2")
    assert whole_words("well <strong>no") == ("well", " <strong>no")
    assert whole_words("a [br") == ("a", " [br")


def test_word_is_whole_once_a_blank_or_a_mark_follows() -> None:
    assert up_to_a_blank("one two thr") == ("one two ", "thr")
    assert up_to_a_blank("你好wor") == ("你好", "wor")
    assert up_to_a_blank("wor") == ("", "wor")


def test_no_letter_is_lost_or_doubled_however_the_text_is_cut() -> None:
    random.seed(1)
    signs = "abc def. 好的是。 3.14 1,2 !?，[breath]"
    for _ in range(200):
        text = "".join(random.choice(signs) for _ in range(random.randrange(1, 200)))
        cuts = sorted(random.choices(range(len(text) + 1), k=8))
        pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        assert "".join(sentences(pieces)) == text
        words, waiting = "", ""
        for piece in pieces:
            ready, waiting = whole_words(waiting + piece)
            words += ready
        assert words + waiting == text
