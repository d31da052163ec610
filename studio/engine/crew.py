"""The workers as one: whether speech can be made, what the page shows until it can, and who is told of a loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from studio.engine.stats import EngineState
from studio.engine.worker import WorkerState
from studio.errors import EngineDead, EngineDraining, EngineNotReady, StudioError
from studio.messages import MessageKey


class SupervisedWorker(Protocol):
    """What the engine needs of a worker beyond its model: `engine.worker.WorkerProcess`."""

    state: WorkerState

    async def start(self) -> None: ...

    def subscribe(self, observer: Callable[[WorkerState], None]) -> None: ...

    def expected_ready_s(self) -> float: ...


class Crew:
    """Owner: the engine's event loop. on_lost: gets the error of all requests when a worker that was ready is gone.

    held: workers are being restarted on purpose, so nobody is refused or told. draining: nobody is served any more.
    """

    def __init__(self, workers: Sequence[SupervisedWorker], on_lost: Callable[[StudioError], None]) -> None:
        self.held = self.draining = False
        self._workers = tuple(workers)
        self._on_lost = on_lost
        self._was_ready: dict[str, bool] = {}
        self._ready_observers: list[Callable[[], None]] = []

    async def start(self) -> None:
        """Start all; returns before they are ready."""
        for worker in self._workers:
            worker.subscribe(self._changed)
            await worker.start()

    def on_ready(self, observer: Callable[[], None]) -> None:
        """Call an observer whenever a worker has become ready, so also after a restart."""
        self._ready_observers.append(observer)

    def state(self, running: int, waiting: int) -> EngineState:
        """What the page shows; the slowest worker speaks for all while not all are ready."""
        states = tuple(worker.state for worker in self._workers)
        pending = [s for s in states if s.phase != "ready"]
        slowest = min(pending, key=lambda s: (s.phase != "failed", s.fraction), default=None)
        return EngineState(
            ready=not pending and not self.draining,
            failed=any(s.phase == "failed" for s in states),
            draining=self.draining,
            stage=slowest.stage if slowest else "stage.ready",
            fraction=sum(s.fraction for s in states) / len(states) if pending else 1.0,
            expected_ready_s=self._expected_ready_s(),
            workers=states,
            running=running,
            waiting=waiting,
        )

    def refuse_unless_ready(self) -> None:
        """Raises: EngineNotReady while the models are not up, EngineDraining."""
        if self.draining:
            raise EngineDraining("engine.draining")
        if self.held:
            return
        for worker in self._workers:
            if worker.state.phase == "failed":
                raise EngineNotReady("engine.failed", reason=worker.state.reason)
        state = self.state(0, 0)
        if not state.ready:
            seconds = state.expected_ready_s
            stage = MessageKey(state.stage)
            raise EngineNotReady("engine.not_ready", stage=stage, seconds=seconds, retry_after_s=seconds)

    def _expected_ready_s(self) -> float:
        return max((worker.expected_ready_s() for worker in self._workers), default=0.0)

    def _changed(self, state: WorkerState) -> None:
        """Tell everyone at once when a worker that was ready is gone: its tokens and rows are lost."""
        was_ready = self._was_ready.get(state.name, False)
        self._was_ready[state.name] = state.phase == "ready"
        if state.phase == "ready" and not was_ready:
            for observer in self._ready_observers:
                observer()
        if was_ready and state.phase != "ready" and not (self.draining or self.held):
            seconds = self._expected_ready_s()
            self._on_lost(EngineDead("engine.dead", seconds=seconds, retry_after_s=seconds))
