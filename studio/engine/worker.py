"""A supervised worker program: started, watched, restarted; its death is told to everyone who waits for it.

It moves messages and knows no model. The child's side is `backends/serve.py`, the messages are `channel.py`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from studio.channel import Failure, Ready, Reply, Settings, StartFailed, StreamEnd
from studio.engine.worker_link import WorkerLink
from studio.errors import EngineDead, EngineNotReady, StudioError
from studio.messages import MessageKey
from studio.protocols import BackendProgress, Clock

logger = logging.getLogger(__name__)

Phase = Literal["waiting", "starting", "ready", "restarting", "failed", "closed"]
Sleep = Callable[[float], Awaitable[None]]

SHOWN_REASON_CHARS = 200
LAST_WORDS_S = 1.0
FIRST_GUESS_S = 60.0
"""How long a start is said to take before one was measured."""


@dataclass(frozen=True, slots=True)
class WorkerState:
    """What a page shows of a worker. stage: catalogue key; fraction: 0..1; reason: why it went."""

    name: str
    phase: Phase = "waiting"
    stage: str = "stage.waiting"
    fraction: float = 0.0
    detail: dict[str, str] = field(default_factory=dict)
    reason: str = ""
    restarts: int = 0
    pid: int | None = None
    since_s: float = 0.0
    last_start_s: float | None = None
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Supervision:
    """When to try again. A worker that fails `failures` times within `window_s` is given up."""

    start_timeout_s: float = 600.0
    close_timeout_s: float = 5.0
    first_backoff_s: float = 1.0
    most_backoff_s: float = 30.0
    failures: int = 5
    window_s: float = 600.0


class WorkerProcess:
    """A worker that is kept alive from `start()` to `close()`. Owner: one event loop."""

    def __init__(
        self,
        command: Sequence[str],
        name: str,
        settings: dict[str, Any],
        *,
        supervision: Supervision = Supervision(),
        clock: Clock = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._command = list(command)
        self._settings = settings
        self._supervision = supervision
        self._observers: list[Callable[[WorkerState], None]] = []
        self._clock = clock
        self._sleep = sleep
        self._link: WorkerLink | None = None
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Condition()
        self._failures: deque[float] = deque()
        self.state = WorkerState(name, since_s=clock())

    async def start(self) -> None:
        """Begin to keep the worker alive; returns at once. Also brings a failed worker back."""
        if self._task is None or self._task.done():
            self._failures.clear()
            await self._set(phase="waiting", stage="stage.waiting", fraction=0.0, detail={})
            self._task = asyncio.create_task(self._supervise(), name=f"supervise {self.state.name}")

    def subscribe(self, observer: Callable[[WorkerState], None]) -> None:
        """Call an observer with every new state, in the event loop."""
        self._observers.append(observer)

    async def wait_ready(self) -> WorkerState:
        """Wait until calls are answered. Raises EngineNotReady when the worker was given up or closed."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.state.phase in ("ready", "failed", "closed"))
        if self.state.phase != "ready":
            raise self._not_ready()
        return self.state

    async def wait_started(self) -> WorkerState:
        """As `wait_ready`, but the first end of a start counts: no further try is waited for."""
        async with self._changed:
            await self._changed.wait_for(self._start_ended)
        if self.state.phase == "restarting":
            raise EngineNotReady("engine.failed", reason=self.state.reason)
        if self.state.phase != "ready":
            raise self._not_ready()
        return self.state

    def _start_ended(self) -> bool:
        # A worker that restarts is known before the reason is.
        state = self.state
        return state.phase in ("ready", "failed", "closed") or (state.phase == "restarting" and bool(state.reason))

    async def call(self, method: str, **args: Any) -> Any:
        """One answer. Raises EngineNotReady before the worker is up, EngineDead when it dies meanwhile."""
        return await self._ready_link().call(method, **args)

    async def stream(self, method: str, **args: Any) -> AsyncIterator[Any]:
        """The items of a stream of the worker; closing it cancels it there. Raises as `call` does."""
        items = self._ready_link().stream(method, **args)
        try:
            async for item in items:
                yield item
        finally:
            await items.aclose()  # type: ignore[attr-defined]

    def send(self, method: str, **args: Any) -> None:
        """One-way; dropped when the worker is not up, for it has lost what it could be about."""
        if self._link is not None and self.state.phase == "ready":
            self._link.send(method, **args)

    def expected_ready_s(self) -> float:
        """A guess of the seconds until calls are answered: the last start's time less what is used."""
        if self.state.phase == "ready":
            return 0.0
        whole_s = self.state.last_start_s or FIRST_GUESS_S
        used_s = self._clock() - self.state.since_s if self.state.phase == "starting" else 0.0
        return max(1.0, whole_s - used_s)

    async def restart(self, settings: dict[str, Any]) -> None:
        """End the worker and begin a new one with other settings; returns at once, see `wait_ready`."""
        await self.close()
        self._settings = settings
        await self.start()

    async def close(self) -> None:
        """End the worker and stop keeping it alive; whoever waits for it is told."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if link := self._link:
            self._link = None
            link.fail_all(self._dead)
            await link.close(self._supervision.close_timeout_s)
        await self._set(phase="closed", stage="stage.waiting", pid=None)

    async def _supervise(self) -> None:
        while True:
            reason, fatal = await self._live_once()
            now_s = self._clock()
            self._failures.append(now_s)
            while now_s - self._failures[0] > self._supervision.window_s:
                self._failures.popleft()
            if fatal or len(self._failures) >= self._supervision.failures:
                logger.error("%s failed and is not started again: %s", self.state.name, reason)
                await self._set(phase="failed", stage="stage.failed", reason=reason, pid=None)
                return
            doubled_s = self._supervision.first_backoff_s * 2 ** (len(self._failures) - 1)
            backoff_s = min(doubled_s, self._supervision.most_backoff_s)
            logger.warning("%s ended; starting it again in %.0f s: %s", self.state.name, backoff_s, reason)
            await self._set(
                phase="restarting", stage="stage.restarting", fraction=0.0, detail={}, reason=reason,
                pid=None, restarts=self.state.restarts + 1,
            )  # fmt: skip
            await self._sleep(backoff_s)

    async def _live_once(self) -> tuple[str, bool]:
        """Start the worker and serve it until it is gone; why it went, and whether another try is useless."""
        await self._set(phase="starting", stage="stage.waiting", fraction=0.0, detail={})
        try:
            link = await WorkerLink.start(self.state.name, self._command)
        except OSError as error:
            return f"{self._command[0]}: {error}", False
        self._link = link
        await self._set(pid=link.process.pid)
        link.channel.send(Settings(self._settings))
        ready = asyncio.Event()
        reading = asyncio.create_task(self._read(link, ready))
        exited = asyncio.create_task(link.process.wait())
        timer = asyncio.create_task(self._time_limit(ready))
        try:
            await asyncio.wait({reading, exited, timer}, return_when=asyncio.FIRST_COMPLETED)
            if exited.done() and not reading.done():
                # Its last words are still in the socket, whose other end a grandchild may hold.
                await asyncio.wait({reading}, timeout=LAST_WORDS_S)
            timed_out = timer.done() and not exited.done() and not reading.done()
        finally:
            for task in (reading, exited, timer):
                task.cancel()
        outcome = (await asyncio.gather(reading, exited, timer, return_exceptions=True))[0]
        if isinstance(outcome, Exception):
            logger.error("%s is ended, for what it sent could not be taken", self.state.name, exc_info=outcome)
        self._link = None
        await self._set(phase="restarting", stage="stage.restarting", reason="", pid=None)
        link.fail_all(self._dead)
        await link.kill()
        if isinstance(outcome, StudioError):
            return outcome.message(), True
        if timed_out:
            return f"not ready after {self._supervision.start_timeout_s:.0f} s", False
        # Everything it said is in our log; the page and /health get the last line, which names the fault.
        said = next((line.strip() for line in reversed(link.last_lines) if line.strip()), "")
        return said[:SHOWN_REASON_CHARS] or f"exit status {link.process.returncode}", False

    async def _read(self, link: WorkerLink, ready: asyncio.Event) -> StudioError | None:
        """Take the worker's messages until it is gone; gives the error that makes another start useless."""
        while True:
            try:
                message = await link.channel.receive()
            except EOFError:
                return None
            if isinstance(message, Reply | StreamEnd | Failure):
                link.route(message)
            elif isinstance(message, BackendProgress):
                await self._set(stage=message.stage, fraction=message.fraction, detail=message.detail)
            elif isinstance(message, Ready):
                took_s = self._clock() - self.state.since_s
                ready.set()
                logger.info("%s is ready after %.1f s", self.state.name, took_s)
                await self._set(
                    phase="ready", stage="stage.ready", fraction=1.0, detail={}, reason="",
                    last_start_s=took_s, facts=message.facts,
                )  # fmt: skip
            elif isinstance(message, StartFailed):
                return message.error

    async def _time_limit(self, ready: asyncio.Event) -> None:
        """Ends when the start has taken too long; never, once the worker is ready."""
        limit = asyncio.ensure_future(self._sleep(self._supervision.start_timeout_s))
        waiting = asyncio.create_task(ready.wait())
        try:
            await asyncio.wait({limit, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if ready.is_set():
                await asyncio.Event().wait()
        finally:
            limit.cancel()
            waiting.cancel()

    async def _set(self, **changes: Any) -> None:
        if changes.get("phase", self.state.phase) != self.state.phase:
            changes["since_s"] = self._clock()
        self.state = replace(self.state, **changes)
        async with self._changed:
            self._changed.notify_all()
        for observer in self._observers:
            observer(self.state)

    def _ready_link(self) -> WorkerLink:
        if self._link is None or self.state.phase != "ready":
            raise self._not_ready()
        return self._link

    def _not_ready(self) -> StudioError:
        if self.state.phase == "failed":
            return EngineNotReady("engine.failed", reason=self.state.reason)
        seconds = self.expected_ready_s()
        return EngineNotReady(
            "engine.not_ready", stage=MessageKey(self.state.stage), seconds=seconds, retry_after_s=seconds
        )

    def _dead(self) -> EngineDead:
        seconds = self.expected_ready_s()
        return EngineDead("engine.dead", seconds=seconds, retry_after_s=seconds)
