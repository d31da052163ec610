"""Hanzi to the Mandarin sounds that the embedded voice reads, by pypinyin's phrase dictionary.

Tones are the dictionary's: sandhi is left to the model, whose teacher was given the same and spoke it by itself.
"""

from __future__ import annotations

import re

from studio.text.spoken_symbols import FINALS, INITIALS

HANZI = "[\u3400-\u4dbf\u4e00-\u9fff]+"
"""Pattern of a run of Hanzi."""

_INITIAL = re.compile("zh|ch|sh|[bpmfdtnlgkhjqxrzcs]")
_WHOLE = {"m": "mu", "n": "en", "ng": "eng", "hm": "heng", "hng": "heng", "ê": "ê", "yo": "io"}
"""Syllables outside the table of initials and finals (interjections), by the nearest one in it."""


def read_hanzi(hanzi: str) -> str:
    """The sounds of a run of Hanzi, tone after each syllable: 你好 -> ㄋㄧ3ㄏㄠ3."""
    from pypinyin import Style, lazy_pinyin  # half a second and 60 MB: only when Chinese is read

    syllables = lazy_pinyin(hanzi, style=Style.TONE3, neutral_tone_with_five=True, errors="ignore")
    return "".join(syllable_sounds(s) for s in syllables)


def syllable_sounds(syllable: str) -> str:
    """One tone-numbered pinyin syllable as symbols: zhuang1 -> ㄓㄨㄤ1.

    Raises: KeyError if it is no pinyin syllable.
    """
    tone = syllable[-1] if syllable[-1].isdigit() else "5"
    initial, final = _split(syllable.rstrip("0123456789").replace("ü", "v"))
    return INITIALS.get(initial, "") + FINALS[final] + tone


def _split(plain: str) -> tuple[str, str]:
    """Initial and final as they sound: y and w are spelling, u after j q x is ü, i after zh to s no vowel."""
    plain = _WHOLE.get(plain, plain)
    if plain.startswith("y"):
        rest = plain[1:]
        if rest.startswith("u"):
            return "", "v" + rest[1:]
        return "", "iong" if rest == "ong" else rest if rest.startswith("i") else "i" + rest
    if plain.startswith("w"):
        return "", "u" if plain == "wu" else "u" + plain[1:]
    match = _INITIAL.match(plain)
    if match is None:
        return "", plain
    initial, final = match.group(), plain[match.end() :]
    if initial in ("j", "q", "x") and final.startswith("u"):
        final = "v" + final[1:]
    if final == "i" and initial in ("zh", "ch", "sh", "r", "z", "c", "s"):
        final = ""
    return initial, final
