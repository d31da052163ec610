"""Changing settings of a running engine: checked first, tried before it counts, taken back by itself if it fails.

A change that only new requests see acts at once. One that a worker reads at its start lets new requests wait in line,
ends or waits for those that run, starts the worker again, and speaks a sentence; whatever goes wrong brings the last
good settings back. Requests that wait never learn of either.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from studio.admin.fitting import Shortage
from studio.admin.knobs import changed, workers_of
from studio.admin.log import ChangeLog
from studio.admin.planner import USUAL, Plan, Workload
from studio.combinations import Place
from studio.errors import AdminBusy, EngineDead, EngineNotReady, InvalidRequest, StudioError
from studio.registry.loaded import StartedWorker
from studio.settings import Settings

logger = logging.getLogger(__name__)
T = TypeVar("T")

SELF_TEST_TIMEOUT_S = 120.0
"""Speech that does not end in this time counts as a failed try; a slow CPU needs seconds."""
SELF_TEST = Workload(clip_s=3.0, streams=1)
"""The sentence of the try, as the planner sees it."""
Phase = Literal[
    "idle", "holding", "restarting", "testing", "lent", "returning", "rolling back", "failed", "asleep"
]  # fmt: skip


class HeldEngine(Protocol):
    """What tuning needs of the engine."""

    async def hold(self, *, abort: bool) -> None: ...

    def release(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Preview:
    """What a change would do: the names that change, the workers that start again, figures before and after.

    refusal: why it cannot fit; None where it can.
    """

    settings: Settings
    names: tuple[str, ...]
    workers: tuple[str, ...]
    before: Plan
    after: Plan
    refusal: InvalidRequest | None = None


@dataclass(slots=True)
class Tuning:
    """One change at a time. Owner: the event loop. apply: makes the settings act that need no restart."""

    engine: HeldEngine
    workers: Mapping[str, StartedWorker]
    settings: Settings
    log: ChangeLog
    plan: Callable[[Settings, Workload], Plan]
    apply: Callable[[Settings], None]
    self_test: Callable[[], Awaitable[Mapping[str, float]]]
    """Speaks SELF_TEST past the line; gives figures of the plan as they turned out."""
    memory_mb: Callable[[], Mapping[str, float]]
    short: Callable[[Settings, tuple[str, ...]], Shortage | None] = lambda wanted, workers: None
    """What of wanted settings has no room where these workers start again."""
    drain_timeout_s: float = 180.0
    """How long those who run are waited for before they are ended."""
    phase: Phase = "idle"
    reason: str = ""
    """Why the last change was taken back; empty after one that went well."""
    lab_runs: bool = False
    """A run of the lab owns the settings: nobody else changes them meanwhile."""
    _task: asyncio.Task[Any] | None = field(default=None, repr=False)

    @property
    def place(self) -> Place:
        facts = self.workers["lm"].state.facts
        return Place(str(facts.get("device", "cpu")), int(facts.get("gpus", 0)), str(facts.get("quantized", "")))

    def preview(self, changes: Mapping[str, object], workload: Workload = USUAL) -> Preview:
        """Raises: InvalidRequest naming the setting and the bound that it broke."""
        new = changed(self.settings, changes, self.place)
        names = tuple(n for n in changes if getattr(new, n) != getattr(self.settings, n))
        workers = workers_of(names, self.place)
        after = self.plan(new, workload)
        refusal = self._no_room(new, workers) or (_too_long(after, new.max_model_len) if "lm" in workers else None)
        return Preview(new, names, workers, self.plan(self.settings, workload), after, refusal)

    def _no_room(self, wanted: Settings, workers: tuple[str, ...]) -> InvalidRequest | None:
        if not workers or (found := self.short(wanted, workers)) is None:
            return None
        needs, free = (size / 1e9 for size in (found.fit.needs_bytes, found.fit.free_bytes or 0))
        value = getattr(wanted, found.name)
        return InvalidRequest(found.key, param=found.name, name=found.name, value=value, needs=needs, free=free)

    def begin(
        self, changes: Mapping[str, object], who: str, *, abort: bool = False, force: bool = False, lab: bool = False
    ) -> Preview:
        """Start a change; `phase` and the log tell how it goes.

        abort: end the requests that run in place of waiting for them. force: try what the planner says cannot fit.
        lab: asked by the run of the lab that owns the settings.
        Raises: InvalidRequest for what cannot be; AdminBusy while another change is under way. Nothing was begun.
        """
        preview = self.possible(changes, force=force, lab=lab)
        self.occupy(self._change(preview, who, abort))
        return preview

    def occupy(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin work that no change may come between; `possible` has said that there is none under way."""
        self._task = task = asyncio.create_task(work, name="tuning")
        return task

    def possible(self, changes: Mapping[str, object], *, force: bool = False, lab: bool = False) -> Preview:
        """The preview of a change that could begin now. Raises as `begin`."""
        self.refuse_while_busy(lab=lab)
        preview = self.preview(changes)
        if preview.refusal is not None and not force:
            raise preview.refusal
        return preview

    def begin_rest(self, sleep: Callable[[], Awaitable[None]], who: str) -> None:
        """Let new requests wait, wait for those that run, then sleep; `phase` tells. Raises AdminBusy."""
        self.refuse_while_busy()
        self.occupy(self._rest(sleep, who))

    async def end_rest(self, wake: Callable[[], Awaitable[None]], who: str) -> None:
        """Wake, and let who waited run; a wake that is under way already is waited for.

        Raises: InvalidRequest if nothing sleeps.
        """
        if self.phase != "asleep":
            raise InvalidRequest("admin.not_asleep", param="wake")
        waking = self._task if self._task is not None and not self._task.done() else self.occupy(self._woken(wake, who))
        await asyncio.shield(waking)

    async def _woken(self, wake: Callable[[], Awaitable[None]], who: str) -> None:
        with contextlib.suppress(EngineDead, EngineNotReady):  # one that has ended meanwhile comes back awake
            await wake()
        self.phase = "idle"
        self.engine.release()
        self._log_sleep(who, False)

    def refuse_while_busy(self, *, lab: bool = False) -> None:
        """Raises: AdminBusy while settings change, the LM sleeps, or the lab owns the settings and is not who asks."""
        if self.lab_runs and not lab:
            raise AdminBusy("lab.running")
        if self.phase == "asleep":
            raise AdminBusy("admin.asleep")
        if self._task is not None and not self._task.done():
            raise AdminBusy("admin.busy")

    async def _rest(self, sleep: Callable[[], Awaitable[None]], who: str) -> None:
        self.phase, self.reason = "holding", ""
        try:
            await self.hold(abort=False)
            await sleep()
        except Exception as error:  # whatever it is, who waits must get a place
            if not isinstance(error, StudioError):
                logger.exception("the LM could not be put to sleep")
            self.reason, self.phase = told(error), "idle"
            self.engine.release()
            return
        self.phase = "asleep"
        self._log_sleep(who, True)

    def _log_sleep(self, who: str, asleep: bool) -> None:
        plan = asdict(self.plan(self.settings, USUAL))
        self.log.add(who, {"asleep": not asleep}, {"asleep": asleep}, "applied", "", plan, self.found())

    async def settled(self) -> None:
        """Wait for the end of the present change."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _change(self, preview: Preview, who: str, abort: bool) -> None:
        old, new = self.settings, preview.settings
        outcome, self.reason = "applied", ""
        predicted = asdict(self.plan(new, SELF_TEST))
        tried: Mapping[str, float] = {}
        try:
            if preview.workers:
                self.phase = "holding"
                await self.hold(abort)
                tried = await self.restart(preview.workers, new)
            self.apply(new)
            self.settings = new
        except Exception as error:  # whatever it is, the last good settings must come back
            if not isinstance(error, StudioError):
                logger.exception("settings could not be changed")
            self.reason = told(error)
            outcome = await self._back(preview.workers, old)
        finally:
            self.engine.release()
        self.phase = "failed" if outcome == "failed" else "idle"
        before, after = ({name: getattr(s, name) for name in preview.names} for s in (old, new))
        logger.warning("settings %s by %s: %s %s", outcome, who, after, self.reason)
        found = {**self.found(), **tried}
        self.log.add(who, before, after, outcome, self.reason, predicted, found)

    async def hold(self, abort: bool) -> None:
        """Let new requests wait; those that run and do not end in time are ended, so that no one listener rules."""
        try:
            await asyncio.wait_for(self.engine.hold(abort=abort), self.drain_timeout_s)
        except TimeoutError:
            await asyncio.wait_for(self.engine.hold(abort=True), self.drain_timeout_s)

    async def restart(self, names: tuple[str, ...], settings: Settings) -> Mapping[str, float]:
        """Start workers with settings and try them; gives figures of the plan as they turned out."""
        self.phase = "restarting"
        await self.start(names, settings)
        self.phase = "testing"
        return await asyncio.wait_for(self.self_test(), SELF_TEST_TIMEOUT_S)

    async def start(self, names: tuple[str, ...], settings: Settings) -> None:
        await asyncio.gather(*(self.workers[name].restart(settings.for_worker()) for name in names))
        await asyncio.gather(*(self.workers[name].wait_started() for name in names))

    async def _back(self, names: tuple[str, ...], old: Settings) -> str:
        """The last good settings again; "rolled back", or "failed" when even they do not start."""
        logger.warning("the new settings failed, going back: %s", self.reason)
        self.phase = "rolling back"
        try:
            await self.start(names, old)
        except Exception as error:
            self.reason = f"{self.reason} / {told(error)}"
            return "failed"
        return "rolled back"

    def found(self) -> dict[str, Any]:
        """Figures of the plan as they are now; None where no worker has told them."""
        facts = self.workers["lm"].state.facts
        blocks, size = facts.get("kv_cache_blocks"), facts.get("block_size_tokens")
        tokens = blocks * size if blocks and size else None
        return {"kv_blocks": blocks, "kv_tokens": tokens, "lm_mb": self.memory_mb().get("lm")}


def told(error: Exception) -> str:
    """Why something failed; never empty, as the text of a TimeoutError is."""
    return str(error) or type(error).__name__


def _too_long(plan: Plan, wanted: int) -> InvalidRequest | None:
    """The refusal of a max_model_len that the KV cache or the checkpoint has no room for."""
    if not plan.fits:
        return InvalidRequest("admin.does_not_fit", param="max_model_len", tokens=plan.engine_tokens, wanted=wanted)
    if plan.positions and wanted > plan.positions:
        return InvalidRequest("admin.too_long", param="max_model_len", positions=plan.positions, wanted=wanted)
    return None
