"""Where a take's words go wrong: other, dropped, repeated, leaked from the prompt, or added. Hears nothing itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from studio.checks.words import Step, Word, align, words_of
from studio.messages import render
from studio.protocols import Transcript

Kind = Literal["other", "dropped", "repeated", "leak", "added", "click", "unlike", "quiet", "loud"]
_LEAK_WORDS = 2
"""Words of the prompt in a row that are no accident."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One finding of a take and where it lies in it; the sentence of the catalogue is check.KIND."""

    kind: Kind
    severity: Literal["amber", "red"]
    start_s: float
    end_s: float
    values: dict[str, object] = field(default_factory=dict)

    def message(self, language: str = "en") -> str:
        return render(f"check.{self.kind}", language, at=self.start_s, **self.values)


@dataclass(frozen=True, slots=True)
class _Spoken:
    """A heard word with its time."""

    word: Word
    start_s: float
    end_s: float


def mistakes_of(text: str, heard: Transcript, prompt_text: str, end_s: float) -> list[Mark]:
    """All that differs, in order; neighbouring words of one kind are one mark. end_s: of the take."""
    wanted, spoken = words_of(text), _timed(heard)
    steps = align(wanted, [each.word for each in spoken])
    prompt = [word.sound for word in words_of(prompt_text)]
    marks: list[Mark] = []
    at = 0
    while at < len(steps):
        end = at
        while end < len(steps) and steps[end].kind == steps[at].kind:
            end += 1
        if steps[at].kind != "same":
            marks.append(_mark(steps, slice(at, end), wanted, spoken, prompt, end_s))
        at = end
    return marks


def _timed(heard: Transcript) -> list[_Spoken]:
    """The words of a transcript as `words_of` reads it whole, with the times of the pieces that they were heard in.

    A number is read by what stands around it, so a piece alone may give other words; they take the nearest time.
    """
    pieces = [_Spoken(word, each.start_s, each.end_s) for each in heard.words for word in words_of(each.text)]
    whole = words_of(heard.text)
    timed: list[_Spoken] = []
    nearest = (0.0, 0.0)
    for step in align(whole, [piece.word for piece in pieces]):
        if step.heard is not None:
            nearest = pieces[step.heard].start_s, pieces[step.heard].end_s
        if step.wanted is not None:
            timed.append(_Spoken(whole[step.wanted], *nearest))
    return timed


def _mark(
    steps: Sequence[Step], run: slice, wanted: list[Word], spoken: list[_Spoken], prompt: list[str], end_s: float
) -> Mark:
    group = steps[run]
    meant = " ".join(wanted[step.wanted].text for step in group if step.wanted is not None)
    got = [spoken[step.heard] for step in group if step.heard is not None]
    if group[0].kind == "dropped":
        before = [spoken[s.heard].end_s for s in steps[: run.start] if s.heard is not None]
        after = [spoken[s.heard].start_s for s in steps[run.stop :] if s.heard is not None]
        start_s = before[-1] if before else 0.0
        return Mark("dropped", "red", start_s, max(start_s, after[0] if after else end_s), {"words": meant})
    values: dict[str, object] = {"words": " ".join(each.word.text for each in got)}
    times = got[0].start_s, got[-1].end_s
    if group[0].kind == "other":
        return Mark("other", "amber", *times, values | {"wanted": meant})
    sounds = [each.word.sound for each in got]
    if _is_repeat(sounds, steps, run, spoken):
        return Mark("repeated", "red", *times, values)
    if len(sounds) >= _LEAK_WORDS and _holds(prompt, sounds):
        return Mark("leak", "red", *times, values)
    return Mark("added", "amber", *times, values)


def _is_repeat(sounds: list[str], steps: Sequence[Step], run: slice, spoken: list[_Spoken]) -> bool:
    """Whether the words around the added ones, before or behind, are the same words."""
    size = len(sounds)
    before = [spoken[s.heard].word.sound for s in steps[: run.start] if s.heard is not None]
    after = [spoken[s.heard].word.sound for s in steps[run.stop :] if s.heard is not None]
    return before[-size:] == sounds or after[:size] == sounds


def _holds(prompt: list[str], sounds: list[str]) -> bool:
    """Whether two words in a row of these stand so in the prompt."""
    pairs = set(pairwise(prompt))
    return any(pair in pairs for pair in pairwise(sounds))
