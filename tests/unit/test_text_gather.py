"""Upstream's rule for cutting text, where upstream is right; fixture 07_text holds that they agree (tests/parity)."""

import random

import pytest

from studio.text.gather import GatherLimits, gather
from studio.text.language import language_of
from studio.text.normalize import as_official_chinese, normalize

LIMITS = GatherLimits(most=20, enough=10, rest=5)


def words(text: str) -> int:
    return len(text.split())


@pytest.mark.parametrize("number", ["3.14", "10:30", "1.2.3"])
def test_number_is_no_end_of_a_sentence(number: str) -> None:
    assert gather(f"它是{number}元", len, GatherLimits(4, 1, 1)) != [f"它是{number[0]}", f"{number[1:]}元"]
    assert any(number in part for part in gather(f"甲乙丙丁，{number}，戊己庚辛", len, LIMITS))


def test_closing_quote_stays_with_its_sentence_also_at_the_start() -> None:
    """A mark and a quote at the very start crash upstream."""
    assert gather('?" he said. "Stop." Then he left.', words, GatherLimits(3, 1, 0)) == [
        ' he said. "Stop."', " Then he left.",
    ]  # fmt: skip


def test_every_segment_is_within_the_limit_and_no_letter_is_lost() -> None:
    random.seed(2)
    signs = "abcde 好的是吗一二 .,!?。，；:\"'3.14 ”[breath]"
    for _ in range(300):
        text = "".join(random.choice(signs) for _ in range(random.randrange(1, 300)))
        segments = gather(text, len, LIMITS)
        assert all(len(segment) < LIMITS.most + 2 * LIMITS.rest for segment in segments), text
        assert [c for c in "".join(segments) if c.isalnum()] == [c for c in text if c.isalnum()]


def test_sound_tag_is_never_cut() -> None:
    for before in range(40):
        segments = gather("啊" * before + "[vocalized-noise]" + "哦" * 30, len, GatherLimits(30, 10, 5))
        assert any("[vocalized-noise]" in segment for segment in segments)


@pytest.mark.parametrize(
    ("text", "language"),
    [("Hello 3", "en"), ("你好", "zh"), ("漢字とかな", "ja"), ("안녕하세요 漢字", "ko"), ("用iPhone打电话", "zh")],
)
def test_script_tells_the_language(text: str, language: str) -> None:
    assert language_of(text) == language


def test_each_sentence_is_read_by_the_grammar_of_its_language() -> None:
    assert normalize("我有3个。3月に100円払った。I have 3.") == "我有三个。三月に百円払った。I have three."
    assert normalize("3개 있어요.") == "3개 있어요."


@pytest.mark.parametrize(
    ("text", "official"),
    [
        ("中文 与 English words 混排", "中文与English words混排"),
        ("请看 a.com 的 3.5 版.", "请看a.com的3.5版。"),
        ("（括号）【方括号】`反引号`破折号——结束，，", "括号方括号反引号破折号 结束。"),
    ],
)
def test_mandarin_reaches_the_official_models_as_they_were_trained(text: str, official: str) -> None:
    assert as_official_chinese(text) == official
