"""Settings that do not go together, or not where the models run. Knows no reason but the bound that is broken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

CPU_BLOCK_TOKENS = 32
GPU_ONLY = {
    "kv_cache_dtype": "auto", "quantization": "auto", "enable_sleep_mode": False, "batch_invariant": False,
}  # fmt: skip
"""Settings of the LM that a CPU has no use for, and what they are there."""
NOT_LESS = (
    ("max_num_batched_tokens", "max_num_seqs"), ("max_model_len", "block_size"),
    ("most_hop_tokens", "first_hop_tokens"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """Where the LM runs. gpus: that it may use; 0 on a CPU. quantized: how the checkpoint's weights are, "" if not."""

    device: str = "cpu"
    gpus: int = 0
    quantized: str = ""


@dataclass(frozen=True, slots=True)
class Misfit:
    """A setting that cannot be as it is; key: of the sentence that says why."""

    name: str
    key: str
    values: dict[str, Any] = field(default_factory=dict)


def misfit(settings: Mapping[str, Any], place: Place) -> Misfit | None:
    """The first setting that cannot be, if there is one. settings: by name; those that are missing fit."""
    return next(_misfits(settings, place), None)


def _misfits(settings: Mapping[str, Any], place: Place) -> Iterator[Misfit]:
    for name, usual in GPU_ONLY.items() if place.device == "cpu" else ():
        if settings.get(name, usual) != usual:
            yield Misfit(name, "admin.gpu_only")
    if place.device == "cpu" and settings.get("block_size", CPU_BLOCK_TOKENS) % CPU_BLOCK_TOKENS:
        yield Misfit("block_size", "admin.cpu_blocks", {"step": CPU_BLOCK_TOKENS})
    for name, other in NOT_LESS:
        if name in settings and other in settings and settings[name] < settings[other]:
            yield Misfit(name, "admin.too_small", {"other": other, "least": settings[other]})
    parts = {name: settings.get(name, 1) for name in ("tensor_parallel_size", "data_parallel_size")}
    wanted = parts["tensor_parallel_size"] * parts["data_parallel_size"]
    for name, size in parts.items():
        if size > 1 and wanted > place.gpus:
            yield Misfit(name, "admin.too_few_gpus", {"wanted": wanted, "gpus": place.gpus})
    if settings.get("lm_engines", 1) > 1 and wanted > 1:
        yield Misfit("lm_engines", "admin.one_gpu")
    if settings.get("speculative", "off") != "off":
        yield Misfit("speculative", "admin.no_drafts")
    yield from _of_quantization(settings.get("quantization", "auto"), place.quantized)


def _of_quantization(wanted: str, quantized: str) -> Iterator[Misfit]:
    if wanted == "int8":
        yield Misfit("quantization", "admin.no_int8")
    elif wanted in ("awq", "gptq") and wanted != quantized:
        yield Misfit("quantization", "admin.not_quantized", {"method": wanted})
    elif wanted == "fp8" and quantized not in ("", "fp8"):
        yield Misfit("quantization", "admin.is_quantized", {"method": quantized})
