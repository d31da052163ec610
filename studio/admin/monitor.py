"""One sampler and one ring of samples for all who look: the live view of the engine as JSON, and its history."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from studio.admin.gpus import OTHERS, GpuMeter
from studio.admin.kv_pages import kv_pages
from studio.admin.processes import ProcessMeter
from studio.engine.stats import EngineStats, HistogramSnapshot, InFlight, RequestSummary
from studio.protocols import Clock

SAMPLE_S = 1.0
FINE_SAMPLES = 600
COARSE_EVERY = 60
COARSE_SAMPLES = 1440
HISTORY = (
    "kv", "lm_tokens_per_s", "audio_s_per_s", "running", "waiting", "rows", "step_s", "flow_s", "vocoder_s",
    "ttfa_p50_s", "cpu", "rss_mb", "gpu_mb", "gpu_use",
)  # fmt: skip
"""What a chart may show; each is a number or None in a sample."""


class Watched(Protocol):
    """What is looked at: `engine.engine.Engine`."""

    async def stats(self) -> EngineStats: ...

    def in_flight(self) -> Sequence[InFlight]: ...


class Monitor:
    """Samples once a second, whoever looks. Owner: the event loop. sleep and clock are injected by tests."""

    def __init__(
        self,
        engine: Watched,
        processes: ProcessMeter,
        clock: Clock = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        gpus: GpuMeter | None = None,
    ) -> None:
        self._engine = engine
        self._processes = processes
        self._gpus = gpus or GpuMeter(lambda: processes.pids)
        self._clock = clock
        self._sleep = sleep
        self._fine: deque[dict[str, Any]] = deque(maxlen=FINE_SAMPLES)
        self._coarse: deque[dict[str, Any]] = deque(maxlen=COARSE_SAMPLES)
        self._taken = 0
        self._own_gpu_mb: float | None = None
        self._before: tuple[float, EngineStats] | None = None
        self.live = b"{}"
        """The latest view, as the bytes of a JSON body: made once, however many look."""

    @property
    def gpu_mb(self) -> float | None:
        """Memory in use on the GPUs, as last sampled; None where there is none."""
        return self._fine[-1]["gpu_mb"] if self._fine else None

    @property
    def own_gpu_mb(self) -> float | None:
        """What the processes that are watched hold of it; None where the driver does not tell them from others."""
        return self._own_gpu_mb

    async def run(self) -> None:
        """Sample for ever."""
        while True:
            await self.sample()
            await self._sleep(SAMPLE_S)

    async def sample(self) -> None:
        """Take one sample now."""
        stats, now_s = await self._engine.stats(), self._clock()
        in_flight = self._engine.in_flight()
        # The driver may take its time, and the system for each of its processes; streams must not wait for them.
        used, gpus = await asyncio.to_thread(lambda: (self._processes.total(), self._gpus.look()))
        sample = self._figures(stats, now_s) | used | totals_of(gpus["gpus"])
        self._own_gpu_mb = own_of(gpus["gpus"])
        self._before = (now_s, stats)
        self._fine.append(sample)
        self._taken += 1
        if self._taken % COARSE_EVERY == 0:
            self._coarse.append(_mean(list(self._fine)[-COARSE_EVERY:]))
        self.live = json.dumps(view(stats, in_flight, sample, self._processes.parts(), gpus), allow_nan=False).encode()

    def history(self, span: str) -> dict[str, list[float | None]]:
        """Columns by name, the oldest first, "t" in seconds of the wall clock. span: "10m" or "24h"."""
        kept = self._fine if span == "10m" else self._coarse
        return {name: [sample.get(name) for sample in kept] for name in ("t", *HISTORY)}

    def _figures(self, stats: EngineStats, now_s: float) -> dict[str, Any]:
        recent = [r for r in stats.last_requests if r.ttfa_s is not None and now_s - r.ended_s < FINE_SAMPLES]
        first_s = sorted(r.ttfa_s for r in recent if r.ttfa_s is not None)
        sample: dict[str, Any] = {
            "t": time.time(), "running": stats.state.running, "waiting": stats.state.waiting,
            "rows": stats.rows_open, "kv": None if stats.lm is None else stats.lm.kv_cache_usage_ratio,
            "lm_tokens_per_s": None, "audio_s_per_s": None, "step_s": None, "flow_s": None, "vocoder_s": None,
        } | {f"ttfa_p{p}_s": percentile(first_s, p / 100) for p in (50, 95, 99)}  # fmt: skip
        if self._before is not None:
            before_s, before = self._before
            passed_s = max(1e-3, now_s - before_s)
            sample["audio_s_per_s"] = max(0.0, stats.audio_s_total - before.audio_s_total) / passed_s
            for name in ("step_s", "flow_s", "vocoder_s"):
                sample[name] = mean_since(getattr(before, name), getattr(stats, name))
            if stats.lm is not None and before.lm is not None:
                made = stats.lm.generated_tokens - before.lm.generated_tokens
                sample["lm_tokens_per_s"] = max(0, made) / passed_s  # a new engine counts from 0
        return sample


def view(
    stats: EngineStats,
    in_flight: Sequence[InFlight],
    sample: Mapping[str, Any],
    parts: Sequence[Mapping[str, Any]],
    gpus: Mapping[str, Any],
) -> dict[str, Any]:
    """Everything that the tab shows of now."""
    lm = stats.lm
    return {
        "now": dict(sample),
        "ready": stats.state.ready,
        "workers": [
            {"name": w.name, "phase": w.phase, "restarts": w.restarts, "reason": w.reason, "facts": w.facts}
            for w in stats.state.workers
        ],
        "lm": None if lm is None else asdict(lm),
        "pages": None if lm is None else asdict(kv_pages(in_flight, lm)),
        "token2wav": None if stats.token2wav is None else asdict(stats.token2wav),
        "step_s": mean(stats.step_s),
        "flow_s": mean(stats.flow_s),
        "vocoder_s": mean(stats.vocoder_s),
        "batch_rows": mean(stats.batch_rows),
        "rtf": mean(stats.rtf),
        "refused": stats.refused,
        "places": stats.places,
        "given_up": dict(stats.given_up),
        "underruns": stats.underruns,
        "finished": dict(stats.finished),
        "processes": list(parts),
        "gpus": dict(gpus),
        "in_flight": [asdict(request) for request in in_flight],
        "timeline": [bar(request) for request in stats.last_requests],
    }


def totals_of(gpus: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Memory held on all GPUs together and their mean use; None where there is no GPU, or it does not tell."""
    uses = [gpu["use_ratio"] for gpu in gpus if gpu["use_ratio"] is not None]
    return {
        "gpu_mb": sum(gpu["used_mb"] for gpu in gpus) if gpus else None,
        "gpu_use": sum(uses) / len(uses) if uses else None,
    }


def own_of(gpus: Sequence[Mapping[str, Any]]) -> float | None:
    """Memory on all GPUs of the parts that are not `gpus.OTHERS`; None where there is none."""
    parts = [part["memory_mb"] for gpu in gpus for part in gpu["parts"] if part["name"] != OTHERS]
    return sum(parts) if parts else None


def bar(request: RequestSummary) -> dict[str, Any]:
    """A request of the timeline: where each stage ended, in seconds from its coming."""
    whole_s = request.whole_s
    queued_s = min(request.queue_s, whole_s)
    read_s = max(queued_s, whole_s if request.first_token_s is None else request.first_token_s)
    first_s = max(read_s, whole_s if request.ttfa_s is None else request.ttfa_s)
    return {
        "id": request.request_id, "client": request.client, "reason": request.reason,
        "came_s": request.ended_s - whole_s, "queue_s": queued_s, "read_s": read_s, "first_s": first_s,
        "whole_s": whole_s, "audio_s": request.audio_s,
    }  # fmt: skip


def percentile(values: Sequence[float], share: float) -> float | None:
    """The nearest-rank percentile of sorted values; None of none."""
    return values[min(len(values) - 1, int(share * len(values)))] if values else None


def mean(histogram: HistogramSnapshot) -> float | None:
    return histogram.total / histogram.count if histogram.count else None


def mean_since(before: HistogramSnapshot, now: HistogramSnapshot) -> float | None:
    """Of what was observed between two looks."""
    count = now.count - before.count
    return (now.total - before.total) / count if count > 0 else None


def _mean(samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {"t": samples[-1]["t"]}
    for name in HISTORY:
        values = [sample[name] for sample in samples if sample[name] is not None]
        found[name] = sum(values) / len(values) if values else None
    return found
