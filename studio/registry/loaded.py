"""A checkpoint that speaks, with all that is its own; voices, takes, jobs and ears are shared and kept elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from studio.engine.engine import Engine
from studio.engine.worker import WorkerState
from studio.library.prompts import VoicePrompts
from studio.speech import Sampling, ServedModel


class StartedWorker(Protocol):
    """What is asked of a worker beyond its model: `engine.worker.WorkerProcess`."""

    state: WorkerState

    async def restart(self, settings: dict[str, Any]) -> None: ...

    async def wait_started(self) -> WorkerState:
        """Wait for the end of this start. Raises EngineNotReady with the reason when it failed."""
        ...


@dataclass(frozen=True, slots=True)
class Loaded:
    """workers: "lm" and "token2wav". defaults: the checkpoint's own sampling, before what the settings say."""

    model: ServedModel
    engine: Engine
    prompts: VoicePrompts
    workers: Mapping[str, StartedWorker]
    defaults: Sampling

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def pids(self) -> dict[str, int]:
        """Of its workers that run, by the name of each."""
        return {
            name: worker.state.pid for name, worker in self.workers.items() if worker.state.pid is not None
        }
