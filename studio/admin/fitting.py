"""Whether a checkpoint fits beside those that are loaded: what its workers will hold, against what is free."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil

from studio.checkpoint import Checkpoint, weight_file
from studio.gpu_shares import gpu_pool_bytes, models_known
from studio.settings import Settings

GIB = 2**30
LM_GIB, TOKEN2WAV_GIB = 1.6, 0.7
"""Memory of the workers on a CPU beside weights and KV cache, programs included, where none was measured."""
CUDA_GIB = 1.5
"""GPU memory of the token2wav worker beside its weights: CUDA's own, and work space of a step."""


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
    worker on a CPU was seen to hold beside its weights and cache.
    """

    free_bytes: int | None
    memory_bytes: int = 0
    beside_lm: int = int(LM_GIB * GIB)
    beside_token2wav: int = int(TOKEN2WAV_GIB * GIB)


@dataclass(frozen=True, slots=True)
class Fit:
    """Bytes that a model will hold, and those that are free; None: unknown."""

    needs_bytes: int
    free_bytes: int | None

    @property
    def fits(self) -> bool:
        return self.free_bytes is None or self.needs_bytes <= self.free_bytes


def fit(settings: Settings, weights: WeightBytes, room: Room) -> Fit:
    """Of a model that would be loaded now with these settings.

    vLLM takes its share of a GPU whatever it needs of it, and the flow its pool; on a CPU vLLM takes the cache it is
    told, and each of its engines reads weights as they lie in their files, float32 for the official ones and for ours.
    """
    if room.memory_bytes:
        share, total = settings.gpu_memory_utilization, room.memory_bytes
        usual = max(0, gpu_pool_bytes(total, total, share, models_known(settings.model_dump())))
        pool = int(settings.flow_pool_gib * GIB) or usual
        return Fit(int(share * total) + weights.token2wav + int(CUDA_GIB * GIB) + pool, room.free_bytes)
    lm = settings.lm_engines * weights.lm + int(settings.kv_cache_gib * GIB) + room.beside_lm
    return Fit(lm + weights.token2wav + room.beside_token2wav, room.free_bytes)


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
