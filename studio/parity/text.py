"""Text to segments (07_text): as upstream cuts it, but where upstream fails, which is said case by case."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from studio.errors import InvalidRequest
from studio.parity.compare import Line, equal
from studio.parity.fixtures import Fixtures
from studio.text.frontend import TextFrontend
from studio.text.gather import GatherLimits, gather

MENDED: dict[str, tuple[str, object]] = {
    "": ("blank text is refused, not spoken", "text.empty"),
    "   ": ("blank text is refused, upstream crashes", "text.empty"),
    "...": ("marks alone are refused, not silence", "text.only_marks"),
    "?!": ("marks alone are refused, not silence", "text.only_marks"),
    "！？。": ("marks alone are refused, not silence", "text.only_marks"),
    "。。。": ("marks alone are refused, not silence", "text.only_marks"),
    "<|zh|>带标签的文本3个": ("a mark is refused, not read out", "text.mark"),
    'He said "Stop." Then he left.': ("no backslash before quotes", ['He said "Stop." Then he left.']),
    "Version 1.2.3 is out": ("every dot is read", ["Version one point two point three is out."]),
    "A. B. C. D.": ("initials stay apart", ["A. B. C. D."]),
    "①②③": ("circled digits are digits, not zero", ["one two three."]),
    "カタカナ ノ ブンショウ": ("Japanese ends with its own mark", ["カタカナ ノ ブンショウ。"]),
    "没有标点的很长一句话" * 12: ("a sentence without marks is cut", ["没有标点的很长一句话" * 6 + "。"] * 2),
    "no punctuation at all in this very long sentence " * 12: (
        "a sentence without marks is cut",
        [" ".join(["no punctuation at all in this very long sentence"] * 6) + "."] * 2,
    ),
}
"""Text -> what upstream does wrong, and what we give: segments, or the key of the refusal."""


def run_text(fixtures: Fixtures, name: str) -> Iterator[Line]:
    """wetext's column and the splitter alone; blanks at a segment's ends do not count."""
    found = fixtures.meta(name)
    tokenizer = counting_tokenizer(found["stub_token_pattern"])
    frontend = TextFrontend(tokenizer, "raw", ("en", "zh", "ja", "ko"), max_text_chars=4096)
    for case in found["cases"]:
        text = case["text"]
        yield _judged(name, text, _segments(frontend, text), case["wetext"].get("segments"))
    for case in found["split_paragraph"]:
        item = f"split {case['text'][:16]}"
        if case["comma_split"]:
            yield Line(name, item, "aside", "at commas, which upstream never asks for")
            continue
        limits = GatherLimits(case["token_max_n"], case["token_min_n"], case["merge_len"])
        length = len if case["lang"] == "zh" else lambda text: len(tokenizer.encode(text).ids)
        got = [segment.strip() for segment in gather(case["text"], length, limits)]
        expected = [segment.strip() for segment in case["segments"]]
        if max(map(length, expected)) <= limits.most + limits.rest:
            yield equal(name, item, got, expected)
        else:
            yield Line(name, item, "aside", "upstream's own segment is over its limit")


def counting_tokenizer(pattern: str) -> Tokenizer:
    """One token for each match of the pattern."""
    tokenizer = Tokenizer(models.WordLevel({"word": 0}, unk_token="word"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), behavior="removed", invert=True)
    return tokenizer


def _segments(frontend: TextFrontend, text: str) -> object:
    try:
        return [segment.text for segment in frontend.segments(text)]
    except InvalidRequest as error:
        return error.key


def _judged(name: str, text: str, got: object, expected: Any) -> Line:
    item = repr(text[:24])
    if text not in MENDED:
        return equal(name, item, got, [segment.strip() for segment in expected or ()])
    reason, ours = MENDED[text]
    line = equal(name, item, got, ours)
    return Line(name, item, line.verdict, f"mended: {reason}") if line.verdict == "pass" else line
