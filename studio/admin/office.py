"""All that looking after an engine needs, put together: access, monitor, tuning and the log."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from studio.admin.access import AdminAccess
from studio.admin.log import ChangeLog
from studio.admin.monitor import Monitor
from studio.admin.planner import LmSizes, Machine, Plan, plan
from studio.admin.processes import ProcessMeter
from studio.admin.rest import Rest
from studio.admin.sign_in import SignIn, sign_in_of
from studio.admin.tuning import TunedWorker, Tuning
from studio.engine.engine import Engine, EngineLimits
from studio.engine.token_hop import HopSchedule
from studio.settings import Settings
from studio.speech import Sampling, ServedModel

SelfTest = Callable[[], Awaitable[float]]


def limits_of(settings: Settings) -> EngineLimits:
    """The engine's limits as the settings have them."""
    return EngineLimits(
        max_running=settings.max_running,
        queue_size=settings.queue_size,
        max_per_client=settings.max_per_client,
        max_batch_rows=settings.max_batch_rows,
        listener_timeout_s=settings.listener_timeout_s,
        batch_wait_s=settings.batch_wait_s,
        hops=HopSchedule(settings.first_hop_tokens, settings.hop_growth, settings.most_hop_tokens),
    )


@dataclass(slots=True)
class Office:
    """Opened with the application, closed with it. Owner: the event loop."""

    access: AdminAccess
    monitor: Monitor
    tuning: Tuning
    rest: Rest
    log: ChangeLog
    sign_in: SignIn | None = None
    """None where no provider is set, or none of its people is an administrator."""
    _sampling: asyncio.Task[None] | None = field(default=None, repr=False)

    def start(self) -> None:
        """Begin to sample; without a password, print the token that lets one person in."""
        if self.access.token:
            sys.stdout.write(f"Admin tab: this token lets you in once: {self.access.token}\n")
            sys.stdout.flush()
        self._sampling = asyncio.create_task(self.monitor.run(), name="admin monitor")

    async def close(self) -> None:
        await self.tuning.close()
        if self._sampling is not None:
            self._sampling.cancel()
            await asyncio.gather(self._sampling, return_exceptions=True)
        self.log.close()


def open_office(
    engine: Engine,
    workers: Mapping[str, TunedWorker],
    settings: Settings,
    model: ServedModel,
    defaults: Sampling,
    sizes: LmSizes,
    self_test: SelfTest,
) -> Office:
    """workers: "lm" and "token2wav". defaults: the checkpoint's own sampling. self_test: speaks past the line."""
    log = ChangeLog(settings.folder("admin"))

    def planned(wanted: Settings) -> Plan:
        facts = workers["lm"].state.facts
        device = str(facts.get("device", "cpu"))
        measured = engine.measured_rate()
        first_s = engine.first_sound_s if measured is not None else None
        memory_bytes = int(facts.get("gpu_memory_bytes", 0))
        return plan(wanted, sizes, Machine(device, memory_bytes, measured, first_s))

    def apply(wanted: Settings) -> None:
        engine.limit(limits_of(wanted))
        logging.getLogger().setLevel(wanted.log_level.upper())
        model.sampling = wanted.sampling(defaults)

    def pids() -> dict[str, int]:
        return {name: worker.state.pid for name, worker in workers.items() if worker.state.pid is not None}

    tuning = Tuning(engine, workers, settings, log, planned, apply, self_test)
    access = AdminAccess(settings.admin_password, time.monotonic)
    monitor, rest = Monitor(engine, ProcessMeter(pids)), Rest(engine.lm, tuning)
    return Office(access, monitor, tuning, rest, log, sign_in_of(settings))
