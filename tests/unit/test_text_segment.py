"""Long text cut into segments."""

import random
import re

import pytest

from studio.text.segment import SegmentLimits, cut, spoken_s

SHORT = SegmentLimits(most_s=3.0, least_s=0.5)


def test_short_text_is_one_segment() -> None:
    assert cut("Hello there, how are you?") == ["Hello there, how are you?"]


def test_sentences_are_segments_and_short_ones_are_joined() -> None:
    text = "No. This is a whole sentence that takes its time to be said. Here comes another one that is long enough."
    assert cut(text, SegmentLimits(5.0, 1.0)) == [
        "No. This is a whole sentence that takes its time to be said.",
        "Here comes another one that is long enough.",
    ]


def test_chinese_sentences_need_no_blanks() -> None:
    text = "今天天气不错，我们去公园吧！他说：“我不去。”然后就走了。"
    assert cut(text, SegmentLimits(4.0, 0.5)) == ["今天天气不错，我们去公园吧！", "他说：“我不去。”", "然后就走了。"]


def test_long_sentence_is_cut_at_its_commas_first() -> None:
    text = "when the sun went down behind the hills, everyone who was still there went home"
    assert cut(text, SHORT) == ["when the sun went down behind the hills,", "everyone who was still there went home"]


def test_without_marks_it_is_cut_between_words_into_parts_of_like_length() -> None:
    segments = cut("word " * 100, SHORT)
    assert all(re.fullmatch(r"word( word)*", s) for s in segments)
    assert max(map(len, segments)) - min(map(len, segments)) <= 10


@pytest.mark.parametrize("number", ["3.14", "1,234,567", "10:30", "1/2"])
def test_number_is_never_cut(number: str) -> None:
    for before in range(60):
        assert any(number in segment for segment in cut("x" * before + number + "y" * 50, SHORT))
        assert any(number in segment for segment in cut("ab " * before + number + " cd" * 50, SHORT))


@pytest.mark.parametrize(
    "text", ["Mr. Brown met J. R. Tolkien, e.g. at noon and so on.", "It is version 2.0 of it, isn't it?"]
)
def test_dot_of_an_abbreviation_or_number_ends_no_sentence(text: str) -> None:
    assert cut(text, SegmentLimits(5.0, 0.0)) == [text]


@pytest.mark.parametrize("text", ["", " ", "...", "！？。", "—"])
def test_nothing_to_say_is_no_segment(text: str) -> None:
    assert cut(text) == []


def test_every_segment_is_within_the_limit_and_no_letter_is_lost() -> None:
    random.seed(0)
    signs = "abcdefg好的是吗一二 .,!?。，；:\"'3.14 1,2 ไทย عربي\n"
    for _ in range(300):
        text = "".join(random.choice(signs) for _ in range(random.randrange(1, 400)))
        segments = cut(text, SHORT)
        assert all(spoken_s(segment) <= SHORT.most_s for segment in segments)
        assert _letters("".join(segments)) == _letters(text)


def _letters(text: str) -> str:
    return "".join(c for c in text if c.isalnum())
