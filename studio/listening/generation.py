"""The studio makes a test's material itself: every text in every speech condition, same seeds. Does not know how."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from studio.errors import ListeningConflict, StudioError, SynthesisError
from studio.listening.design import Condition, Design, item_of
from studio.listening.store import GivenClip, ListeningStore, Test
from studio.speech import SAMPLE_RATE_HZ, Float32

logger = logging.getLogger(__name__)
AT_ONCE = 2
"""Sentences made at a time; listeners of the studio go on being served between them."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """One sentence to make. settings: those of the request, such as temperature."""

    text: str
    voice: str
    seed: int
    settings: Mapping[str, Any]


Present = Callable[[], Mapping[str, Any]]
"""The studio's settings of the moment by name; only those that conditions may ask for."""

Speak = Callable[[Utterance], Awaitable[Float32]]
"""Speech at 24 kHz, float32 [n]. Raises StudioError."""


Piece = tuple[Condition, int]
"""A condition and the number of a text: one clip to make."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Material that cannot be made now: the studio runs with other settings than a condition asks for."""

    condition: Condition
    wanted: dict[str, Any]


def utterance(design: Design, condition: Condition, text: str, number: int) -> Utterance:
    """The seed depends on the sentence alone, so that conditions differ in nothing else."""
    return Utterance(text, condition.source.voice, (design.seed + number) % 2**32, condition.source.settings)


def missing(store: ListeningStore, test: Test) -> list[Piece]:
    """Conditions and text numbers that are to be made and are not there yet."""
    there = store.clips(test.id, "given")
    return [
        (condition, number)
        for number in range(len(test.design.texts))
        for condition in test.design.conditions
        if condition.source.kind == "speech" and (item_of(number), condition.id) not in there
    ]


def waiting(design: Design, running: Mapping[str, Any]) -> list[Waiting]:
    """Conditions for which the studio must be started with other settings. running: those it has, by name."""
    found = []
    for condition in design.conditions:
        wanted = {k: v for k, v in condition.source.studio.items() if str(running.get(k)) != str(v)}
        if wanted:
            found.append(Waiting(condition, wanted))
    return found


def pinned(design: Design, running: Mapping[str, Any]) -> Design:
    """The design with each spoken condition naming all settings of the studio that any of them names.

    Those that a condition does not name are as they are now, so that it says what all of its clips are made with.
    """
    spoken = [condition for condition in design.conditions if condition.source.kind == "speech"]
    named = {name: running[name] for condition in spoken for name in condition.source.studio if name in running}
    conditions = tuple(
        replace(c, source=replace(c.source, studio=named | dict(c.source.studio))) if c in spoken else c
        for c in design.conditions
    )
    return replace(design, conditions=conditions)


class Generation:
    """Makes material in the background, a task a test; what is made is kept at once, so that it can be gone on with.

    own: the settings that the studio comes back to where those of the moment are only lent; who waits in line meanwhile
    is spoken under them.
    """

    def __init__(self, store: ListeningStore, speak: Speak, present: Present, own: Present | None = None) -> None:
        self._store, self._speak, self._present = store, speak, present
        self._own = own or present
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def is_busy(self, test: str) -> bool:
        return test in self._tasks

    def waiting(self, design: Design) -> list[Waiting]:
        return waiting(design, self._own())

    def start(self, test: Test) -> None:
        """Begin what the studio's own settings allow, or do nothing if it is under way."""
        if test.id not in self._tasks:
            held_back = {w.condition.id for w in self.waiting(test.design)}
            wanted = [piece for piece in missing(self._store, test) if piece[0].id not in held_back]
            self._begin(test, wanted, self._speak, self._own())

    async def make(self, test: Test, conditions: Collection[str], speak: Speak) -> bool:
        """Make what is missing of these conditions under the present settings; whether all of it is there now."""
        wanted = [piece for piece in missing(self._store, test) if piece[0].id in conditions]
        await asyncio.wait((self._begin(test, wanted, speak, self._present()),))
        return not any(condition.id in conditions for condition, _ in missing(self._store, test))

    def _begin(
        self, test: Test, wanted: list[Piece], speak: Speak, running: Mapping[str, Any]
    ) -> asyncio.Task[None]:
        self._store.set_problem(test.id, None)
        task = asyncio.create_task(self._make(test, wanted, speak, running), name=f"listening test {test.id}")
        self._tasks[test.id] = task
        task.add_done_callback(lambda _task: self._tasks.pop(test.id, None))
        return task

    async def stop(self, test: str) -> None:
        """End it and wait until it has ended."""
        if task := self._tasks.get(test):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        for test in list(self._tasks):
            await self.stop(test)

    async def _make(self, test: Test, wanted: list[Piece], speak: Speak, running: Mapping[str, Any]) -> None:
        places = asyncio.Semaphore(AT_ONCE)

        async def make(condition: Condition, number: int) -> None:
            async with places:
                text = test.design.texts[number]
                samples = await speak(utterance(test.design, condition, text, number))
                if self._present() != running:  # nobody could say with which settings this was made
                    raise ListeningConflict("listening.settings_changed")
                clip = GivenClip(item_of(number), condition.id, samples, SAMPLE_RATE_HZ, text)
                await asyncio.to_thread(self._store.put_clip, test.id, "given", clip)

        try:
            async with asyncio.TaskGroup() as group:
                for condition, number in wanted:
                    group.create_task(make(condition, number))
        except* StudioError as errors:
            first: BaseException = errors
            while isinstance(first, BaseExceptionGroup):
                first = first.exceptions[0]
            assert isinstance(first, StudioError)
            self._store.set_problem(test.id, first)
        except* Exception:
            logger.exception("the material of listening test %s could not be made", test.id)
            self._store.set_problem(test.id, SynthesisError("internal"))
