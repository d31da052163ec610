"""Text as typed to text as spoken: signs cleaned, numbers, dates and units written out in the text's language.

Sound tags of the model family ([breath], <strong>, <|endofprompt|>) pass untouched. It cuts no segments and turns
no word into sounds.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from functools import cache, lru_cache
from typing import Any

from studio.speech import SOUND_TAGS
from studio.text.language import language_of

logger = logging.getLogger(__name__)

MARK = re.compile(r"<\|[^|<>]{1,40}\|>")
TAG = re.compile("|".join((MARK.pattern, *map(re.escape, SOUND_TAGS))))
_SENTENCE_END = re.compile(r"(?<=[.!?])(?=\s)|(?<=[。！？；\n])")
_FOREIGN = {
    "zh": re.compile(r"(?<![0-9A-Za-z.])[A-Za-z]{2,}[A-Za-z0-9'-]*"),
    "en": re.compile(r"[\u1100-\u11ff\u3041-\u30ff\u3130-\u318f\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]+"),
}
"""Words that a grammar cannot read the number beside: of an English one after it the Mandarin grammar takes the first
letters for a unit ("2024 mixed"), and the English one finds no way through Chinese characters."""
_PICTURE = re.compile(r"[\u2190-\u21ff\u2300-\u23ff\u2500-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff\ufe0e\ufe0f]")
_VERSION = re.compile(r"(?<![\d.])\d+(?:\.\d+){2,}(?![\d.]*\d)")
"""A number with several dots, such as 1.2.3; the grammars read two of its parts as one number."""
_POINT = {"en": " point ", "zh": "点", "ja": "点"}
"""What is said for the dot; the languages that have a grammar. In others the model reads numbers itself."""
_WORD_EN = r"(?:[A-Z]?[a-z]+|[AI])(?:'[a-z]+)*[,;:?!.]?"
_WORDS_EN = re.compile(f"{_WORD_EN}(?: {_WORD_EN})*")
_ODD_FOR_ENGLISH = re.compile(r"[^\w\s.,;:!?'\"$€£%&@/+=-]|_")


def normalize(text: str, tags: re.Pattern[str] = TAG, language: str = "") -> str:
    """The text that is spoken, tags as they are; empty when nothing is left of it.

    language: by whose rules; "" for each sentence by those of its script.
    """
    read = (run if tags.fullmatch(run) else _read_run(run, language) for run in _runs(clean(text), tags))
    return re.sub(r"\s+", " ", "".join(read)).strip()


def clean(text: str) -> str:
    """Full-width letters and digits made plain; control signs, private signs and pictures gone; NFC."""
    if text.isascii() and text.isprintable():
        return text
    plain = "".join(map(_plainer, text))
    kept = (" " if c in "\t\r\n\v\f\u2028\u2029\u00a0\u3000" else c for c in unicodedata.normalize("NFC", plain))
    return _PICTURE.sub(" ", "".join(c for c in kept if unicodedata.category(c) not in {"Cc", "Cf", "Co", "Cs", "Cn"}))


def _plainer(character: str) -> str:
    if 0xFF10 <= ord(character) <= 0xFF5A and character.isalnum():
        return unicodedata.normalize("NFKC", character)
    if 0x2460 <= ord(character) <= 0x2473:  # circled numbers
        return f" {unicodedata.normalize('NFKC', character)} "
    return character


def only_marks(text: str) -> bool:
    """Whether there is no letter and no digit in it."""
    return not any(unicodedata.category(c)[0] in "LN" for c in text)


def is_chinese(text: str, language: str = "") -> bool:
    """Whether a text is read by the rules of Mandarin; language: as in `normalize`."""
    return (language or language_of(text)) == "zh"


def warm() -> None:
    """Load two grammars, which takes about a second, before the first request needs them."""
    _grammar("en"), _grammar("zh")


def as_official_chinese(text: str) -> str:
    """Normalised Mandarin as the official models were given it: no blanks, brackets or dots of other scripts.

    A dot within a number or an address stays a dot (upstream makes 3。14 of 3.14).
    """
    text = re.sub(r"(?<![!-~]) +| +(?![!-~])", "", text)
    text = re.sub(r"(?<![0-9A-Za-z])\.|\.(?![0-9A-Za-z])", "。", text)
    text = text.replace("²", "平方").replace("³", "立方").replace("——", " ")
    return re.sub(r"[，,、]+$", "。", re.sub(r"[（）【】`]", "", text))


def _runs(text: str, tags: re.Pattern[str]) -> list[str]:
    """Tags and what stands between them."""
    runs, end = [], 0
    for tag in tags.finditer(text):
        runs += [text[end : tag.start()], tag.group()]
        end = tag.end()
    return [run for run in (*runs, text[end:]) if run]


def _read_run(run: str, language: str) -> str:
    return "".join(_read_sentence(sentence, language) for sentence in _SENTENCE_END.split(run))


def _read_sentence(sentence: str, language: str) -> str:
    language = language or language_of(sentence)
    if language not in _POINT:
        return sentence
    sentence = _VERSION.sub(lambda m: _POINT[language].join(m.group().split(".")), sentence)
    if language == "zh" and not re.search(r"\d", sentence):
        return sentence
    pieces, end = [], 0
    for word in _FOREIGN[language].finditer(sentence) if language in _FOREIGN else ():
        pieces += [_by_grammar(language, sentence[end : word.start()]), word.group()]
        end = word.end()
    return "".join((*pieces, _by_grammar(language, sentence[end:])))


def _by_grammar(language: str, text: str) -> str:
    """One piece by wetext, blanks at its ends kept. The English grammar refuses signs that it has no name for."""
    core = text.strip()
    if not core or only_marks(core) or (language == "en" and _stays(core)):
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


def _stays(text: str) -> bool:
    """Whether the English grammar would leave a text as it is, told without it: it takes 3 ms for a sentence.

    It changes no word in lower case, whatever stands beside it, and reads others by themselves ("Mr", "Sat"), but for
    those in capitals ("Arlington, MA"): found with a lexicon of 186,000 words and 24,500 sentences without digits.
    """
    return bool(_WORDS_EN.fullmatch(text)) and all(word.islower() or _word_stays(word) for word in text.split(" "))


@lru_cache(maxsize=10_000)
def _word_stays(word: str) -> bool:
    return bool(_grammar("en").normalize(word) == word)


@cache
def _grammar(language: str) -> Any:
    from wetext import Normalizer  # takes a second to import

    return Normalizer(lang=language, operator="tn")
