"""Every knob that issue E names, where it acts, and what it is called in the worker that reads it."""

from __future__ import annotations

from dataclasses import fields

import pytest

from studio.admin.knobs import acts, rows, tunable, worker_of, workers_of
from studio.backends.vllm_compat import EngineOptions
from studio.backends.vllm_lm import engine_options
from studio.combinations import GPU_ONLY, Misfit, Place, misfit
from studio.errors import SettingsError
from studio.messages import knob_effects
from studio.settings import Settings, load

LIVE = {
    "admission limits": ("max_running", "queue_size"),
    "per-user limits": ("max_per_client",),
    "hop schedule": ("first_hop_tokens", "hop_growth", "most_hop_tokens"),
    "flow batch and wait": ("max_batch_rows", "batch_wait_s"),
    "guidance": ("guidance",),
    "sampling defaults": ("temperature", "top_p", "top_k", "repetition_window"),
    "log level": ("log_level",),
}
RESTART = {
    "gpu_memory_utilization": "lm",
    "max_num_seqs": "lm",
    "max_num_batched_tokens": "lm",
    "max_model_len": "lm",
    "block_size": "lm",
    "kv_cache_dtype": "lm",
    "dtype": "lm",
    "quantization": "lm",
    "enforce_eager": "lm",
    "enable_prefix_caching": "lm",
    "enable_sleep_mode": "lm",
    "tensor_parallel_size": "lm",
    "data_parallel_size": "lm",
    "lm_engines": "lm",
    "speculative": "lm",
    "flow_steps": "token2wav",
    "first_block_tokens": "token2wav",
    "flow_pool_gib": "token2wav",
    "flow_cache": "token2wav",
    "flow_precision": "token2wav",
    "flow_dtype": "token2wav",
    "vocoder_precision": "token2wav",
}
NOT_RUN = ("tensor_parallel_size", "data_parallel_size", "kv_cache_dtype", "enable_sleep_mode")


@pytest.mark.parametrize(("wanted", "names"), LIVE.items())
def test_knob_acts_while_the_engine_runs(wanted: str, names: tuple[str, ...]) -> None:
    for name in names:
        assert acts(name) != "restart" and worker_of(name) is None and name in tunable(), name


@pytest.mark.parametrize(("name", "worker"), RESTART.items())
def test_knob_restarts_the_worker_that_reads_it(name: str, worker: str) -> None:
    assert acts(name) == "restart" and worker_of(name) == worker
    if worker == "lm" and name != "speculative":  # which is always refused
        assert name in {field.name for field in fields(EngineOptions)}


def test_share_of_a_gpu_is_the_matter_of_both_workers() -> None:
    names = ("gpu_memory_utilization", "max_running")
    assert workers_of(names, Place("cuda")) == ("lm", "token2wav") and workers_of(names, Place()) == ("lm",)


def test_first_block_of_a_gpu_is_the_matter_of_both_workers() -> None:
    names = ("first_block_tokens",)
    assert workers_of(names, Place("cuda")) == ("lm", "token2wav") and workers_of(names, Place()) == ("token2wav",)
    assert (load(["--device", "cuda"]).first_block_tokens, load(["--device", "cpu"]).first_block_tokens) == (13, 22)


def test_every_knob_has_an_effect_and_every_number_a_range() -> None:
    for row in rows(Settings()):
        assert row["effect"] and row["acts"], row
        if row["kind"] in ("int", "float"):
            assert row["least"] is not None and row["most"] is not None and row["least"] < row["most"], row
        assert row["value"] == row["default"]


def test_what_was_never_run_says_so_and_what_changes_the_sound_too() -> None:
    effects = {str(row["name"]): str(row["effect"]) for row in rows(Settings())}
    assert all("Not run by us" in effects[name] for name in NOT_RUN)
    assert "awq and gptq were not run by us" in effects["quantization"]
    assert "pieces were not run by us" in effects["lm_graphs"]
    audible = ("flow_steps", "guidance", "first_block_tokens", "flow_precision", "flow_dtype", "vocoder_precision")
    assert all("sound" in effects[name] for name in audible)
    assert GPU_ONLY.keys() < effects.keys()


def test_the_lm_worker_takes_what_is_set() -> None:
    values = Settings(quantization="fp8", kv_cache_dtype="fp8", enable_prefix_caching=False).for_worker()
    options = engine_options(values | {"device": "cuda"})
    assert (options.quantization, options.kv_cache_dtype, options.enable_prefix_caching) == ("fp8", "fp8", False)


@pytest.mark.parametrize("name", ["tensor_parallel_size", "data_parallel_size"])
def test_engines_of_one_gpu_have_no_part_in_several(name: str) -> None:
    found = misfit({"lm_engines": 2, name: 2}, Place("cuda", gpus=2))
    assert found == Misfit("lm_engines", "admin.one_gpu")
    for language in ("en", "zh"):
        told = SettingsError(found.key, name=found.name).message(language)
        assert told.startswith("lm_engines") and name in told
    assert misfit({"lm_engines": 2, name: 1}, Place("cuda", gpus=1)) is None
    assert misfit({"lm_engines": 2}, Place()) is None  # where the tests of the engine run them


def test_every_effect_is_told_in_chinese_too() -> None:
    assert knob_effects().keys() == tunable().keys()
    told = {str(row["name"]): row["effect"] for row in rows(Settings(), "zh")}
    assert told["max_num_seqs"] == knob_effects()["max_num_seqs"]
