"""The studio makes a test's material itself: every text in every speech condition, same seeds. Does not know how."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from studio.errors import ListeningConflict, StudioError
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


@dataclass(frozen=True, slots=True)
class Waiting:
    """Material that cannot be made now: the studio runs with other settings than a condition asks for."""

    condition: Condition
    wanted: dict[str, Any]


def utterance(design: Design, condition: Condition, text: str, number: int) -> Utterance:
    """The seed depends on the sentence alone, so that conditions differ in nothing else."""
    return Utterance(text, condition.source.voice, (design.seed + number) % 2**32, condition.source.settings)


def missing(store: ListeningStore, test: Test) -> list[tuple[Condition, int]]:
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


class Generation:
    """Makes material in the background, a task a test; what is made is kept at once, so that it can be gone on with."""

    def __init__(self, store: ListeningStore, speak: Speak, present: Present) -> None:
        self._store, self._speak, self._present = store, speak, present
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def is_busy(self, test: str) -> bool:
        return test in self._tasks

    def waiting(self, design: Design) -> list[Waiting]:
        return waiting(design, self._present())

    def start(self, test: Test) -> None:
        """Begin, or do nothing if it is under way."""
        if test.id not in self._tasks:
            self._store.set_problem(test.id, "")
            task = asyncio.create_task(self._make(test), name=f"listening test {test.id}")
            self._tasks[test.id] = task
            task.add_done_callback(lambda _task: self._tasks.pop(test.id, None))

    async def stop(self, test: str) -> None:
        """End it and wait until it has ended."""
        if task := self._tasks.get(test):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        for test in list(self._tasks):
            await self.stop(test)

    async def _make(self, test: Test) -> None:
        places = asyncio.Semaphore(AT_ONCE)

        async def make(condition: Condition, number: int) -> None:
            async with places:
                running = self._present()
                if condition.id in {w.condition.id for w in waiting(test.design, running)}:
                    return
                text = test.design.texts[number]
                samples = await self._speak(utterance(test.design, condition, text, number))
                if self._present() != running:  # nobody could say with which settings this was made
                    raise ListeningConflict("listening.settings_changed")
                clip = GivenClip(item_of(number), condition.id, samples, SAMPLE_RATE_HZ, text)
                await asyncio.to_thread(self._store.put_clip, test.id, "given", clip)

        try:
            async with asyncio.TaskGroup() as group:
                for condition, number in missing(self._store, test):
                    group.create_task(make(condition, number))
        except* StudioError as errors:
            first: BaseException = errors
            while isinstance(first, BaseExceptionGroup):
                first = first.exceptions[0]
            self._store.set_problem(test.id, str(first))
        except* Exception:
            logger.exception("the material of listening test %s could not be made", test.id)
            self._store.set_problem(test.id, "internal")
