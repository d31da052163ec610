"""What a model will hold beside others is computed from its files, the settings, and what was measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from studio.admin.fitting import (
    ENGINE_GIB,
    GIB,
    Fit,
    Room,
    WeightBytes,
    beside,
    fit,
    free_memory_bytes,
    shortage,
)
from studio.checkpoint import read_checkpoint
from studio.errors import CheckpointError
from studio.gpu_shares import gpu_pool_bytes
from studio.settings import Settings

VOICE = Path(__file__).resolve().parents[2] / "assets" / "voice"
WEIGHTS = WeightBytes(lm=2 * GIB, token2wav=GIB)
ON_CPU = Room(free_bytes=8 * GIB, beside_lm=GIB, beside_token2wav=GIB // 2)
ENGINE = int(ENGINE_GIB * GIB)
ON_GPU = Room(free_bytes=40 * GIB, memory_bytes=140 * GIB)


def test_a_cpu_holds_weights_cache_and_the_programs_themselves() -> None:
    found = fit(Settings(kv_cache_gib=0.5), WEIGHTS, ON_CPU)
    assert found == Fit(5 * GIB, 8 * GIB) and found.fits
    assert not fit(Settings(kv_cache_gib=4), WEIGHTS, ON_CPU).fits
    assert not fit(Settings(kv_cache_gib=0.5), WEIGHTS, replace(ON_CPU, free_bytes=5 * GIB - 1)).fits
    both = fit(Settings(kv_cache_gib=0.5, lm_engines=2), WEIGHTS, ON_CPU)
    assert both.needs_bytes == found.needs_bytes + WEIGHTS.lm + ENGINE  # the cache is shared out among them


def test_vllm_takes_its_share_of_a_gpu_whatever_the_checkpoint_needs() -> None:
    shares = ({"gpu_memory_utilization": share, "flow_pool_gib": 1} for share in (0.25, 0.5))
    third, half = (fit(Settings(**given), WEIGHTS, ON_GPU) for given in shares)
    assert third.needs_bytes == 35 * GIB + WEIGHTS.token2wav + 2.5 * GIB and third.fits
    assert half.needs_bytes - third.needs_bytes == 35 * GIB and not half.fits
    pool = fit(Settings(gpu_memory_utilization=0.25, flow_pool_gib=5), WEIGHTS, ON_GPU)
    assert pool.needs_bytes - third.needs_bytes == 4 * GIB and not pool.fits


def test_the_flow_takes_its_part_of_the_gpu_where_no_pool_is_set() -> None:
    shares = {"gpu_memory_utilization": 0.25, "models": "second=/b"}
    usual = gpu_pool_bytes(ON_GPU.memory_bytes, ON_GPU.memory_bytes, 0.25, 2)
    found = fit(Settings(**shares), WEIGHTS, ON_GPU)
    assert found.needs_bytes == 35 * GIB + WEIGHTS.token2wav + 1.5 * GIB + usual and usual > 20 * GIB


def test_where_nobody_tells_what_is_free_nothing_is_refused() -> None:
    assert fit(Settings(kv_cache_gib=64), WEIGHTS, replace(ON_CPU, free_bytes=None)).fits


def test_weights_are_those_of_the_files_that_are_read(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(VOICE)
    found = WeightBytes.of(checkpoint)
    sizes = {file.name: file.stat().st_size for file in VOICE.iterdir()}
    assert found.lm == sizes["llm.safetensors"]
    parts = ("flow.safetensors", "hift.safetensors", *checkpoint.voice_encoders)
    assert found.token2wav == sum(sizes[name] for name in parts)
    with pytest.raises(CheckpointError, match=r"flow\.pt"):
        WeightBytes.of(replace(checkpoint, folder=tmp_path))


def test_what_a_worker_was_seen_to_hold_replaces_the_guess() -> None:
    assert beside(None, 5e9, 1.0) == GIB
    assert beside(1500, 600e6, 1.0) == 900_000_000
    assert beside(100, 600e6, 1.0) == GIB // 10  # it has only begun


@pytest.mark.parametrize(("limit", "bounded"), [("3000", True), ("max", False)])
def test_a_container_gives_no_more_than_its_limit(tmp_path: Path, limit: str, bounded: bool) -> None:
    (tmp_path / "memory.max").write_text(f"{limit}\n")
    (tmp_path / "memory.current").write_text("1500\n")
    (tmp_path / "memory.stat").write_text("anon 900\ninactive_file 500\n")
    assert (free_memory_bytes(tmp_path) == 2000) == bounded
    assert free_memory_bytes(tmp_path / "none") > 2000


PRESENT = Settings(kv_cache_gib=1.0)
FULL = replace(ON_CPU, free_bytes=4 * GIB, held={"lm": 5 * GIB, "token2wav": 2 * GIB})
"""The LM needs 2 GiB for weights, as much as its cache and 1 GiB; what it holds it gives back."""


def short(room: Room, workers: tuple[str, ...] = ("lm",), present: Settings = PRESENT, **changes: object) -> Any:
    found = shortage(present, present.model_copy(update=changes), workers, WEIGHTS, room)
    return found and (found.name, found.key, found.fit.needs_bytes / GIB, (found.fit.free_bytes or 0) / GIB)


def test_a_change_has_what_is_free_and_what_the_worker_gives_back() -> None:
    assert short(FULL, kv_cache_gib=6.0) is None
    assert short(FULL, kv_cache_gib=6.5) == ("kv_cache_gib", "admin.no_memory", 9.5, 9)
    assert short(replace(FULL, held={}), kv_cache_gib=1.5) == ("kv_cache_gib", "admin.no_memory", 4.5, 4)


def test_engines_on_a_cpu_need_their_weights_and_a_pool_is_token2wav_s() -> None:
    assert short(FULL, lm_engines=2) is None
    assert short(FULL, lm_engines=4) == ("lm_engines", "admin.no_memory", 10 + 3 * ENGINE / GIB, 9)
    assert short(FULL, ("token2wav",), flow_pool_gib=4.5) is None
    assert short(FULL, ("token2wav",), flow_pool_gib=5.0) == ("flow_pool_gib", "admin.no_memory", 6.5, 6)


def test_the_setting_that_asks_for_the_most_is_named() -> None:
    both = ("lm", "token2wav")
    assert short(FULL, both, kv_cache_gib=5.0, flow_pool_gib=1.5) is None
    assert short(FULL, both, kv_cache_gib=5.0, flow_pool_gib=2.0) == ("kv_cache_gib", "admin.no_memory", 11.5, 11)
    assert short(FULL, both, kv_cache_gib=1.5, flow_pool_gib=6.0) == ("flow_pool_gib", "admin.no_memory", 12, 11)
    assert short(FULL, both, kv_cache_gib=0.5, lm_engines=4, flow_pool_gib=0.5)[0] == "lm_engines"


def test_no_more_than_now_is_never_short() -> None:
    many = PRESENT.model_copy(update={"lm_engines": 4, "kv_cache_gib": 8.0})
    none = replace(FULL, free_bytes=0, held={})
    assert short(none, present=many, lm_engines=3) is None and short(none, max_num_seqs=4) is None
    assert short(none, present=many, kv_cache_gib=8.5) is not None


def test_a_gpu_holds_the_share_the_pool_and_the_rest_of_token2wav() -> None:
    """140 GiB: the pages take what is left of them, where they are not told how much."""
    gpu = replace(ON_GPU, paged=True)
    assert short(gpu, flow_pool_gib=95.0) is None  # 42, 1, 1.5
    assert short(gpu, flow_pool_gib=96.0) == ("flow_pool_gib", "admin.no_gpu_memory", 140.5, 140)
    for share, fits in ((0.91, True), (0.92, False)):
        assert (short(gpu, gpu_memory_utilization=share) is None) == fits
        assert (gpu_pool_bytes(140 * GIB, 140 * GIB, share) > 0) == fits
    assert short(ON_GPU, gpu_memory_utilization=0.95) is None  # caches that grow
    assert short(ON_GPU, gpu_memory_utilization=0.95, flow_cache="pages") is not None
    assert short(gpu, gpu_memory_utilization=0.95, flow_cache="grown") is None
    two = PRESENT.model_copy(update={"models": "second=/b"})
    assert short(gpu, present=two, gpu_memory_utilization=0.4) is None
    name, _, needs, part = short(gpu, present=two, gpu_memory_utilization=0.45)
    assert (name, part) == ("gpu_memory_utilization", 70) and needs == pytest.approx(63 + 1 + 0.08 * 140)


def test_engines_on_one_gpu_find_their_weights_and_graphs_in_the_share() -> None:
    small = Room(None, 20 * GIB)
    assert short(small, lm_engines=2, gpu_memory_utilization=0.35) is None
    assert short(small, lm_engines=2) == ("lm_engines", "admin.engines_do_not_fit", 6, 6)
    two = PRESENT.model_copy(update={"lm_engines": 2, "gpu_memory_utilization": 0.5})
    assert short(small, present=two, gpu_memory_utilization=0.3) == (
        "gpu_memory_utilization", "admin.engines_do_not_fit", 6, 6,
    )  # fmt: skip
    broken = two.model_copy(update={"gpu_memory_utilization": 0.3})
    assert short(small, ("token2wav",), broken, flow_pool_gib=1.0) is None  # the LM goes on as it is


def test_where_nobody_tells_what_is_free_no_change_is_refused() -> None:
    unknown = Room(None)
    assert short(unknown, kv_cache_gib=64.0, lm_engines=4) is None
    assert short(unknown, ("token2wav",), flow_pool_gib=1000.0) is None
