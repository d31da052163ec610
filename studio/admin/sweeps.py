"""What the lab can vary, which values it tries, and which figures of it are drawn. Runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from studio.admin.knobs import choices, tunable
from studio.errors import InvalidRequest

Value = int | str
MOST_STREAMS = 64
FIRST_AUDIO = ("ttfa_p50_ms", "ttfa_p95_ms", "planned_ttfa_ms")
THROUGHPUT = ("audio_s_per_s", "planned_audio_s_per_s")


@dataclass(frozen=True, slots=True)
class Sweep:
    """One thing that is varied.

    knob: the setting, or "streams" for the number of listeners. values: what is tried where nobody asks for others.
    curves: the figures of each picture; all pictures have the value along their horizontal axis.
    """

    knob: str
    values: tuple[Value, ...]
    curves: tuple[tuple[str, ...], ...]


SWEEPS = {
    "load": Sweep("streams", (2,), ()),
    "streams": Sweep("streams", (1, 2, 4, 8), (FIRST_AUDIO, THROUGHPUT)),
    "max_model_len": Sweep(
        "max_model_len",
        (512, 1024, 2048, 4096, 8192, 16384, 32768),
        (("lm_mb", "gpu_mb", "planned_lm_mb"), ("full_requests",)),
    ),
    "block_size": Sweep("block_size", (32, 64, 96, 128), (("kv_blocks", "planned_kv_blocks"), THROUGHPUT)),
    "quantization": Sweep("quantization", (), (("lm_mb", "gpu_mb"), THROUGHPUT)),
}


def unavailable(name: str, device: str) -> InvalidRequest | None:
    """Why a sweep cannot run here; None if it can."""
    if name == "quantization" and device == "cpu":
        return InvalidRequest("lab.no_quantization", param="sweep")
    if (knob := SWEEPS[name].knob) != "streams" and knob not in tunable():
        return InvalidRequest("admin.not_tunable", param="sweep", name=knob)
    return None


def values_of(name: str) -> tuple[Value, ...]:
    """What a sweep tries if nobody asks for other values: its own, or all choices of its setting."""
    sweep = SWEEPS[name]
    return sweep.values or choices(sweep.knob)


def checked(name: str, values: Sequence[Value], device: str) -> tuple[Value, ...]:
    """The values that are to be tried. Raises InvalidRequest for a sweep that cannot run here, or bad streams."""
    if (refusal := unavailable(name, device)) is not None:
        raise refusal
    if SWEEPS[name].knob == "streams":
        for value in values:
            if not isinstance(value, int) or not 1 <= value <= MOST_STREAMS:
                raise InvalidRequest("lab.bad_streams", param="values", most=MOST_STREAMS)
    return tuple(values)
