"""Which language a text is in, by its script: English, Mandarin, Japanese or Korean, or several."""

from __future__ import annotations

import re
from typing import Literal

Language = Literal["en", "zh", "ja", "ko"]

_KANA = re.compile(r"[\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9d]")
_HANGUL = re.compile(r"[\u1100-\u11ff\u3130-\u318f\uac00-\ud7af]")
HANZI = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_LATIN = re.compile(r"[A-Za-z\u00c0-\u024f]{2,}")


def language_of(sentence: str) -> Language:
    """By whose rules a sentence is read. Kana or Hangul decide, for both stand beside Chinese characters."""
    if _KANA.search(sentence):
        return "ja"
    if _HANGUL.search(sentence):
        return "ko"
    return "zh" if HANZI.search(sentence) else "en"


def languages_of(text: str) -> tuple[Language, ...]:
    """All languages of a text, in the order in which its sentences bring them; () if it has no letters."""
    found: list[Language] = []
    for sentence in re.split(r"(?<=[.!?。！？\n])", text):
        if any(c.isalpha() for c in sentence):
            found.append(language_of(sentence))
            if found[-1] != "en" and _LATIN.search(sentence):
                found.append("en")
    return tuple(dict.fromkeys(found))
