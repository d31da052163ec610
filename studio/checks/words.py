"""Words by their sound, and how two texts differ. Homophones and ways of writing a number are no difference."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from studio.text.normalize import normalize
from studio.text.spoken_en import read_word

DIFFERS_BELOW = 0.6
"""Agreement under which a typed transcript is taken for another text than the clip's. Whisper tiny.en agrees by 0.85
and more with the transcripts of the English prompts in tests/fixtures, and by less than 0.4 with those of others."""
_WORD = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]|[^\W\d_\u3400-\u4dbf\u4e00-\u9fff]+(?:['’][^\W\d_]+)*|\d+")
_INITIALS = re.compile(r"\b[A-Z]{2,5}\b")
_TAG = re.compile(r"\[[^\[\]]*\]|<[^<>]*>")
_STRESS = re.compile(r"[ˈˌ']")
Kind = Literal["same", "other", "dropped", "added"]


@dataclass(frozen=True, slots=True)
class Word:
    """text: as written; sound: equal for words that sound alike."""

    text: str
    sound: str


@dataclass(frozen=True, slots=True)
class Step:
    """One step of an alignment. wanted, heard: places in the two sequences; None where there is none."""

    kind: Kind
    wanted: int | None
    heard: int | None


def words_of(text: str) -> list[Word]:
    """The words of a text as they are spoken, numbers written out; each Hanzi is one, each letter of initials too.

    What stands in brackets is no word but a pause or a sound.
    """
    parted = _INITIALS.sub(lambda match: " ".join(match.group()), normalize(_TAG.sub(" ", text)))
    return [Word(found, _sound(found)) for found in _WORD.findall(parted)]


def _sound(word: str) -> str:
    if "\u3400" <= word[0] <= "\u9fff":
        from pypinyin import lazy_pinyin  # half a second and 60 MB: only when Chinese is compared

        return "".join(lazy_pinyin(word))
    lower = word.lower().replace("’", "'")
    return _STRESS.sub("", read_word(lower)) if lower.isascii() and not lower.isdigit() else lower


def align(wanted: Sequence[Word], heard: Sequence[Word]) -> list[Step]:
    """The fewest words that are other, dropped or added; of equal ways that which adds last: a repeat is the second."""
    costs = [[0] * (len(heard) + 1) for _ in range(len(wanted) + 1)]
    for i in range(len(wanted) + 1):
        for j in range(len(heard) + 1):
            if i and j:
                keep = costs[i - 1][j - 1] + (wanted[i - 1].sound != heard[j - 1].sound)
                costs[i][j] = min(keep, costs[i - 1][j] + 1, costs[i][j - 1] + 1)
            else:
                costs[i][j] = i + j
    steps: list[Step] = []
    i, j = len(wanted), len(heard)
    while i or j:
        same = bool(i and j and wanted[i - 1].sound == heard[j - 1].sound)
        if j and costs[i][j] == costs[i][j - 1] + 1:
            j -= 1
            steps.append(Step("added", None, j))
        elif i and j and costs[i][j] == costs[i - 1][j - 1] + (not same):
            i, j = i - 1, j - 1
            steps.append(Step("same" if same else "other", i, j))
        else:
            i -= 1
            steps.append(Step("dropped", i, None))
    return steps[::-1]


def error_ratio(steps: Sequence[Step]) -> float:
    """Words that are other, dropped or added, by the wanted ones; may be above 1."""
    wanted = sum(step.wanted is not None for step in steps)
    return sum(step.kind != "same" for step in steps) / max(1, wanted)


def agreement(typed: str, heard: str) -> float:
    """How much of two texts is the same: 1 all, 0 nothing."""
    steps = align(words_of(typed), words_of(heard))
    return sum(step.kind == "same" for step in steps) / max(1, len(steps))
