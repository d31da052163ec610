"""Text as typed to text as spoken."""

import re

import pytest
from wetext import Normalizer

from studio.text.normalize import clean, normalize, only_marks


@pytest.mark.parametrize(
    ("typed", "spoken"),
    [
        ("It costs $3.14 on May 5, 2024.", "It costs three point one four dollars on May five, twenty twenty four."),
        ("Dr. Smith is 21. He left.", "doctor Smith is twenty one. He left."),
        ("价格是3.14元，数量为100个。", "价格是三点一四元，数量为一百个。"),
        ("2024年5月1日10:30，温度-5℃。", "二零二四年五月一日十点三十分，温度负五摄氏度。"),
        ("用iPhone 15打了 2024 mixed 的电话。", "用iPhone 十五打了 两千零二十四 mixed 的电话。"),
        ("Hello 2024! 你好 5 个。", "Hello twenty twenty four! 你好 五个。"),
    ],
)
def test_numbers_and_dates_are_written_out_in_the_language_around_them(typed: str, spoken: str) -> None:
    assert normalize(typed) == spoken


@pytest.mark.parametrize(
    "text",
    [
        "The quick brown fox jumps over the lazy dog, and then it runs away.",
        "I'm sure that Mr. Fox met Mrs Hound on Sat morning in Arlington, MA at the HVAC shop.",
        "Chapter II: vs. the etc. of Jan. and Feb. a.m. or p.m.",
        "Is it so? Yes! He went; she stayed: all was well.",
        "well-known words (in brackets) and an em dash - here",
    ],
)
def test_english_words_are_read_as_the_grammar_alone_reads_them(text: str) -> None:
    """The shortcut past the grammar must not be seen."""
    pieces = re.split(r"(?<=[.!?])(?=\s)", text)
    alone = " ".join(Normalizer(lang="en", operator="tn").normalize(piece) for piece in pieces)
    assert normalize(text) == alone


@pytest.mark.parametrize("text", ["Don't you think so?", "他啊，呃，好。", "Ärger, naïve, Straße.", 'He said "yes".'])
def test_plain_text_is_left_alone(text: str) -> None:
    """Upstream drops interjections (CosyVoice#915) and accented letters (CosyVoice#1949)."""
    assert normalize(text) == text


def test_sound_tags_pass_untouched() -> None:
    text = "Well [laughter] <strong>no</strong> 3.<|endofprompt|>"
    assert normalize(text) == "Well [laughter] <strong>no</strong> three.<|endofprompt|>"


def test_control_signs_and_pictures_go_and_wide_letters_become_plain() -> None:
    assert clean("Ａ\u200bb\x07c\ud800") == "Abc"
    assert normalize("one\r\n\ttwo 😀 three") == "one two three"


@pytest.mark.parametrize("text", ["#7", "😀7", "\u200b7", "* 7 *", "~7~", "^7"])
def test_sign_that_the_grammar_refuses_does_not_keep_the_number_from_being_read(text: str) -> None:
    assert "seven" in normalize(text)


@pytest.mark.parametrize(
    ("text", "marks"), [("...", True), ("！？。", True), ("😀", True), ("a.", False), ("3", False), ("好", False)]
)
def test_only_marks(text: str, marks: bool) -> None:
    assert only_marks(text) is marks


@pytest.mark.parametrize(
    ("text", "language", "read"),
    [
        ("3:30", "", "three thirty"),  # no letter tells, so English
        ("3:30", "zh", "三点三十分"),
        ("I have 3 apples.", "zh", "I have 三 apples."),
        ("我有3个苹果。", "en", "我有three个苹果。"),
        ("2024年", "zh", "二零二四年"),
        ("2024年", "ja", "二千二十四年"),  # the same characters, read otherwise
        ("버전 1.2.3", "ko", "버전 1.2.3"),
        ("Am 4. Mai um 9:30 Uhr", "de", "Am 4. Mai um 9:30 Uhr"),  # no grammar: the model reads numbers itself
    ],
)
def test_language_that_is_named_decides_for_the_whole_text(text: str, language: str, read: str) -> None:
    assert normalize(text, language=language) == read
