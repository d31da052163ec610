"""All that looking after an engine needs, put together: access, monitor, tuning and the log."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from studio.admin.access import AdminAccess
from studio.admin.fitting import (
    LM_GIB,
    TOKEN2WAV_GIB,
    Room,
    Shortage,
    WeightBytes,
    beside,
    free_memory_bytes,
    known_on_cpu,
    shortage,
)
from studio.admin.lab import Lab
from studio.admin.lab_load import hear
from studio.admin.lab_runs import LabRuns
from studio.admin.log import ChangeLog
from studio.admin.model_desk import Load, ModelDesk, Watched
from studio.admin.monitor import Monitor
from studio.admin.planner import SHARED, LmSizes, Machine, Plan, Workload, plan
from studio.admin.processes import ProcessMeter
from studio.admin.rest import Rest
from studio.admin.sign_in import SignIn, sign_in_of
from studio.admin.tuning import Tuning
from studio.bench.texts import BY_SECONDS
from studio.engine.engine import EngineLimits
from studio.engine.token_hop import HopSchedule
from studio.registry.models import Models
from studio.settings import Settings
from studio.speech import SynthesisRequest, VoicePrompt

TRIED = BY_SECONDS[3][0]
"""What a try of new settings says; `tuning.SELF_TEST` knows how long it is."""
Voice = Callable[[], Awaitable[VoicePrompt]]


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
        first_block_tokens=settings.first_block_tokens,
        guidance=settings.guidance,
    )


@dataclass(slots=True)
class Office:
    """Opened with the application, closed with it; the desk alone knows other models than the default. Owner: the event
    loop."""

    access: AdminAccess
    monitor: Monitor
    tuning: Tuning
    rest: Rest
    log: ChangeLog
    lab: Lab
    desk: ModelDesk
    sign_in: SignIn | None = None
    """None where no provider is set, or none of its people is an administrator."""
    _sampling: asyncio.Task[None] | None = field(default=None, repr=False)

    def start(self) -> None:
        """Begin to sample; without a password, print the token that lets one person in."""
        self.lab.open()
        self.desk.start()
        if self.access.token:
            sys.stdout.write(f"Admin tab: this token lets you in once: {self.access.token}\n")
            sys.stdout.flush()
        self._sampling = asyncio.create_task(self.monitor.run(), name="admin monitor")

    async def close(self) -> None:
        await self.desk.close()
        await self.lab.close()
        await self.tuning.close()
        if self._sampling is not None:
            self._sampling.cancel()
            await asyncio.gather(self._sampling, return_exceptions=True)
        self.log.close()


def open_office(
    models: Models,
    settings: Settings,
    sizes: LmSizes,
    voice: Voice,
    load: Load,
    weights: WeightBytes,
) -> Office:
    """sizes, weights: of the default model. voice: whose tries and loads are spoken. load: gives further models.

    voice raises VoiceNotFound where there is none.
    """
    default = models.default
    engine, workers = default.engine, default.workers
    log = ChangeLog(settings.folder("admin"))

    def machine() -> Machine:
        lm, token2wav = (workers[name].state.facts for name in ("lm", "token2wav"))
        device = str(lm.get("device", "cpu"))
        return Machine(
            device, int(lm.get("gpu_memory_bytes", 0)), engine.costs(SHARED[device]), meter.memory_mb().get("lm"),
            tuning.settings, int(token2wav.get("flow_frame_bytes", 0)),
            int(token2wav.get("flow_pages", 0)) * int(token2wav.get("flow_page_bytes", 0)),
        )  # fmt: skip

    def planned(wanted: Settings, workload: Workload) -> Plan:
        return plan(wanted, sizes, machine(), workload)

    def room() -> Room:
        """On a GPU the driver tells what is free; where it is silent nobody knows."""
        facts, flow = (workers[name].state.facts for name in ("lm", "token2wav"))
        if total := int(facts.get("gpu_memory_bytes", 0)):
            told = monitor.gpu_mb is not None and facts.get("gpus") == 1
            free = total - int((monitor.gpu_mb or 0.0) * 1e6) if told else None
            return Room(free, total, paged=bool(flow.get("flow_pages")))
        if facts.get("device", "cpu") != "cpu":
            return Room(None)
        held, known = meter.memory_mb(), known_on_cpu(tuning.settings, weights)
        return Room(
            free_memory_bytes(),
            beside_lm=beside(held.get("lm"), known["lm"], LM_GIB),
            beside_token2wav=beside(held.get("token2wav"), known["token2wav"], TOKEN2WAV_GIB),
            held={name: int(held[name] * 1e6) for name in workers if name in held},
        )

    def short(wanted: Settings, restarted: tuple[str, ...]) -> Shortage | None:
        return shortage(tuning.settings, wanted, restarted, weights, room())

    def apply(wanted: Settings) -> None:
        logging.getLogger().setLevel(wanted.log_level.upper())
        for loaded in models:
            loaded.engine.limit(limits_of(wanted))
            loaded.model.sampling = wanted.sampling(loaded.defaults)

    async def ask(text: str, seed: int, client: str) -> SynthesisRequest:
        return SynthesisRequest(
            text, await voice(), replace(default.model.sampling, seed=seed), client=client
        )

    async def self_test() -> dict[str, float]:
        request = await ask(TRIED, 0, "admin")
        play = await hear(await engine.try_out(request), time.monotonic())
        return {"first_audio_s": play.ttfa_s, "audio_s_per_s": play.audio_s / play.ended_s}

    def memory_mb() -> dict[str, float]:
        return meter.memory_mb() | ({} if monitor.gpu_mb is None else {"gpu": monitor.gpu_mb})

    meter = ProcessMeter(lambda: default.pids)
    monitor = Monitor(engine, meter)
    tuning = Tuning(engine, workers, settings, log, planned, apply, self_test, memory_mb, short)
    lab = Lab(engine, tuning, LabRuns(settings.folder("admin")), ask)
    desk = ModelDesk(models, load, lambda: tuning.settings, room, log, Watched(meter, monitor))
    access = AdminAccess(settings.admin_password, time.monotonic)
    return Office(access, monitor, tuning, Rest(engine.lm, tuning), log, lab, desk, sign_in_of(settings))
