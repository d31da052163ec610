"""The lab: what a load or a setting does to this machine, tried value by value while the studio runs.

Each value that needs a restart goes through tuning, which tests it and takes it back if it fails; whatever was set
before a run is set again after it. It knows the engine by its requests, as any listener does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Any, Protocol, TypeVar

from studio.admin.lab_load import CLIENT, Watch, hear, planned_figures
from studio.admin.lab_runs import LabRuns, Outcome, Point
from studio.admin.planner import Workload
from studio.admin.sweeps import SWEEPS, Value, checked, values_of
from studio.admin.tuning import Tuning
from studio.bench.conditions import conditions
from studio.bench.figures import Play, row
from studio.bench.load import Line, Load, closed_loop, for_seconds, lines_of
from studio.engine.stats import InFlight
from studio.engine.stream import SpeechStream
from studio.errors import AdminBusy, EngineNotReady, InvalidRequest, StudioError
from studio.settings import Settings
from studio.speech import SynthesisRequest

logger = logging.getLogger(__name__)

T = TypeVar("T")
WARMING_SEED = 9000


Ask = Callable[[str, int, str], Awaitable[SynthesisRequest]]
"""The request of a text, a seed and a client's name."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A run. streams: listeners at once, where that is not what is varied; seconds: of each load; text_s: of texts.

    beyond_plan: also try what the planner says cannot fit, to see what happens.
    """

    sweep: str
    values: tuple[Value, ...] = ()
    streams: int = 2
    seconds: float = 20.0
    text_s: int = 6
    beyond_plan: bool = False


class LoadedEngine(Protocol):
    """What the lab needs of the engine: `engine.engine.Engine`."""

    async def submit(self, request: SynthesisRequest) -> SpeechStream: ...

    def in_flight(self) -> Sequence[InFlight]: ...


@dataclass(slots=True)
class Progress:
    """Where a run is. step: "applying", "measuring", "putting back"; point: of the values, from 1."""

    sweep: str
    points: int
    number: int = 0
    step: str = "measuring"
    point: int = 0
    value: Value | None = None
    plays: int = 0


@dataclass(slots=True)
class Lab:
    """One run at a time. Owner: the event loop.

    """

    engine: LoadedEngine
    tuning: Tuning
    runs: LabRuns
    ask: Ask
    progress: Progress | None = None
    """Of the run that is under way; None while there is none."""
    _task: asyncio.Task[None] | None = field(default=None, repr=False)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    def open(self) -> None:
        """Say of the runs that a stopped server left behind that they were cut off."""
        for run in self.runs.left_running():
            asked = run["asked"]
            self._ended(run["number"], run["who"], asked["sweep"], asked["values"], "interrupted", "")

    async def begin(self, asked: Asked, who: str, *, force: bool = False) -> int:
        """Start a run, whose number it gives. force: although others are listening, who will disturb it.

        Raises: InvalidRequest for a sweep or a value that cannot be tried here; AdminBusy while somebody listens,
        another run is under way or settings are being changed. Nothing was begun.
        """
        known = await asyncio.to_thread(conditions)  # before the rest, between which nothing may come
        self.tuning.refuse_while_busy()
        values = checked(asked.sweep, asked.values or self.values_of(asked.sweep), self.tuning.place.device)
        for value in values:
            self._check(asked.sweep, value)
        if (listeners := len(self.engine.in_flight())) and not force:
            raise AdminBusy("lab.listeners", listeners=listeners)
        self._stopping.clear()
        told = {**asdict(asked), "values": values}
        number = self.runs.begin(who, told, {"device": self.tuning.place.device, **known})
        self.tuning.lab_runs = True
        self.progress = Progress(asked.sweep, len(values), number)
        self._task = asyncio.create_task(self._run(number, asked, values, who), name="lab")
        return number

    def values_of(self, sweep: str) -> tuple[Value, ...]:
        """What a sweep tries where nobody asks for other values: those of its own that are possible here."""
        possible = []
        for value in values_of(sweep):
            with contextlib.suppress(InvalidRequest):
                self._check(sweep, value)
                possible.append(value)
        return tuple(possible)

    def _check(self, sweep: str, value: Value) -> None:
        """Raises: InvalidRequest for a value that cannot be."""
        if (knob := SWEEPS[sweep].knob) != "streams":
            self.tuning.preview({knob: value})

    def stop(self) -> None:
        """End the run after what it does now; the settings of before are put back."""
        self._stopping.set()

    async def settled(self) -> None:
        """Wait for the end of the run."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def close(self) -> None:
        """Leave a run as it is, for the server ends: the next one starts with its own settings and calls it cut off."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self.runs.close()

    async def _run(self, number: int, asked: Asked, values: Sequence[Value], who: str) -> None:
        before, reason = self.tuning.settings, ""
        outcome: Outcome = "finished"
        try:
            await self._try_all(number, asked, values, who)
            if self._stopping.is_set():
                outcome = "stopped"
        except Exception as error:  # whatever it is, the settings of before must come back
            if not isinstance(error, StudioError):
                logger.exception("a run of the lab broke")
            outcome, reason = "failed", str(error) or type(error).__name__
        try:
            if not_back := await self._put_back(SWEEPS[asked.sweep].knob, before, who):
                outcome, reason = "failed", not_back
            self._ended(number, who, asked.sweep, values, outcome, reason)
        finally:
            self.progress, self.tuning.lab_runs = None, False

    async def _try_all(self, number: int, asked: Asked, values: Sequence[Value], who: str) -> None:
        points: list[Point] = []
        await self._unless_stopped(self._warm(asked))  # so that the planner has something to go by
        for at, value in enumerate(values, 1):
            if self._stopping.is_set():
                return
            self.progress = replace(self._now, point=at, value=value, plays=0)
            if (point := await self._point(asked, value, who)) is not None:
                points.append(point)
                await asyncio.to_thread(self.runs.save, number, tuple(points))
            if self.tuning.phase == "failed":
                raise EngineNotReady("engine.failed", reason=self.tuning.reason)

    @property
    def _now(self) -> Progress:
        assert self.progress is not None
        return self.progress

    async def _point(self, asked: Asked, value: Value, who: str) -> Point | None:
        """The figures of a value; None if the run was stopped before they were there."""
        knob = SWEEPS[asked.sweep].knob
        streams = int(value) if knob == "streams" else asked.streams
        wanted = self.tuning.settings.model_copy(update={} if knob == "streams" else {knob: value})
        point: Point = {knob: value, "outcome": "measured", "reason": ""}
        planned = planned_figures(self.tuning.plan(wanted, Workload(clip_s=asked.text_s, streams=streams)))
        if knob != "streams":
            outcome, reason = await self._apply(knob, value, who, asked.beyond_plan)
            if outcome != "measured":
                return point | {"outcome": outcome, "reason": reason} | planned
        self._now.step = "measuring"
        if knob != "streams":
            await self._unless_stopped(self._warm(asked))
        measured = await self._unless_stopped(self._measured(asked, streams))
        return None if measured is None else point | planned | measured

    async def _apply(self, knob: str, value: Value, who: str, beyond_plan: bool) -> tuple[str, str]:
        """Set it: "measured" once it is in force, "refused" or "rolled back" if it is not, and why."""
        if getattr(self.tuning.settings, knob) == value:
            return "measured", ""
        self._now.step = "applying"
        try:
            self.tuning.begin({knob: value}, who, force=beyond_plan, lab=True)
        except InvalidRequest as error:
            return "refused", str(error)
        await self.tuning.settled()
        return ("measured", "") if getattr(self.tuning.settings, knob) == value else ("rolled back", self.tuning.reason)

    async def _put_back(self, knob: str, before: Settings, who: str) -> str:
        """Set what was set before the run; gives why that did not work, else ""."""
        if knob == "streams":
            return ""
        self._now.step = "putting back"
        outcome, reason = await self._apply(knob, getattr(before, knob), who, beyond_plan=True)
        return "" if outcome == "measured" else reason

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        """What the work gives; None as soon as the run is stopped, which ends the work."""
        working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else None
        finally:
            working.cancel()
            stopping.cancel()
            await asyncio.gather(working, stopping, return_exceptions=True)

    async def _warm(self, asked: Asked) -> Load:
        """One play that is not counted: a new process is slower for its first request."""
        return await closed_loop(self._speak, islice(lines_of("", asked.text_s, WARMING_SEED), 1), 1)

    async def _measured(self, asked: Asked, streams: int) -> Point:
        """The figures of one load, as the bench has them, with the memory that it took."""
        watch = Watch()

        async def speak(line: Line) -> Play:
            try:
                return await self._speak(line)
            finally:
                self._now.plays += 1
                watch.look(self.tuning.memory_mb(), self.engine.in_flight())

        load = await closed_loop(speak, for_seconds(asked.seconds, lines_of("", asked.text_s)), streams)
        figures = row(streams, load.plays, len(load.failures), load.wall_s)
        return {**self._kv(), **watch.most_mb, **figures, "others": len(watch.others), "failed": load.failures[:1]}

    async def _speak(self, line: Line) -> Play:
        """Each line is a client of its own, so that no client's share of places bounds a load."""
        sent_s = time.monotonic()
        request = await self.ask(line.text, line.seed, f"{CLIENT}{line.seed}")
        return await hear(await self.engine.submit(request), sent_s)

    def _kv(self) -> Point:
        found = self.tuning.found()
        tokens = found["kv_tokens"]
        whole = None if tokens is None else round(tokens / self.tuning.settings.max_model_len, 2)
        return {"kv_blocks": found["kv_blocks"], "kv_tokens": tokens, "full_requests": whole}

    def _ended(
        self, number: int, who: str, sweep: str, values: Sequence[Value], outcome: Outcome, reason: str
    ) -> None:
        self.runs.end(number, outcome, reason)
        told = {"lab": sweep, "values": ", ".join(map(str, values)), "run": number}
        self.tuning.log.add(who, {}, told, outcome, reason, {}, {})
