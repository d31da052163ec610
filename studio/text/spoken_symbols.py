"""The symbols that the embedded voice's speech LM reads: sounds of English and Mandarin, letters, marks.

Every symbol is one token of the checkpoint's tokenizer, which `training/text.py` builds from these lists.
This module turns nothing into symbols; `spoken_en` and `spoken_zh` do.
"""

from __future__ import annotations

STRESSES = ("ˈ", "ˌ")
"""Primary and secondary stress, written before the vowel that bears it and joined with it into one token."""

VOWELS = tuple("iɪɛaɑɔʊuʌəɜAIOWY")
"""IPA, but a is the vowel of cat; A I O W Y are the diphthongs of day, my, go, now, boy; ɜ stands before ɹ only."""

CONSONANTS = tuple("bdfhjklmnpstvwzɡŋɹɾʃʒʤʧDθ")
"""IPA, but D is the first sound of this: IPA's own letters for it and for cat's vowel are names of single bytes in
byte-level vocabularies, so they cannot be tokens beside the bytes."""

INITIALS = {
    "b": "ㄅ", "p": "ㄆ", "m": "ㄇ", "f": "ㄈ", "d": "ㄉ", "t": "ㄊ", "n": "ㄋ", "l": "ㄌ",
    "g": "ㄍ", "k": "ㄎ", "h": "ㄏ", "j": "ㄐ", "q": "ㄑ", "x": "ㄒ", "zh": "ㄓ", "ch": "ㄔ",
    "sh": "ㄕ", "r": "ㄖ", "z": "ㄗ", "c": "ㄘ", "s": "ㄙ",
}  # fmt: skip

FINALS = {
    "": "", "a": "ㄚ", "o": "ㄛ", "e": "ㄜ", "ê": "ㄝ", "ai": "ㄞ", "ei": "ㄟ", "ao": "ㄠ", "ou": "ㄡ",
    "an": "ㄢ", "en": "ㄣ", "ang": "ㄤ", "eng": "ㄥ", "er": "ㄦ", "r": "ㄦ",
    "i": "ㄧ", "ia": "ㄧㄚ", "io": "ㄧㄛ", "ie": "ㄧㄝ", "iai": "ㄧㄞ", "iao": "ㄧㄠ", "iu": "ㄧㄡ",
    "iou": "ㄧㄡ", "ian": "ㄧㄢ", "in": "ㄧㄣ", "iang": "ㄧㄤ", "ing": "ㄧㄥ", "iong": "ㄩㄥ",
    "u": "ㄨ", "ua": "ㄨㄚ", "uo": "ㄨㄛ", "uai": "ㄨㄞ", "ui": "ㄨㄟ", "uei": "ㄨㄟ", "uan": "ㄨㄢ",
    "un": "ㄨㄣ", "uen": "ㄨㄣ", "uang": "ㄨㄤ", "ong": "ㄨㄥ", "ueng": "ㄨㄥ",
    "v": "ㄩ", "ve": "ㄩㄝ", "van": "ㄩㄢ", "vn": "ㄩㄣ",
}  # fmt: skip
"""Finals as they sound (v for ü), in Bopomofo: a character a sound, none shared with the English symbols."""

TONES = tuple("12345")
"""Tone of the syllable before, 5 = neutral. No digit is left in normalised text, so plain digits are free."""

LETTERS = {chr(ord("a") + i): chr(0xFF41 + i) for i in range(26)}
"""A word that no rule can read is spelled in these full-width letters, one token each."""

MARKS = tuple(" ,.?!;:")


def joined_symbols() -> list[str]:
    """The symbols of more than one byte, in a fixed order: the tokenizer gives each an id of its own."""
    sounds = [s for s in (*VOWELS, *CONSONANTS) if not s.isascii()]
    stressed = [mark + vowel for mark in STRESSES for vowel in VOWELS]
    chinese = sorted({c for value in (*INITIALS.values(), *FINALS.values()) for c in value})
    return [*sounds, *STRESSES, *stressed, *chinese, *LETTERS.values()]
