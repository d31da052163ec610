"""Text as typed to text as spoken: signs cleaned, numbers, dates and units written out in English or Mandarin.

Sound tags of the model family ([breath], <strong>, <|endofprompt|>) pass untouched. It cuts no segments and turns
no word into sounds.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from functools import cache
from typing import Any

from studio.speech import SOUND_TAGS

logger = logging.getLogger(__name__)

MARK = re.compile(r"<\|[^|<>]{1,40}\|>")
TAG = re.compile("|".join((MARK.pattern, *map(re.escape, SOUND_TAGS))))
HANZI = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_SENTENCE_END = re.compile(r"(?<=[.!?])(?=\s)|(?<=[。！？；\n])")
_LATIN_WORD = re.compile(r"(?<![0-9A-Za-z.])[A-Za-z]{2,}[A-Za-z0-9'-]*")
_PICTURE = re.compile(r"[\u2190-\u21ff\u2300-\u23ff\u2500-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff\ufe0e\ufe0f]")
_ODD_FOR_ENGLISH = re.compile(r"[^\w\s.,;:!?'\"$€£%&@/+=-]|_")


def normalize(text: str) -> str:
    """The text that is spoken; empty when nothing is left of it."""
    return re.sub(r"\s+", " ", "".join(_read_run(run) for run in _runs(clean(text)))).strip()


def clean(text: str) -> str:
    """Full-width letters and digits made plain; control signs, private signs and pictures gone; NFC."""
    plain = "".join(unicodedata.normalize("NFKC", c) if 0xFF10 <= ord(c) <= 0xFF5A and c.isalnum() else c for c in text)
    kept = (" " if c in "\t\r\n\v\f\u2028\u2029\u00a0\u3000" else c for c in unicodedata.normalize("NFC", plain))
    return _PICTURE.sub(" ", "".join(c for c in kept if unicodedata.category(c) not in {"Cc", "Cf", "Co", "Cs", "Cn"}))


def only_marks(text: str) -> bool:
    """Whether there is no letter and no digit in it."""
    return not any(unicodedata.category(c)[0] in "LN" for c in text)


def is_chinese(text: str) -> bool:
    """Whether a text is read by the rules of Mandarin: one Hanzi decides."""
    return HANZI.search(text) is not None


def warm() -> None:
    """Load both grammars, which takes about a second, before the first request needs them."""
    _grammar("en"), _grammar("zh")


def _runs(text: str) -> list[str]:
    """Tags and what stands between them."""
    runs, end = [], 0
    for tag in TAG.finditer(text):
        runs += [text[end : tag.start()], tag.group()]
        end = tag.end()
    return [run for run in (*runs, text[end:]) if run]


def _read_run(run: str) -> str:
    if TAG.fullmatch(run):
        return run
    return "".join(_read_sentence(sentence) for sentence in _SENTENCE_END.split(run))


def _read_sentence(sentence: str) -> str:
    if not is_chinese(sentence):
        return _by_grammar("en", sentence)
    if not re.search(r"\d", sentence):
        return sentence
    # The Mandarin grammar takes the first letters of an English word after a number for a unit ("2024 mixed").
    pieces, end = [], 0
    for word in _LATIN_WORD.finditer(sentence):
        pieces += [_by_grammar("zh", sentence[end : word.start()]), word.group()]
        end = word.end()
    return "".join((*pieces, _by_grammar("zh", sentence[end:])))


def _by_grammar(language: str, text: str) -> str:
    """One piece by wetext, blanks at its ends kept. The English grammar refuses signs that it has no name for."""
    core = text.strip()
    if not core or only_marks(core):
        return text
    plainer = re.sub(r"\s+", " ", _ODD_FOR_ENGLISH.sub(" ", core)).strip()
    for attempt in (core, plainer):
        try:
            read = _grammar(language).normalize(attempt).replace('\\"', '"') if attempt else ""
        except AssertionError:  # how wetext says that no path through the grammar fits
            continue
        return text.replace(core, read, 1)
    logger.debug("no grammar fits a piece of %d characters; it is left as typed", len(core))
    return text


@cache
def _grammar(language: str) -> Any:
    from wetext import Normalizer  # takes a second to import

    return Normalizer(lang=language, operator="tn")
