"""Texts of requests: each is read once all that texts need is warm, and weighed; it says what is then to be spoken.

How the tokens are made is `sources.py`; of tickets and streams it knows nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial

from studio.engine.generation import IsPlausible
from studio.engine.outlook import GUESSED_TEXT_IDS, Outlook
from studio.engine.quality import EFFORTS, Choice
from studio.engine.sources import (
    Asking,
    TextFrontend,
    ToSpeak,
    arriving_segments,
    as_they_are,
    in_loop_or_thread,
    of_segments,
    of_words,
    segments_of,
)
from studio.protocols import SpeechLM
from studio.speech import Segment, SynthesisRequest


class Reading:
    """The text frontend and its warming. Owner: the engine's event loop."""

    def __init__(self, text: TextFrontend, lm: SpeechLM, outlook: Outlook, is_plausible: IsPlausible) -> None:
        self._text = text
        self._lm = lm
        self._outlook = outlook
        self._is_plausible = is_plausible
        self._warming: asyncio.Task[None] | None = None
        self._warm_observers: list[Callable[[], Awaitable[None]]] = []

    def on_warm(self, observer: Callable[[], Awaitable[None]]) -> None:
        """Call an observer once, when all that texts need is loaded."""
        self._warm_observers.append(observer)

    def begin_warming(self) -> None:
        """Load what the first text would wait for; once, however often it is called."""
        if self._warming is None:
            self._warming = asyncio.create_task(self._warm(), name="warm text")

    async def _warm(self) -> None:
        await asyncio.to_thread(self._text.warm)
        for observer in self._warm_observers:
            await observer()

    async def _is_warm(self) -> None:
        """No text is read before: it would load once more what is being loaded."""
        if self._warming is not None and not self._warming.done():
            await asyncio.wait((self._warming,))  # whoever leaves does not end it for the others

    def check(self, text: str) -> None:
        """Raises InvalidRequest text.* for what can be refused at once."""
        self._text.check(text)

    async def segments(self, text: str, language: str) -> Sequence[Segment]:
        """As it would be spoken; in a thread, since nobody's sound waits for it. Raises InvalidRequest text.*."""
        return await asyncio.to_thread(self._text.reading(language).segments, text)

    async def whole(self, request: SynthesisRequest, text: str) -> ToSpeak:
        """A text that is there. Raises InvalidRequest text.*."""
        await self._is_warm()
        segments = await segments_of(self._text.reading(request.language), text)
        text_ids = sum(len(segment.token_ids) for segment in segments)
        choice = self._outlook.choice(request, text_ids)
        asking = await self._asking(request, choice)
        return ToSpeak(of_segments(asking, as_they_are(segments)), choice, text_ids)

    async def arriving(self, request: SynthesisRequest, pieces: AsyncIterator[str]) -> ToSpeak:
        """A text that is still being written; its rows raise what is wrong with it."""
        await self._is_warm()
        choice = self._outlook.choice(request, GUESSED_TEXT_IDS)
        asking = await self._asking(request, choice)
        text = self._text.reading(request.language)
        if request.interleaved:
            return ToSpeak(of_words(asking, text, pieces), choice, None)
        return ToSpeak(of_segments(asking, arriving_segments(text, pieces)), choice, None)

    async def _asking(self, request: SynthesisRequest, choice: Choice) -> Asking:
        # A transcript is read once, when its voice first speaks.
        prompt_ids = await in_loop_or_thread(partial(self._text.prompt_ids, request), len(request.voice.prompt_text))
        return Asking(self._lm, request, prompt_ids, EFFORTS[choice.quality], self._is_plausible)
