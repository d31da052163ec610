"""The worker program of the speech LM: `python -m studio.backends.vllm_lm`. Converts, starts, warms up, answers."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from studio import heap
from studio.backends import vllm_compat
from studio.backends.gpu_turn import gpu_turn
from studio.backends.serve import Report, Service, run_worker
from studio.backends.vllm_compat import EngineOptions
from studio.backends.vllm_speech_lm import VllmSpeechLM, wrap_error
from studio.checkpoint import Checkpoint, read_checkpoint, read_config, weight_file
from studio.combinations import Place, misfit
from studio.errors import SettingsError
from studio.models.speech_lm.layout import TokenBounds
from studio.threads import thread_count

logger = logging.getLogger(__name__)

ANSWERED = (
    "generate", "abort", "stats", "metrics", "reset_prefix_cache", "sleep", "wake", "next_log_probs",
    "greedy_log_probs",
)  # fmt: skip
"""What others may call of VllmSpeechLM."""


def engine_options(values: Mapping[str, Any]) -> EngineOptions:
    """What the engine is started with; device and threads are chosen here where they are left open.

    values: rows of the settings table; those that the engine does not know are passed over.
    """
    known = {f.name: values[f.name] for f in fields(EngineOptions) if f.name in values}
    device = vllm_compat.choose_device(values.get("device", "auto"))
    threads = thread_count("lm", values, device, len(os.sched_getaffinity(0)))
    return EngineOptions(**known | {"device": device, "threads": threads})


def quantized(checkpoint: Checkpoint) -> str:
    """How the checkpoint's own weights are quantised, as its config says: "awq", "gptq" ...; "" if they are not."""
    config = read_config(checkpoint.tokenizer_folder / "config.json")
    stated = config.get("quantization_config")
    return str(stated.get("quant_method", "")) if isinstance(stated, dict) else ""


async def setup(values: dict[str, Any], report: Report) -> Service:
    """Convert the checkpoint if that was not done before, start the engine, warm it up."""
    options = engine_options(values)
    checkpoint = read_checkpoint(Path(values["model_dir"]))
    weights = weight_file(checkpoint.folder, "llm")
    began_s = time.monotonic()
    report("stage.importing", 0.02)
    vllm_compat.prepare_process(options)
    vllm_compat.import_engine()
    place = Place(options.device, vllm_compat.gpu_count(options.device), quantized(checkpoint))
    if found := misfit(values, place):
        raise SettingsError(found.key, name=found.name, **found.values)
    imported_s = time.monotonic()
    report("stage.weights", 0.6)
    lm = _load(checkpoint, weights, Path(values["cache_dir"]), options)
    lm.watch(_exit_at_once)
    loaded_s = time.monotonic()
    report("stage.warming", 0.85)
    sizes = vllm_compat.warm_up_sizes(options)
    await lm.warm_up(sizes, lambda done: report("stage.warming", 0.85 + 0.14 * done / len(sizes)))
    heap.settle()  # this process hands every token on; the engine's own has done it
    facts = await _facts(lm, options, place) | {
        "importing_s": round(imported_s - began_s, 2),
        "weights_s": round(loaded_s - imported_s, 2),
        "warming_s": round(time.monotonic() - loaded_s, 2),
    }
    return Service({name: getattr(lm, name) for name in ANSWERED}, lm.close, facts)


def _load(checkpoint: Checkpoint, weights: Path, cache: Path, options: EngineOptions) -> VllmSpeechLM:
    """The engine on the converted form of the checkpoint's llm file. Raises CheckpointError, SettingsError."""
    from studio.models.speech_lm.convert import convert_checkpoint

    converted = convert_checkpoint(weights, checkpoint.tokenizer_folder / "config.json", cache)
    bounds = TokenBounds(
        checkpoint.min_token_text_ratio, checkpoint.max_token_text_ratio, checkpoint.most_tokens_are_end
    )
    with gpu_turn(cache, options.device):
        return VllmSpeechLM.start(converted.folder, options, bounds)


async def _facts(lm: VllmSpeechLM, options: EngineOptions, place: Place) -> dict[str, Any]:
    """What the page, the planner and /admin read of the engine. seed_holds: see EngineOptions."""
    stats = await lm.stats()
    return {
        "device": options.device,
        "seed_holds": options.seed_holds,
        "engine_pids": lm.engine_pids,
        "threads": options.threads,
        "gpus": place.gpus,
        "quantized": place.quantized,
        "gpu_memory_bytes": vllm_compat.gpu_memory_bytes(options.device),
        "speech_codes": lm.layout.speech_codes,
        "kv_cache_blocks": stats.kv_cache_blocks,
        "block_size_tokens": stats.block_size_tokens,
    }


def _exit_at_once() -> None:
    # The supervisor sees the exit, tells every request and starts this program again.
    logger.error("vLLM's engine process ended")
    os._exit(1)


def main() -> None:
    run_worker(setup, wrap_error)


if __name__ == "__main__":
    main()
