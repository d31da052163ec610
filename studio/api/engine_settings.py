"""Settings of the engine that conditions of a listening test may name: those that can change what is heard."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from studio.admin.knobs import WORKER_OF_GROUP, changed, rows, tunable
from studio.combinations import Place
from studio.errors import InvalidRequest
from studio.messages import MessageKey
from studio.settings import Settings, extra, table

SILENT = {
    "memory": (
        "gpu_memory_utilization", "kv_cache_gib", "block_size", "voice_cache", "voice_cache_gib", "flow_pool_gib",
        "enable_sleep_mode",
    ),
    "length": ("max_model_len",),
    "crowd": ("max_num_seqs", "max_num_batched_tokens", "max_batch_rows", "data_parallel_size", "lm_engines"),
    "speed": (
        "enforce_eager", "lm_graphs", "async_scheduling", "enable_prefix_caching", "tensor_parallel_size",
        "speculative",
        "lm_threads", "token2wav_threads", "batch_wait_s", "first_hop_tokens", "hop_growth", "most_hop_tokens",
    ),
}  # fmt: skip
"""Settings of the models that change nothing that is heard, by what they are about instead."""
ABOUT = {name: about for about, names in SILENT.items() for name in names}
OF_REQUESTS = "sampling"
"""The group of the settings that a condition names among those of its requests."""

Check = Callable[[Mapping[str, object]], object]
"""Raises InvalidRequest for changes of the engine's settings that cannot be."""


def comparable() -> frozenset[str]:
    """What conditions may name: how the engine computes, and never who may enter or where files lie."""
    return frozenset(name for name in tunable() if extra(table()[name], "group") in WORKER_OF_GROUP) - ABOUT.keys()


def of_moment(settings: Settings) -> dict[str, Any]:
    """The present values of those."""
    return settings.model_dump(include=set(comparable()))


def offered(settings: Settings) -> list[dict[str, object]]:
    """Those as a form needs them: name, unit, range, choices, present value, effect."""
    return [row for row in rows(settings) if row["name"] in comparable()]


def check(wanted: Mapping[str, object], possible: Check) -> None:
    """Raises: InvalidRequest that says why a setting makes no condition, or what is wrong with its value."""
    for name in wanted:
        if name in ABOUT:
            reason = MessageKey(f"listening.silent.{ABOUT[name]}")
            raise InvalidRequest("listening.studio_silent", param="conditions", setting=name, reason=reason)
        if name in table() and extra(table()[name], "group") == OF_REQUESTS:
            raise InvalidRequest("listening.studio_request", param="conditions", setting=name)
        if name not in comparable():
            known = ", ".join(sorted(comparable()))
            raise InvalidRequest("listening.studio_unknown", param="conditions", setting=name, known=known)
    try:
        possible(wanted)
    except InvalidRequest as error:
        error.param = "conditions"
        raise


def possible_with(settings: Settings) -> Check:
    """For a studio whose settings nobody can change while it runs."""
    return lambda wanted: changed(settings, wanted, Place())
