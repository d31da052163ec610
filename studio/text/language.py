"""Which language a text is in, by its script: English, Mandarin, Japanese or Korean."""

from __future__ import annotations

import re
from typing import Literal

Language = Literal["en", "zh", "ja", "ko"]

_KANA = re.compile(r"[\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9d]")
_HANGUL = re.compile(r"[\u1100-\u11ff\u3130-\u318f\uac00-\ud7af]")
HANZI = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")


def language_of(sentence: str) -> Language:
    """By whose rules a sentence is read. Kana or Hangul decide, for both stand beside Chinese characters."""
    if _KANA.search(sentence):
        return "ja"
    if _HANGUL.search(sentence):
        return "ko"
    return "zh" if HANZI.search(sentence) else "en"
