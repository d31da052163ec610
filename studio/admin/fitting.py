"""Whether a checkpoint, or a change of settings, fits: what its workers will hold, against what is free."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from studio.checkpoint import Checkpoint, weight_file
from studio.gpu_shares import GRAPH_BYTES, engine_cache_bytes, gpu_pool_bytes, models_known
from studio.settings import Settings

GIB = 2**30
LM_GIB, TOKEN2WAV_GIB = 1.6, 0.7
"""Memory of the workers on a CPU beside weights and KV cache, programs included, where none was measured."""
ENGINE_GIB = 0.6
"""Memory of each further engine of the LM on a CPU beside weights and cache; three of the embedded voice took 2 GB."""
CUDA_GIB = 1.5
"""GPU memory of the token2wav worker beside its weights: CUDA's own, and work space of a step."""

MEMORY = ("kv_cache_gib", "lm_engines", "flow_pool_gib", "gpu_memory_utilization", "flow_cache")
"""Settings that say how much memory the workers take."""


@dataclass(frozen=True, slots=True)
class WeightBytes:
    """Of the files that each worker reads, in bytes."""

    lm: int
    token2wav: int

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> WeightBytes:
        """Raises: CheckpointError for a file that is missing."""
        flow, hift = (weight_file(checkpoint.folder, part) for part in ("flow", "hift"))
        encoders = (checkpoint.folder / name for name in checkpoint.voice_encoders)
        return cls(_size(weight_file(checkpoint.folder, "llm")), sum(map(_size, (flow, hift, *encoders))))


@dataclass(frozen=True, slots=True)
class Room:
    """What is free for workers, and what those of the default model taught.

    memory_bytes: of the GPU; 0 on a CPU. free_bytes: None where nobody tells. beside_lm, beside_token2wav: bytes that a
    worker on a CPU was seen to hold beside its weights and cache. held: bytes of each of these workers, which it gives
    back as it ends. paged: whether the flow keeps pages now.
    """

    free_bytes: int | None
    memory_bytes: int = 0
    beside_lm: int = int(LM_GIB * GIB)
    beside_token2wav: int = int(TOKEN2WAV_GIB * GIB)
    held: Mapping[str, int] = field(default_factory=dict)
    paged: bool = False


@dataclass(frozen=True, slots=True)
class Fit:
    """Bytes that a model will hold, and those that are free; None: unknown."""

    needs_bytes: int
    free_bytes: int | None

    @property
    def fits(self) -> bool:
        return self.free_bytes is None or self.needs_bytes <= self.free_bytes


@dataclass(frozen=True, slots=True)
class Shortage:
    """A changed setting that asks for more bytes than can be had. key: of the sentence that says so."""

    name: str
    key: str
    fit: Fit


def fit(settings: Settings, weights: WeightBytes, room: Room) -> Fit:
    """Of a model that would be loaded now with these settings.

    vLLM takes its share of a GPU whatever it needs of it, and the flow its pool; on a CPU vLLM takes the cache it is
    told, and each of its engines reads weights as they lie in their files, float32 for the official ones and for ours.
    """
    if room.memory_bytes:
        share, total = settings.gpu_memory_utilization, room.memory_bytes
        usual = max(0, gpu_pool_bytes(total, total, share, models_known(settings.model_dump())))
        needs = _of_gpu(settings, weights, room) + (0 if settings.flow_pool_gib else usual)
        return Fit(needs, room.free_bytes)
    return Fit(sum(_on_cpu(settings, weights, room).values()), room.free_bytes)


def shortage(
    present: Settings, wanted: Settings, workers: Collection[str], weights: WeightBytes, room: Room
) -> Shortage | None:
    """What of a change cannot fit where the default model's workers start again; None where all does, or nobody knows.

    Who asks for no more memory than now is never short of it: what runs has found its room. On a GPU several engines
    must find theirs within the LM's share, too.
    """

    def found(settings: Settings) -> Fit:
        return _of_change(settings, workers, weights, room)

    names = [name for name in MEMORY if getattr(present, name) != getattr(wanted, name)]
    if not names:
        return None
    alone = {name: found(present.model_copy(update={name: getattr(wanted, name)})).needs_bytes for name in names}
    name = max(names, key=alone.__getitem__)
    share, engines = int(wanted.gpu_memory_utilization * room.memory_bytes), wanted.lm_engines
    if "lm" in workers and share and engines > 1 and engine_cache_bytes(share, weights.lm, engines) <= 0:
        asked = "lm_engines" if "lm_engines" in names else name
        return Shortage(asked, "admin.engines_do_not_fit", Fit(engines * (weights.lm + GRAPH_BYTES), share))
    change = found(wanted)
    if change.fits or change.needs_bytes <= found(present).needs_bytes:
        return None
    return Shortage(name, "admin.no_gpu_memory" if room.memory_bytes else "admin.no_memory", change)


def _of_change(settings: Settings, workers: Collection[str], weights: WeightBytes, room: Room) -> Fit:
    """Of workers that end and start again; on a GPU, which both share, of both whichever starts again."""
    if total := room.memory_bytes:
        paged = settings.flow_cache == "pages" or (settings.flow_cache == "auto" and room.paged)
        if settings.flow_pool_gib or not paged:
            return Fit(_of_gpu(settings, weights, room), total)
        # The pages take what is left of this model's part, of which there must be some.
        models = models_known(settings.model_dump())
        pool = gpu_pool_bytes(total, total, settings.gpu_memory_utilization, models)
        return Fit(total // models - pool, total // models)
    needs = _on_cpu(settings, weights, room)
    back = sum(room.held.get(worker, 0) for worker in workers)
    free = None if room.free_bytes is None else room.free_bytes + back
    return Fit(sum(needs[worker] for worker in workers), free)


def _of_gpu(settings: Settings, weights: WeightBytes, room: Room) -> int:
    """Of both workers, with the flow's pool as it is set."""
    pool = int(settings.flow_pool_gib * GIB)
    return int(settings.gpu_memory_utilization * room.memory_bytes) + weights.token2wav + int(CUDA_GIB * GIB) + pool


def _on_cpu(settings: Settings, weights: WeightBytes, room: Room) -> dict[str, int]:
    """Of each worker. A pool that is set counts in full, though caches that grow take it only as rows come."""
    known = known_on_cpu(settings, weights)
    return {"lm": known["lm"] + room.beside_lm, "token2wav": known["token2wav"] + room.beside_token2wav}


def known_on_cpu(settings: Settings, weights: WeightBytes) -> dict[str, int]:
    """What settings and files say of each worker, in bytes, without what a worker holds whatever they say."""
    further = (settings.lm_engines - 1) * int(ENGINE_GIB * GIB)
    lm = settings.lm_engines * weights.lm + further + int(settings.kv_cache_gib * GIB)
    return {"lm": lm, "token2wav": weights.token2wav + int(settings.flow_pool_gib * GIB)}


def beside(held_mb: float | None, known_bytes: float, usual_gib: float) -> int:
    """What a worker holds beside what is known of it, in bytes: as measured, at least a tenth of the usual guess."""
    usual = usual_gib * GIB
    return int(usual if held_mb is None else max(usual / 10, held_mb * 1e6 - known_bytes))


def free_memory_bytes(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """What this machine, or the container with a limit that we are in, can still give."""
    free = int(psutil.virtual_memory().available)
    try:
        limit, held = ((cgroup / name).read_text().strip() for name in ("memory.max", "memory.current"))
        stat = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
        # Files that were read count as held, and are given back as soon as somebody asks.
        return min(free, int(limit) - int(held) + int(stat.get("inactive_file", 0)))
    except (OSError, ValueError):  # no such file, or "max"
        return free


def _size(file: Path) -> int:
    return file.stat().st_size if file.is_file() else 0
