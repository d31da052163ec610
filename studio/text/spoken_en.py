"""English words to the sounds that the embedded voice reads, by the lexicon that the package misaki ships.

Lexicon: misaki's us_gold.json and us_silver.json (Apache-2.0); only the data is read, none of its code runs.
`spoken_names.txt` adds 6,000 words, mostly names, of the free word list SCOWL, as espeak-ng reads them.
A word with several readings gets the one that the word before it asks for, else the lexicon's default.
"""

from __future__ import annotations

import importlib.util
import json
import re
from functools import lru_cache
from pathlib import Path

from studio.text.spoken_symbols import LETTERS, VOWELS

_PLAIN = {"ᵊ": "ə", "ᵻ": "ɪ", "ʔ": "t", "ɐ": "ə", "g": "ɡ", "ː": "", "æ": "a", "ð": "D"}
"""Finer shades of the lexicon that the teacher's own notation does not tell apart."""

FUNCTION_WORDS = {"a": "ə", "the": "Də", "to": "tə"}
"""Weak forms as the teacher speaks them in running text; `the` and `to` change before a vowel."""

BEFORE_VOWEL = {"the": "Di", "to": "tʊ"}

PREFERRED = {"live": "lˈɪv", "houses": "hˈWzɪz"}
"""Where the lexicon's default is not the reading met most often."""

_PRONOUNS = frozenset({"i", "you", "he", "she", "it", "we", "they", "who", "there"})
VERB_BEFORE = _PRONOUNS | {
    "to", "will", "would", "can", "could", "may", "might", "must", "should", "shall", "cannot", "not", "please",
    "let's", "don't", "didn't", "won't",
}  # fmt: skip
NOUN_BEFORE = frozenset({
    "a", "an", "the", "my", "your", "his", "her", "its", "our", "their", "this", "that", "these", "those", "some",
    "any", "no", "each", "every", "of", "for", "in", "with", "new",
})  # fmt: skip
"""Words after which a noun or a verb is to be expected; all that is needed to tell `to use` from `the use`."""

_VOICELESS, _HISSING = "ptkfθ", "szʃʒʧʤ"


def lexicon() -> dict[str, tuple[str, ...]]:
    """Word -> its readings, default first; about 0.3 s once a process.

    Raises: FileNotFoundError if the package misaki is not installed.
    """
    return _load()[0]


@lru_cache(maxsize=1)
def _load() -> tuple[dict[str, tuple[str, ...]], dict[str, dict[str, str]]]:
    """All readings of each word, and for words that have several those of a noun and of a verb."""
    spec = importlib.util.find_spec("misaki")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("the English lexicon is missing: pip install --no-deps misaki==0.9.4")
    folder = Path(next(iter(spec.submodule_search_locations))) / "data"
    words: dict[str, tuple[str, ...]] = {}
    classes: dict[str, dict[str, str]] = {}
    for name in ("us_silver.json", "us_gold.json"):  # gold is checked by hand and wins
        for word, entry in json.loads((folder / name).read_text(encoding="utf8")).items():
            if readings := _readings(entry):
                words[word] = readings
            if isinstance(entry, dict) and len(readings) > 1:
                classes[word] = {kind: plain_sounds(r) for kind, r in entry.items() if r}
    for line in Path(__file__).with_name("spoken_names.txt").read_text(encoding="utf8").splitlines():
        word, sounds = line.split(" ")
        words.setdefault(word, (sounds,))
    return words, classes


def _readings(entry: str | dict[str, str | None]) -> tuple[str, ...]:
    """The entry's different readings in our symbols, default first."""
    found = [entry] if isinstance(entry, str) else [entry.get("DEFAULT"), *entry.values()]
    return tuple(dict.fromkeys(plain_sounds(r) for r in found if r))


def plain_sounds(phonemes: str) -> str:
    """The lexicon's notation in the symbols of `spoken_symbols`."""
    return "".join(_PLAIN.get(c, c) for c in phonemes)


def read_word(word: str, next_sounds: str = "", before: str = "") -> str:
    """The sounds of one word (letters and apostrophes) between what is read next and the word before it."""
    lower, before = word.lower(), before.lower()
    if lower in FUNCTION_WORDS and not (word.isupper() and len(word) > 1):
        vowel_next = next_sounds.lstrip("ˈˌ")[:1] in VOWELS and next_sounds != ""
        return BEFORE_VOWEL[lower] if vowel_next and lower in BEFORE_VOWEL else FUNCTION_WORDS[lower]
    if lower == "used" and next_sounds in ("tə", "tʊ") and before in _PRONOUNS:
        return "jˈust"  # he used to sing, but: it is used to cut
    kinds = _load()[1].get(lower, {})
    if before in VERB_BEFORE and "VERB" in kinds:
        return kinds["VERB"]
    if before in NOUN_BEFORE and "NOUN" in kinds:
        return kinds["NOUN"]
    readings = word_readings(word)
    return PREFERRED.get(lower) or (readings[0] if readings else spell(word))


@lru_cache(maxsize=50_000)
def word_readings(word: str) -> tuple[str, ...]:
    """Every reading that the lexicon or a suffix rule gives, default first; () if there is none."""
    words = lexicon()
    # A word in capitals is an acronym if the lexicon knows it as one, else if it could not be a plain word.
    for form in (word, word.lower(), word.capitalize()):
        if form in words:
            if form != word and word.isupper() and 2 <= len(word) <= 4 and not _pronounceable(word):
                break
            return words[form]
    if word.isupper() and 2 <= len(word) <= 5 and word.isalpha():
        return (letter_names(word),)
    lower = word.lower()
    for suffix in ("'s", "s'", "'"):
        if lower.endswith(suffix) and len(word) > len(suffix):
            return _with_s(word[: -len(suffix)], only=suffix != "'s")
    if lower[:2] in ("o'", "d'") and (stems := word_readings(word[2:])):  # O'Brien, D'Angelo
        return tuple(("O" if lower[0] == "o" else "d") + r for r in stems)
    return _suffixed(lower) or _compound(lower)


def _compound(lower: str) -> tuple[str, ...]:
    """Two plain words written as one (fullback); the longer first part wins."""
    words = lexicon()
    for cut in range(len(lower) - 3, 2, -1):
        if lower[:cut] in words and lower[cut:] in words:
            return (words[lower[:cut]][0] + words[lower[cut:]][0].replace("ˈ", "ˌ"),)
    return ()


def _pronounceable(word: str) -> bool:
    return any(c in "AEIOUY" for c in word)


def _with_s(stem: str, only: bool) -> tuple[str, ...]:
    """Readings of stem + possessive; `only` keeps the stem's sound (dogs' sounds as dogs does)."""
    stems = word_readings(stem + "s") if only else word_readings(stem)
    return stems if only else tuple(_add_s(r) for r in stems)


def _suffixed(lower: str) -> tuple[str, ...]:
    """Readings by the rules for plural, past, -ing and a few light suffixes, from the stem's readings."""
    for suffix, add in (("s", _add_s), ("d", _add_d), ("ing", _add_ing), ("in'", _add_in)):
        if not lower.endswith(suffix):
            continue
        for stem in _stems(lower, suffix):
            if len(stem) > 1 and stem in lexicon():
                return tuple(add(r) for r in lexicon()[stem])
    for suffix, sounds in (("ly", "li"), ("ness", "nəs"), ("less", "ləs"), ("ful", "fəl"), ("er", "əɹ")):
        for stem in _stems(lower, suffix):
            if lower.endswith(suffix) and len(stem) > 2 and stem in lexicon():
                return tuple(r + sounds for r in lexicon()[stem])
    return ()


def _stems(lower: str, suffix: str) -> tuple[str, ...]:
    """Spellings that the stem may have had before the suffix was added."""
    bare = lower[: -len(suffix)]
    if suffix == "s":
        y_stem = (bare[:-2] + "y",) if bare.endswith("ie") else ()
        e_stem = (bare[:-1],) if bare.endswith("e") else ()
        return (bare, *y_stem, *e_stem)
    if suffix == "d":
        if not bare.endswith("e"):
            return ()
        root = bare[:-1]
        y_stem = (root[:-1] + "y",) if root.endswith("i") else ()
        return (root, bare, *_undoubled(root), *y_stem)
    y_stem = (bare[:-1] + "y",) if bare.endswith("i") else ()
    return (bare, bare + "e", *_undoubled(bare), *y_stem)


def _undoubled(root: str) -> tuple[str, ...]:
    return (root[:-1],) if len(root) > 2 and root[-1] == root[-2] else ()


def _add_s(sounds: str) -> str:
    if sounds[-1] in _HISSING:
        return sounds + "ɪz"
    return sounds + ("s" if sounds[-1] in _VOICELESS else "z")


def _add_d(sounds: str) -> str:
    if sounds[-1] in "td":
        return sounds + "ɪd"
    return sounds + ("t" if sounds[-1] in _VOICELESS + "sʃʧ" else "d")


def _add_ing(sounds: str) -> str:
    return sounds + "ɪŋ"


def _add_in(sounds: str) -> str:
    return sounds + "ɪn"


def letter_names(word: str) -> str:
    """The names of the letters, as an acronym is read: TV -> tˌiv ˈi; the last one bears the stress."""
    names = [lexicon()[c.upper()][0] for c in word if c.upper() in lexicon()]
    return " ".join([*(n.replace("ˈ", "ˌ") for n in names[:-1]), *names[-1:]])


def spell(word: str) -> str:
    """A word that no rule reads, in letters; the model is trained to read them."""
    return "".join(LETTERS[c] for c in re.sub("[^a-z]", "", word.lower()))
