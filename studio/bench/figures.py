"""From plays to figures: percentiles, rates, one row a load. Pure arithmetic; prints and reads nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from studio.bench.playback import Arrival, Heard, play
from studio.engine.rates import least_prebuffer_s


@dataclass(frozen=True, slots=True)
class Play:
    """One request that was heard. Times in seconds since it was sent.

    loud_s: when a listener who began with the first chunk would hear the first sample above -50 dBFS; None: never.
    """

    arrivals: tuple[Arrival, ...]
    ended_s: float
    prebuffer_s: float
    loud_s: float | None = None

    @property
    def ttfa_s(self) -> float:
        return self.arrivals[0].at_s

    @property
    def audio_s(self) -> float:
        return sum(arrival.audio_s for arrival in self.arrivals)

    @property
    def rtf(self) -> float:
        """Seconds from the request to its last sound, for each second of sound; first sound and queue included."""
        return self.arrivals[-1].at_s / self.audio_s

    def heard(self) -> Heard:
        return play(self.arrivals, self.prebuffer_s, self.ended_s)

    def least_prebuffer_s(self) -> float:
        return least_prebuffer_s([(arrival.at_s, arrival.audio_s) for arrival in self.arrivals])


def percentile(values: Sequence[float], share: float) -> float:
    """The value that so large a share of the values does not exceed (nearest rank); share in (0, 1]."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def row(streams: int, plays: Sequence[Play], failures: int, wall_s: float) -> dict[str, object]:
    """The figures of one load: so many streams at a time, each beginning anew when it ends.

    Args:    plays: those that were heard to the end. wall_s: of the whole load.
    Returns: by name, units in the names; without plays only streams, plays and failures.
    """
    counts: dict[str, object] = {"streams": streams, "plays": len(plays), "failures": failures}
    if not plays:
        return counts
    heard = [one.heard() for one in plays]
    ttfa_ms = [1000 * one.ttfa_s for one in plays]
    first_ms = [1000 * one.first_sound_s for one in heard]
    loud_ms = [1000 * one.loud_s for one in plays if one.loud_s is not None]
    clip_s = sum(one.audio_s for one in plays) / len(plays)
    return counts | {
        "clip_s": round(clip_s, 2),
        **{f"ttfa_p{p}_ms": round(percentile(ttfa_ms, p / 100)) for p in (50, 95, 99)},
        **{f"loud_p{p}_ms": round(percentile(loud_ms, p / 100)) for p in (50, 95) if loud_ms},
        **{f"first_sound_p{p}_ms": round(percentile(first_ms, p / 100)) for p in (50, 95)},
        "rtf_p50": round(percentile([one.rtf for one in plays], 0.5), 3),
        "rtf_p95": round(percentile([one.rtf for one in plays], 0.95), 3),
        "audio_s_per_s": round(clip_s * len(plays) / wall_s, 3),
        "underruns": sum(one.underruns for one in heard),
        "dry_s": round(sum(one.dry_s for one in heard), 2),
        "continuity": round(sum(one.underruns == 0 for one in heard) / len(heard), 3),
        "prebuffer_p50_ms": round(1000 * percentile([one.prebuffer_s for one in plays], 0.5)),
        "least_prebuffer_p95_ms": round(1000 * percentile([one.least_prebuffer_s() for one in plays], 0.95)),
    }


def littles_law(plays: Sequence[Play], wall_s: float, in_flight: Sequence[float]) -> dict[str, object]:
    """Requests in the system as the server counted them, beside what Little's law makes of what clients saw.

    Args:    in_flight: requests running and waiting, seen at equal times over the whole load.
    Returns: their mean, and how much the clients' rate times their mean time is of it: near 1, or a clock is wrong.
    """
    if not plays or not any(in_flight):
        return {}
    mean = sum(in_flight) / len(in_flight)
    by_clients = sum(play.ended_s for play in plays) / wall_s
    return {"in_flight": round(mean, 2), "little": round(by_clients / mean, 2)}


def table(rows: Sequence[dict[str, object]]) -> str:
    """The rows for people: a line a load, the names of the figures above."""
    names = list(dict.fromkeys(name for one in rows for name in one))
    cells = [names, *([str(one.get(name, "-")) for name in names] for one in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
    return "\n".join("  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)) for line in cells)
