"""Where the speech tokens of a request come from, row by row: a text, a text that still arrives, or another clip.

It decides what the LM is asked and nothing of how tokens are voiced (`utterance.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, TypeVar

from studio.engine.generation import IsPlausible, Offer, speak_once, speak_segment
from studio.engine.interleaving import Interleaving
from studio.engine.quality import Choice, Effort
from studio.errors import InvalidRequest
from studio.protocols import LmPrompt, LmTurn, SpeechLM
from studio.speech import Int32, Sampling, Segment, SpokenRow, SynthesisRequest
from studio.text.arriving import whole_sentences, whole_words
from studio.text.normalize import only_marks
from studio.text.segment import SegmentLimits

SEEDS = 1 << 32
TURN_SEED_STEP = 0x9E3779B1
"""From one turn's seed to the next; odd and large, so that turns meet no seeds of other rows."""
MOST_WAITING_CHARS = 2000
"""Arriving text of which nothing can be spoken yet; a sentence is given long before."""
SHORT_CHARS = 200
"""A text so short is read in the event loop: 0.2 ms for words, 10 to 40 for numbers. Grammars hold the interpreter's
lock, so that in a thread it would hold up the loop as long, and change threads twice besides."""
NO_TEXT = Segment("", ())
T = TypeVar("T")


class TextFrontend(Protocol):
    """Text to what the LM reads; `studio.text.frontend.TextFrontend` is the real one."""

    def reading(self, language: str) -> TextFrontend:
        """The same for texts of one language; "": each sentence is read by its script."""
        ...

    def check(self, text: str) -> None:
        """Raises InvalidRequest text.* for what can be refused at once."""
        ...

    def segments(self, text: str) -> Sequence[Segment]:
        """Takes its time; any thread may call. Raises InvalidRequest text.* for text that cannot be spoken."""
        ...

    def prompt_ids(self, request: SynthesisRequest) -> tuple[int, ...]:
        """What stands before the text: the voice's transcript, an instruction or nothing, by the request's mode."""
        ...

    def lead(self, prompt_ids: Sequence[int]) -> int:
        """How many of them stand before all turns when text arrives while the LM speaks."""
        ...

    def word_ids(self, words: str) -> tuple[int, ...]:
        """Ids of a part of a text that was cut between words. Raises InvalidRequest text.*."""
        ...

    def warm(self) -> None:
        """Load what the first text would wait for; called in a thread."""
        ...


Speak = Callable[[str, Offer], Awaitable[None]]
"""(row id, offer): offer tokens with whether they are the last. Cancelling it ends the LM's work."""


@dataclass(frozen=True, slots=True)
class TokenSource:
    """One row's speech tokens, and the text behind them with its pauses; no text where there is none yet."""

    segment: Segment
    speak: Speak


@dataclass(frozen=True, slots=True)
class ToSpeak:
    """What a request is: its rows, what is spent on them, and the ids of its text; None while it is being written."""

    sources: AsyncIterator[TokenSource]
    choice: Choice
    text_ids: int | None


@dataclass(frozen=True, slots=True)
class Asking:
    """How the LM is asked for a request's segments."""

    lm: SpeechLM
    request: SynthesisRequest
    prompt_ids: tuple[int, ...]
    effort: Effort
    is_plausible: IsPlausible

    def speak(self, segment: Segment, number: int) -> Speak:
        """The segment's tokens. Each segment has a seed of its own, by its number."""
        prompt = LmPrompt(self.prompt_ids, tuple(segment.token_ids), self.heard)
        sampling = self.seeded(number)

        async def speak(row_id: str, offer: Offer) -> None:
            await speak_segment(self.lm, prompt, sampling, row_id, self.effort, self.is_plausible, offer)

        return speak

    @property
    def heard(self) -> Int32:
        """The prompt speech that the LM hears: only where it knows what is said in it."""
        speech = self.request.voice.speech_tokens
        return speech if self.request.mode == "zero_shot" else speech[:0]

    def seeded(self, number: int) -> Sampling:
        sampling = self.request.sampling
        return replace(sampling, seed=(sampling.seed + number) % SEEDS)


async def of_segments(asking: Asking, segments: AsyncIterator[Segment]) -> AsyncIterator[TokenSource]:
    """A row for each segment."""
    number = 0
    async for segment in segments:
        yield TokenSource(segment, asking.speak(segment, number))
        number += 1


async def of_words(asking: Asking, text: TextFrontend, pieces: AsyncIterator[str]) -> AsyncIterator[TokenSource]:
    """One row, whose LM takes turns with the words that arrive."""
    plan = Interleaving(asking.prompt_ids, asking.heard.tolist(), text.lead(asking.prompt_ids))

    async def speak(row_id: str, offer: Offer) -> None:
        turns = made = 0
        async for ids in _arriving_ids(text, pieces):
            plan.offer(ids)
            while (turn := plan.next_turn()) is not None:
                drawn = await _speak_turn(asking, turn, turns, row_id, offer)
                plan.take(drawn)
                made += len(drawn)
                turns += 1
        plan.end_text()
        last = plan.next_turn()
        assert last is not None
        sampling = asking.seeded(TURN_SEED_STEP * turns)
        await speak_once(asking.lm, last, sampling, f"{row_id}.{turns}", offer, made)

    yield TokenSource(NO_TEXT, speak)


async def _speak_turn(asking: Asking, turn: LmTurn, number: int, row_id: str, offer: Offer) -> list[int]:
    """Offer a turn's tokens as they come; all of them, once its fill was drawn or is due."""
    drawn: list[int] = []
    # A turn is a request of its own to the LM, so it needs random numbers of its own.
    generated = asking.lm.generate(turn, asking.seeded(TURN_SEED_STEP * number), f"{row_id}.{number}")
    async with contextlib.aclosing(generated):  # type: ignore[type-var]
        async for delta in generated:
            drawn += delta.tokens
            offer(delta.tokens, False)
    return drawn


async def of_rows(rows: Sequence[SpokenRow]) -> AsyncIterator[TokenSource]:
    """Rows of tokens that are there already; no LM is asked."""
    for row in rows:
        yield TokenSource(Segment("", (), row.pause_s, row.pause_after_s), _given(row.tokens))


def _given(tokens: Sequence[int]) -> Speak:
    async def speak(_row_id: str, offer: Offer) -> None:
        offer(tokens, True)

    return speak


async def as_they_are(segments: Sequence[Segment]) -> AsyncIterator[Segment]:
    """The segments of a text that is whole."""
    for segment in segments:
        yield segment


async def arriving_segments(text: TextFrontend, pieces: AsyncIterator[str]) -> AsyncIterator[Segment]:
    """Segments as soon as their sentence has ended. Raises InvalidRequest text.*, also if no word ever came."""
    waiting, spoken = "", False
    async for piece in pieces:
        ready, waiting = whole_sentences(waiting + piece, SegmentLimits())
        for segment in await _segments(text, ready):
            spoken = True
            yield segment
        _refuse_endless(waiting)
    if not spoken or not only_marks(waiting):
        for segment in await _segments(text, waiting or " "):
            yield segment


async def segments_of(text: TextFrontend, typed: str) -> Sequence[Segment]:
    """A text's segments. Raises InvalidRequest text.*."""
    return await _read(text.segments, typed)


async def _segments(text: TextFrontend, ready: str) -> Sequence[Segment]:
    if not ready:
        return ()
    text.check(ready)
    return await segments_of(text, ready)


async def _read(read: Callable[[str], T], typed: str) -> T:
    return await in_loop_or_thread(partial(read, typed), len(typed))


async def in_loop_or_thread(read: Callable[[], T], characters: int) -> T:
    """A long text takes up to a second, so it is read in a thread, between whose sentences the loop goes on."""
    return read() if characters <= SHORT_CHARS else await asyncio.to_thread(read)


async def _arriving_ids(text: TextFrontend, pieces: AsyncIterator[str]) -> AsyncIterator[tuple[int, ...]]:
    """Ids of whole words as they come. Raises InvalidRequest text.*, also if no word ever came."""
    waiting, spoken = "", False
    async for piece in pieces:
        ready, waiting = whole_words(waiting + piece)
        if ready.strip():
            spoken = spoken or not only_marks(ready)
            yield await _read(text.word_ids, ready)
        _refuse_endless(waiting)
    if not spoken:
        text.check(waiting or " ")
    if waiting.strip():
        yield await _read(text.word_ids, waiting)


def _refuse_endless(waiting: str) -> None:
    if len(waiting) > MOST_WAITING_CHARS:
        raise InvalidRequest("text.too_long", param="input", characters=len(waiting), limit=MOST_WAITING_CHARS)
