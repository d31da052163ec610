"""Speaks the lines of scripts in the background, in order of hearing, through the engine that everybody uses."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Awaitable, Callable
from functools import partial

import numpy as np

from studio.engine.engine import Engine
from studio.errors import CapacityError, EngineDead, NotFound, StudioError
from studio.library.voice import Voice
from studio.script.lines import SEED_MAX, Fault
from studio.script.store import Line, Script, ScriptStore
from studio.speech import SynthesisRequest
from studio.takes.recorder import TakeRecorder
from studio.takes.store import Take, TakeStore

logger = logging.getLogger(__name__)

RETRY_S = 5.0

RequestOf = Callable[[str, str, int | None, str], Awaitable[tuple[SynthesisRequest, Voice]]]
"""Text, voice, seed (None: the voice's own, or a fresh one) and client to what the engine is asked for."""


class ScriptRunner:
    """One task a line; a lane for each script lets so many of them at the engine, first line first.

    What waits is in the store and not here, so a restart loses nothing. Owner: the engine's event loop.
    """

    def __init__(
        self,
        engine: Engine,
        scripts: ScriptStore,
        takes: TakeStore,
        recorder: TakeRecorder,
        request_of: RequestOf,
        lines_at_once: int,
    ) -> None:
        self._engine = engine
        self._scripts = scripts
        self._takes = takes
        self._recorder = recorder
        self._request_of = request_of
        self._lines_at_once = lines_at_once
        self._lanes: dict[str, asyncio.Semaphore] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by line
        self._speaking: set[str] = set()
        self._changed = asyncio.Event()
        self._closed = False
        engine.on_ready(self._wake)

    def resume(self) -> None:
        """Go on with what waited when the studio was stopped."""
        for script in self._scripts.unfinished():
            self._begin(script, self._scripts.lines(script))

    def speak(self, script: Script, lines: list[Line]) -> None:
        """Make a take of each of these lines."""
        self._scripts.want(lines)
        self._begin(script, self._scripts.lines(script))

    def is_speaking(self, line: Line) -> bool:
        return line.id in self._speaking

    async def stop(self, script: Script) -> None:
        """End what runs and forget what waits; takes that were made stay."""
        self._scripts.unwant(script)
        await self.abandon(self._scripts.lines(script))

    async def abandon(self, lines: list[Line]) -> None:
        """End what is made of these lines and wait until all that it held is free."""
        tasks = [self._tasks[line.id] for line in lines if line.id in self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        """End all tasks; what waits goes on after the next start."""
        self._closed = True
        for task in (tasks := list(self._tasks.values())):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, script: Script, lines: list[Line]) -> None:
        """Give those of the lines that wait a task each, unless they have one."""
        lane = self._lanes.setdefault(script.id, asyncio.Semaphore(self._lines_at_once))
        for line in lines:
            if line.status == "waiting" and line.id not in self._tasks and not self._closed:
                task = asyncio.create_task(self._speak(script, line, lane), name=f"line {line.id}")
                self._tasks[line.id] = task
                # A task that is cancelled before its first step never reaches a `finally`.
                task.add_done_callback(partial(self._ended, script, line))

    def _ended(self, script: Script, line: Line, task: asyncio.Task[None]) -> None:
        """A line that was edited or stopped, and wanted again while its task was ending, gets another."""
        del self._tasks[line.id]
        if task.cancelled() or task.exception() is None:
            with contextlib.suppress(NotFound):
                self._begin(script, [self._scripts.line(script, line.id)])
        else:
            logger.error("line %s could not be ended", line.id, exc_info=task.exception())
        if not self._tasks:
            self._lanes.clear()
        self._wake()

    async def _speak(self, script: Script, line: Line, lane: asyncio.Semaphore) -> None:
        """Until the line has a take or an error that waiting does not mend."""
        async with lane:
            await self._try(script, line)

    async def _try(self, script: Script, line: Line) -> None:
        while True:
            try:
                take = await self._take_of(script, line)
                return self._scripts.spoken(line, take.id)
            except (CapacityError, EngineDead) as error:
                await self._wait(error.retry_after_s)
            except StudioError as error:
                return self._fail(line, error)
            except Exception:
                logger.exception("line %s failed", line.id)
                return self._scripts.failed(line, Fault("internal"))

    async def _take_of(self, script: Script, line: Line) -> Take:
        """A take; the first has the line's seed, further ones are to sound otherwise."""
        again = bool(self._takes.of_lines([line.id]))
        seed = secrets.randbelow(SEED_MAX) if again else line.seed
        request, voice = await self._request_of(line.text, line.voice, seed, script.client)
        self._speaking.add(line.id)
        try:
            async with await self._engine.submit(request) as stream:
                samples = np.concatenate([chunk.samples async for chunk in stream])
                return await self._recorder.keep(stream, samples, request, voice, line=line.id)
        finally:
            self._speaking.discard(line.id)

    def _fail(self, line: Line, error: StudioError) -> None:
        self._scripts.failed(line, Fault(error.key, error.values))

    async def _wait(self, retry_after_s: float | None) -> None:
        """Until a worker is ready again, a line of ours left its place, or the time that a refusal named is over."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), retry_after_s or RETRY_S)

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
