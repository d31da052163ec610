"""A load of the lab as seen from inside: how a stream was heard, what memory it took, who else was there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from studio.admin.planner import Plan
from studio.bench.figures import Play
from studio.bench.load import listened
from studio.engine.stats import InFlight
from studio.engine.stream import SpeechStream

CLIENT = "lab "
"""What the names of the lab's own listeners begin with; those of others are hexadecimal."""


@dataclass(slots=True)
class Watch:
    """What was seen during a load: the most memory of each part in MB, and requests that were not the lab's."""

    most_mb: dict[str, float] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)

    def look(self, memory_mb: Mapping[str, float], in_flight: Sequence[InFlight]) -> None:
        most = {f"{name}_mb": max(mb, self.most_mb.get(f"{name}_mb", 0.0)) for name, mb in memory_mb.items()}
        self.most_mb |= most
        self.others |= {r.request_id for r in in_flight if not r.client.startswith(CLIENT)}


async def hear(stream: SpeechStream, sent_s: float) -> Play:
    """Listen to a stream to its end, and close it. sent_s: monotonic clock. Raises what the stream raises."""
    async with stream:
        sound = (chunk.samples async for chunk in stream)
        play = await listened(sound, sent_s, 0.0)
        return replace(play, prebuffer_s=stream.prebuffer_s)  # which it knows by then


def planned_figures(plan: Plan) -> dict[str, object]:
    """The planner's figures under the names of those that are measured; without those that it does not know."""
    figures = {
        "kv_blocks": plan.kv_blocks,
        "lm_mb": plan.lm_mb and round(plan.lm_mb),
        "ttfa_ms": plan.first_audio_s and round(1000 * plan.first_audio_s),
        "audio_s_per_s": plan.audio_s_per_s and round(plan.audio_s_per_s, 3),
    }
    return {f"planned_{name}": value for name, value in figures.items() if value is not None}
