"""How models share the memory of a GPU."""

from __future__ import annotations

from studio.gpu_shares import (
    GRAPH_BYTES,
    WORK_BYTES,
    WORK_SHARE,
    engine_cache_bytes,
    gpu_pool_bytes,
    models_known,
)
from studio.settings import Settings


def test_pool_leaves_the_lm_its_share_and_room_to_work_in() -> None:
    total, share = 141 * 10**9, 0.3
    pool = gpu_pool_bytes(total, total, share)
    assert 0.6 * total < pool + 0.08 * total < total * (1 - share)
    assert gpu_pool_bytes(total // 2, total, share) < pool - 0.15 * total  # others have the rest
    assert gpu_pool_bytes(10**9, 8 * 10**9, share) < 0  # which is told as a setting that does not fit


def test_models_that_were_named_find_room_beside_each_other() -> None:
    total, share = 141 * 10**9, 0.3
    each = gpu_pool_bytes(total, total, share, models=2)
    held = each + share * total + WORK_BYTES + WORK_SHARE * total
    assert each > 0.1 * total and abs(2 * held - total) < 10
    assert gpu_pool_bytes(int(total - held), total, share, models=2) == each  # the second, beside the first
    assert gpu_pool_bytes(total, total, 0.5, models=2) < 0


def test_models_that_were_named_are_counted_with_the_first() -> None:
    assert models_known(Settings().model_dump()) == models_known({}) == 1
    assert models_known(Settings(models="second=/a, third=/b").model_dump()) == 3


def test_engines_of_one_lm_divide_its_share_and_take_weights_and_graphs_of_their_own_from_it() -> None:
    share, weights = 40 * 10**9, 10**9
    assert engine_cache_bytes(share, weights) == share - weights
    assert engine_cache_bytes(share, weights, 4) == share // 4 - weights - GRAPH_BYTES
    assert engine_cache_bytes(2 * weights, weights, 2) < 0  # which is told as a setting that does not fit
