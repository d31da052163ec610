"""/admin: what the memory of this machine has no room for is refused, and a start that fails says why."""

from __future__ import annotations

import os
import re
from dataclasses import replace

import httpx
import pytest

from studio.admin import office
from studio.admin.fitting import GIB, WeightBytes
from tests.api.conftest import NO_ROOM, Service, clip_samples
from tests.api.test_admin import GPU, PASSWORD, enter, place, settle, speech

WEIGHTS = WeightBytes(lm=2 * GIB, token2wav=GIB)
FREE = 12 * GIB
"""Beside weights and cache a worker that nobody measured is taken to hold 1.6 GiB, token2wav 0.7 GiB."""
H200 = GPU | {"gpu_memory_bytes": 140 * GIB}
PAGES = {"flow_pages": 100, "flow_page_bytes": 10**6}
MUCH = [
    ({"kv_cache_gib": 60}, "kv_cache_gib", "kv_cache_gib 60.0: about 68.29 GB of memory", "12.88 GB"),
    ({"lm_engines": 4, "kv_cache_gib": 3}, "lm_engines", "lm_engines 4: about 15.46 GB", "12.88 GB"),
    ({"flow_pool_gib": 1000}, "flow_pool_gib", "flow_pool_gib 1000.0: about 1075.57 GB", "12.88 GB"),
    ({"flow_pool_gib": 11, "flow_cache": "pages"}, "flow_pool_gib", "flow_pool_gib 11.0: about 13.64 GB", "12.88 GB"),
    ({"kv_cache_gib": 5, "flow_pool_gib": 4}, "kv_cache_gib", "kv_cache_gib 5.0: about 15.35 GB", "12.88 GB"),
]
MUCH_OF_A_GPU = [
    ({"flow_pool_gib": 1000}, "flow_pool_gib", "flow_pool_gib 1000.0: about 1121.", "150.32 GB"),
    ({"gpu_memory_utilization": 0.95}, "gpu_memory_utilization", "0.95: about 155.", "150.32 GB"),
    ({"gpu_memory_utilization": 0.5, "flow_pool_gib": 70}, "flow_pool_gib", "70.0: about 153.", "150.32 GB"),
    (
        {"lm_engines": 4, "gpu_memory_utilization": 0.05}, "lm_engines",
        "lm_engines 4: before any KV cache the engines need 12.88 GB", "gives them 7.52 GB",
    ),
]  # fmt: skip


@pytest.fixture
def full(start_service, monkeypatch: pytest.MonkeyPatch) -> Service:
    monkeypatch.setattr(office, "free_memory_bytes", lambda: FREE)
    service = start_service("--admin-password", PASSWORD, weights=WEIGHTS)
    service.store.add(clip_samples(), 24000, "hello there", name="Ada")
    return service


def apply(client: httpx.Client, changes: dict, force: bool = False) -> httpx.Response:
    return client.post("/admin/apply", json={"changes": changes, "force": force})


def preview(client: httpx.Client, changes: dict, language: str = "en") -> tuple[bool, str]:
    reply = client.post("/admin/preview", json={"changes": changes}, headers={"Accept-Language": language})
    reply.raise_for_status()
    found = reply.json()
    return found["after"]["fits"], found["reason"]


def refused(service: Service, client: httpx.Client, changes: dict, named: str, *told: str) -> None:
    reply = apply(client, changes)
    error = reply.json()["error"]
    assert (reply.status_code, error["param"]) == (400, named), error
    for words in told:
        assert words in error["message"]
    assert preview(client, changes) == (False, error["message"])
    assert service.worker.restarted == [] and service.engine.state().ready


@pytest.mark.parametrize(("changes", "named", "needs", "free"), MUCH)
def test_more_than_the_machine_has_is_refused_before_anything_stops(
    full: Service, changes: dict, named: str, needs: str, free: str
) -> None:
    refused(full, enter(full), changes, named, needs, free)
    assert speech(full).status_code == 200


@pytest.mark.parametrize(("changes", "named", "needs", "free"), MUCH_OF_A_GPU)
def test_more_than_the_gpu_has_is_refused_before_anything_stops(
    full: Service, changes: dict, named: str, needs: str, free: str
) -> None:
    place(full, **H200)
    full.in_loop(lambda: workers(full)["token2wav"].reports(**PAGES))
    refused(full, enter(full), changes, named, needs, free)


def workers(service: Service) -> dict:
    return service.loader.of["fake-model"].loaded.workers


def test_what_has_its_room_is_previewed_and_begun(full: Service) -> None:
    client = enter(full)
    for changes in ({"kv_cache_gib": 8}, {"lm_engines": 4}, {"flow_pool_gib": 10}):
        assert preview(client, changes) == (True, "")
    assert apply(client, {"kv_cache_gib": 8}).status_code == 202
    settle(full)
    assert full.office.tuning.settings.kv_cache_gib == 8
    place(full, **H200)
    for changes in ({"gpu_memory_utilization": 0.8}, {"flow_pool_gib": 80}, {"lm_engines": 4}):
        assert preview(client, changes) == (True, "")


def test_what_the_worker_holds_can_be_had_too(full: Service) -> None:
    full.worker.state = replace(full.worker.state, pid=os.getpid())
    fits, reason = preview(enter(full), {"kv_cache_gib": 60})
    (free,) = re.findall(r"([\d.]+) GB can be had", reason)
    assert not fits and FREE / 1e9 + 0.02 < float(free) < FREE / 1e9 + 4


def test_the_reason_is_told_in_the_reader_s_language(full: Service) -> None:
    fits, reason = preview(enter(full), {"kv_cache_gib": 60}, "zh-CN")
    assert not fits and reason.startswith("kv_cache_gib 60.0：约需 68.29 GB 内存")


def test_a_preview_says_with_which_reason_other_lengths_would_be_refused(full: Service) -> None:
    fits, reason = preview(enter(full), {"max_model_len": 20001})
    assert not fits and "at most 20000 tokens" in reason


def test_who_forces_it_may_try_what_has_no_room(full: Service) -> None:
    client = enter(full)
    full.worker.refuses = lambda settings: settings["kv_cache_gib"] == 60
    assert apply(client, {"kv_cache_gib": 60}, force=True).status_code == 202
    settle(full)
    assert [settings["kv_cache_gib"] for settings in full.worker.restarted] == [60, 0.5]
    state = client.get("/admin/changes").json()
    assert state["changes"][0]["outcome"] == "rolled back" and NO_ROOM in state["reason"]
    assert speech(full).status_code == 200


def test_less_than_now_is_never_refused(full: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    client = enter(full)
    apply(client, {"kv_cache_gib": 8}).raise_for_status()
    settle(full)
    monkeypatch.setattr(office, "free_memory_bytes", lambda: 0)
    assert preview(client, {"kv_cache_gib": 4}) == (True, "")
    assert preview(client, {"max_num_seqs": 4}) == (True, "")


def test_where_nobody_tells_the_memory_nothing_is_refused(full: Service) -> None:
    place(full, **GPU)
    client = enter(full)
    for changes in ({"gpu_memory_utilization": 0.95}, {"flow_pool_gib": 1000}, {"kv_cache_gib": 60}):
        assert preview(client, changes) == (True, "")
    assert apply(client, {"flow_pool_gib": 1000}).status_code == 202
    settle(full)


def test_engine_that_neither_starts_nor_comes_back_says_why_wherever_it_is_asked(full: Service) -> None:
    client = enter(full)
    full.worker.refuses = lambda settings: True
    apply(client, {"max_num_seqs": 4}).raise_for_status()
    settle(full)
    state = client.get("/admin/changes").json()
    assert (state["phase"], state["changes"][0]["outcome"]) == ("failed", "failed")
    assert state["reason"].count(NO_ROOM) == 2
    reply = speech(full)
    assert reply.status_code == 503
    assert reply.json()["error"]["message"] == f"The engine could not be started: {NO_ROOM}"
    health = client.get("/health")
    assert (health.status_code, health.json()["status"]) == (503, "failed")
    (worker,) = health.json()["workers"]
    assert (worker["stage"], worker["reason"]) == ("stage.failed", NO_ROOM)
    full.worker.refuses = lambda settings: False
    apply(client, {"max_num_seqs": 4}).raise_for_status()
    settle(full)
    assert speech(full).status_code == 200 and client.get("/health").status_code == 200
