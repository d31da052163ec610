"""What a model will hold beside others is computed from its files, the settings, and what was measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from studio.admin.fitting import GIB, Fit, Room, WeightBytes, beside, fit, free_memory_bytes
from studio.checkpoint import read_checkpoint
from studio.errors import CheckpointError
from studio.gpu_shares import gpu_pool_bytes
from studio.settings import Settings

VOICE = Path(__file__).resolve().parents[2] / "assets" / "voice"
WEIGHTS = WeightBytes(lm=2 * GIB, token2wav=GIB)
ON_CPU = Room(free_bytes=8 * GIB, beside_lm=GIB, beside_token2wav=GIB // 2)
ON_GPU = Room(free_bytes=40 * GIB, memory_bytes=140 * GIB)


def test_a_cpu_holds_weights_cache_and_the_programs_themselves() -> None:
    found = fit(Settings(kv_cache_gib=0.5), WEIGHTS, ON_CPU)
    assert found == Fit(5 * GIB, 8 * GIB) and found.fits
    assert not fit(Settings(kv_cache_gib=4), WEIGHTS, ON_CPU).fits
    assert not fit(Settings(kv_cache_gib=0.5), WEIGHTS, replace(ON_CPU, free_bytes=5 * GIB - 1)).fits
    both = fit(Settings(kv_cache_gib=0.5, lm_engines=2), WEIGHTS, ON_CPU)
    assert both.needs_bytes == found.needs_bytes + WEIGHTS.lm  # the cache is shared out among them


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
