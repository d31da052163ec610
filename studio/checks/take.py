"""What is wrong with a take: words, leaks of the prompt, clicks, likeness to the clip, loudness; and which is best."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from studio.audio.clicks import clicks_at
from studio.audio.loudness import loudness_of
from studio.checks.clip import as_heard
from studio.checks.mistakes import Mark, mistakes_of
from studio.checks.words import align, error_ratio, words_of
from studio.errors import AsrUnavailable
from studio.messages import render
from studio.protocols import Ears, Transcript
from studio.speech import SAMPLE_RATE_HZ, Float32

MOST_S = 120.0
"""Of a sound that is checked; a longer one is checked in parts by whoever asks."""
LIKE, UNLIKE = 0.5, 0.3
"""Likeness of a take and the clip of its voice. Two prompts of different people in tests/fixtures are alike by 0.35 at
most in nine pairs of ten; parts of one clip by 0.6 and more."""
LOUD_LUFS, QUIET_LUFS = -9.0, -33.0
_CLICK_S = 0.01
_LEAST_LIKENESS_S = 0.5
WEIGHTS = {"words": 1.0, "leak": 0.5, "click": 0.05, "unlike": 1.0}
"""Of what a take is judged by when the best is kept: each wrong word by its share, each leak, each click, and what is
missing in likeness."""


@dataclass(frozen=True, slots=True)
class Sound:
    """A take to check: float32 [n] at 24 kHz, what it should say if that is known, and what its voice's clip says."""

    samples: Float32
    text: str
    prompt_text: str = ""
    clip: tuple[Float32, int] | None = None


@dataclass(frozen=True, slots=True)
class TakeReport:
    """What was found; None where it cannot be known.

    heard needs a recogniser, word_error_ratio one and a text, likeness a clip.
    """

    marks: tuple[Mark, ...]
    lufs: float
    peak_dbfs: float
    heard: str | None = None
    word_error_ratio: float | None = None
    likeness: float | None = None
    notes: tuple[Mark, ...] = field(default=())

    @property
    def penalty(self) -> float:
        """0 for a take without a fault; the less the better."""
        count = {kind: sum(mark.kind == kind for mark in self.marks) for kind in ("leak", "click")}
        unlike = 0.0 if self.likeness is None else max(0.0, LIKE - self.likeness)
        return (
            WEIGHTS["words"] * (self.word_error_ratio or 0.0)
            + WEIGHTS["leak"] * count["leak"]
            + WEIGHTS["click"] * count["click"]
            + WEIGHTS["unlike"] * unlike
        )

    def reasons(self, language: str) -> list[str]:
        """A sentence for each finding, or the one that there is none."""
        found = [mark.message(language) for mark in (*self.marks, *self.notes)]
        return found or [render("check.clean", language)]


async def check_take(take: Sound, ears: Ears) -> TakeReport:
    """Measure and listen; without a recogniser the words are left out, and everything else is told.

    Raises:  EngineNotReady, EngineDead if the ears are gone; QueueFull if too much is being heard.
    """
    loudness = await asyncio.to_thread(loudness_of, take.samples, SAMPLE_RATE_HZ)
    clicks = await asyncio.to_thread(clicks_at, take.samples, SAMPLE_RATE_HZ)
    heard = await _words(take, ears)
    likeness = await _likeness(take, ears)
    marks = [Mark("click", "amber", at, at + _CLICK_S) for at in clicks]
    ratio = None
    if heard is not None and take.text.strip():
        mistakes, ratio = await asyncio.to_thread(_mistakes, take, heard)
        marks = sorted([*marks, *mistakes], key=lambda mark: mark.start_s)
    return TakeReport(
        tuple(marks),
        loudness.lufs,
        loudness.peak_dbfs,
        None if heard is None else heard.text,
        ratio,
        likeness,
        tuple(_notes(loudness.lufs, likeness, len(take.samples) / SAMPLE_RATE_HZ)),
    )


async def _words(take: Sound, ears: Ears) -> Transcript | None:
    try:
        return await ears.transcribe(as_heard(take.samples, SAMPLE_RATE_HZ))
    except AsrUnavailable:
        return None


def _mistakes(take: Sound, heard: Transcript) -> tuple[list[Mark], float]:
    steps = align(words_of(take.text), words_of(heard.text))
    return mistakes_of(take.text, heard, take.prompt_text, len(take.samples) / SAMPLE_RATE_HZ), error_ratio(steps)


async def _likeness(take: Sound, ears: Ears) -> float | None:
    if take.clip is None or len(take.samples) < _LEAST_LIKENESS_S * SAMPLE_RATE_HZ:
        return None
    own, other = await ears.embed([as_heard(take.samples, SAMPLE_RATE_HZ), as_heard(*take.clip)])
    return float(np.dot(own, other))


def _notes(lufs: float, likeness: float | None, end_s: float) -> list[Mark]:
    """What holds for the take as a whole."""
    notes = []
    if likeness is not None and likeness < LIKE:
        severity: Literal["amber", "red"] = "red" if likeness < UNLIKE else "amber"
        notes.append(Mark("unlike", severity, 0.0, end_s, {"likeness": likeness}))
    if not QUIET_LUFS <= lufs <= LOUD_LUFS:
        notes.append(Mark("quiet" if lufs < QUIET_LUFS else "loud", "amber", 0.0, end_s, {"lufs": lufs}))
    return notes


def best_of(reports: Sequence[TakeReport]) -> int:
    """Which take to keep: the least penalty, of equal ones the likest, then the first."""
    return min(range(len(reports)), key=lambda n: (round(reports[n].penalty, 3), -(reports[n].likeness or 0.0), n))
