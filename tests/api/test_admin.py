"""/admin: who may enter, what is shown, and settings that change while requests wait."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from fastapi.routing import APIRoute

from studio.backends.fake import Finish, Say, WaitFor
from studio.bench import pages
from tests.api.conftest import Service, clip_samples

PASSWORD = "open sesame"
ROOT = Path(__file__).resolve().parents[2]
GPU = {"device": "cuda", "gpus": 1}


@pytest.fixture
def looked_after(start_service) -> Service:
    service = start_service("--admin-password", PASSWORD)
    service.store.add(clip_samples(), 24000, "hello there", name="Ada")
    return service


def enter(service: Service, password: str = PASSWORD) -> httpx.Client:
    client = httpx.Client(base_url=service.url, timeout=120)
    client.post("/admin/login", json={"password": password}).raise_for_status()
    return client


def settle(service: Service) -> None:
    asyncio.run_coroutine_threadsafe(service.office.tuning.settled(), service.loop).result(120)


def speech(service: Service, text: str = "one two three") -> httpx.Response:
    body = {"input": text, "voice": "Ada", "response_format": "pcm"}
    return httpx.post(f"{service.url}/v1/audio/speech", json=body, timeout=120)


WAYS_IN = {"/admin/login", "/admin/oidc/login", "/admin/oidc/callback"}
ANYWHERE_ELSE = "/admin/{path:path}"
"""What no other route has: 404."""


def test_every_admin_route_refuses_who_has_not_entered(start_service) -> None:
    provider = ("--oidc-issuer", "https://provider.example", "--oidc-client-id", "x", "--oidc-admins=sub=1")
    service = start_service("--admin-password", PASSWORD, *provider)
    routes = [r for r in service.app.routes if isinstance(r, APIRoute) and r.path.startswith("/admin")]
    assert {r.path for r in routes} > WAYS_IN | {ANYWHERE_ELSE, "/admin/live", "/admin/apply", "/admin/export"}
    for route in routes:
        if route.path in WAYS_IN | {ANYWHERE_ELSE}:
            continue
        path = re.sub("{[^}]+}", "x", route.path)
        for method in route.methods:
            for cookie in ("", "made-up"):
                reply = httpx.request(method, service.url + path, json={}, cookies={"studio_admin": cookie})
                assert (reply.status_code, reply.json()["error"]["code"]) == (401, "admin_only"), (method, path)


def test_admin_tab_has_no_handlers_and_holds_no_data(looked_after: Service) -> None:
    config = httpx.get(f"{looked_after.url}/config").json()
    (tab,) = (c["id"] for c in config["components"] if c["props"].get("elem_id") == "tab-admin")
    inside = ids_below(config["layout"], tab)
    assert len(inside) == 1  # the frame
    for handler in config["dependencies"]:
        touched = {target for target, _ in handler["targets"]} | {*handler["inputs"], *handler["outputs"]}
        assert not touched & inside
    assert PASSWORD not in json.dumps(config)


def ids_below(node: dict, wanted: int, found: bool = False) -> set[int]:
    """The components within one of the layout."""
    children = node.get("children") or []
    own = {child["id"] for child in children} if found or node["id"] == wanted else set()
    return own.union(*(ids_below(child, wanted, found or node["id"] == wanted) for child in children))


def test_token_of_the_start_lets_one_person_in(start_service) -> None:
    service = start_service()
    token = service.office.access.token
    assert len(token) >= 20
    client = enter(service, token)
    assert client.get("/admin/live").status_code == 200
    again = httpx.post(f"{service.url}/admin/login", json={"password": token})
    assert again.status_code == 401 and "used" in again.json()["error"]["message"]


def test_wrong_passwords_are_slowed_down(looked_after: Service) -> None:
    tries = [httpx.post(f"{looked_after.url}/admin/login", json={"password": "no"}) for _ in range(6)]
    assert [t.status_code for t in tries] == [401] * 5 + [429]
    assert int(tries[-1].headers["retry-after"]) >= 1


def test_leaving_ends_the_session(looked_after: Service) -> None:
    client = enter(looked_after)
    cookie = client.cookies["studio_admin"]
    client.post("/admin/logout").raise_for_status()
    assert httpx.get(f"{looked_after.url}/admin/live", cookies={"studio_admin": cookie}).status_code == 401


def test_live_view_shows_requests_and_their_share_of_the_kv_cache(looked_after: Service) -> None:
    client = enter(looked_after)
    going = asyncio.Event()
    looked_after.lm.enqueue(Say(40), WaitFor(going), Finish())
    speaking = threading.Thread(target=speech, args=(looked_after,))
    speaking.start()
    looked_after.until(lambda: any(r.tokens == 40 for r in looked_after.engine.in_flight()))
    asyncio.run_coroutine_threadsafe(looked_after.office.monitor.sample(), looked_after.loop).result(120)
    shown = client.get("/admin/live").json()
    (request,) = shown["in_flight"]
    assert request["tokens"] == 40 and request["kv_tokens"] > 40
    (share,) = shown["pages"]["shares"]
    assert share["blocks"] == -(-request["kv_tokens"] // shown["pages"]["block_size_tokens"])
    held = sum(s["blocks"] - s["shared"] for s in shown["pages"]["shares"])
    assert shown["pages"]["held"] - held == shown["pages"]["difference"]
    looked_after.in_loop(going.set)
    speaking.join(120)
    looked_after.until(looked_after.is_idle)
    asyncio.run_coroutine_threadsafe(looked_after.office.monitor.sample(), looked_after.loop).result(120)
    shown = client.get("/admin/live").json()
    assert shown["in_flight"] == [] and shown["pages"]["shares"] == []
    bar = shown["timeline"][-1]
    assert bar["reason"] == "stop"
    assert 0 <= bar["queue_s"] <= bar["read_s"] <= bar["first_s"] <= bar["whole_s"]
    history = client.get("/admin/history").json()
    assert len(history["t"]) == len(history["kv"]) >= 2


def test_live_view_tells_what_flow_and_vocoder_take_of_a_step_where_token2wav_does(looked_after: Service) -> None:
    client = enter(looked_after)
    for flow_s, vocoder_s in ((0.0, 0.0), (0.03125, 0.0078125)):
        looked_after.token2wav.flow_s, looked_after.token2wav.vocoder_s = flow_s, vocoder_s
        speech(looked_after).raise_for_status()
        asyncio.run_coroutine_threadsafe(looked_after.office.monitor.sample(), looked_after.loop).result(120)
        shown = client.get("/admin/live").json()
        assert shown["step_s"] >= 0 and (shown["flow_s"], shown["vocoder_s"]) == (flow_s or None, vocoder_s or None)
    history = client.get("/admin/history").json()
    assert {flow_s for flow_s in history["flow_s"] if flow_s is not None} == {0.03125}


def test_abort_of_a_request_tells_its_listener(looked_after: Service) -> None:
    client = enter(looked_after)
    never = asyncio.Event()
    looked_after.lm.enqueue(WaitFor(never), Finish())
    replies: list[httpx.Response] = []
    waiting = threading.Thread(target=lambda: replies.append(speech(looked_after)))
    waiting.start()
    looked_after.until(lambda: len(looked_after.engine.in_flight()) == 1)
    (request,) = looked_after.engine.in_flight()
    assert client.post(f"/admin/requests/{request.request_id}/abort").status_code == 200
    waiting.join(120)
    assert "administrator" in replies[0].json()["error"]["message"]
    assert client.post("/admin/requests/nobody/abort").status_code == 404
    looked_after.until(looked_after.is_idle)


def test_live_knob_acts_without_a_restart(looked_after: Service) -> None:
    client = enter(looked_after)
    reply = client.post("/admin/apply", json={"changes": {"queue_size": 0, "max_running": 1, "top_p": 0.5}})
    assert reply.status_code == 202, reply.text
    assert reply.json()["workers"] == []
    settle(looked_after)
    assert looked_after.worker.restarted == []
    going = asyncio.Event()
    looked_after.lm.enqueue(Say(5), WaitFor(going), Finish())
    speaking = threading.Thread(target=speech, args=(looked_after,))
    speaking.start()
    looked_after.until(lambda: len(looked_after.lm.samplings) == 1)
    assert looked_after.lm.samplings[0].top_p == 0.5
    assert speech(looked_after).status_code == 429
    looked_after.in_loop(going.set)
    speaking.join(120)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"max_num_seqs": 0}, "max_num_seqs"),
        ({"block_size": 40}, "block_size"),
        ({"max_num_seqs": 512, "max_num_batched_tokens": 100}, "max_num_batched_tokens"),
        ({"port": 1}, "port"),
        ({"no_such": 1}, "no_such"),
        ({"kv_cache_gib": 0.05, "max_model_len": 32768}, "max_model_len"),
        ({"max_model_len": 20001}, "max_model_len"),
    ],
)
def test_bad_value_is_refused_before_anything_stops(looked_after: Service, changes: dict, named: str) -> None:
    reply = enter(looked_after).post("/admin/apply", json={"changes": changes})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, named)
    assert looked_after.worker.restarted == [] and looked_after.engine.state().ready


def place(service: Service, **facts: object) -> None:
    """Where the LM says that it runs."""
    service.worker.state = replace(service.worker.state, facts=facts)


REFUSED: list[tuple[dict, dict, str]] = [
    ({}, {"quantization": "fp8"}, "a GPU is needed"),
    ({}, {"kv_cache_dtype": "fp8"}, "a GPU is needed"),
    ({}, {"enable_sleep_mode": True}, "a GPU is needed"),
    ({}, {"tensor_parallel_size": 2}, "2 GPUs would be needed and 0"),
    ({}, {"speculative": "ngram"}, "ours draws the speech"),
    ({}, {"first_hop_tokens": 150}, "less than first_hop_tokens"),
    ({}, {"first_hop_tokens": 30}, "multiple of 25"),
    ({}, {"lm_engines": 2, "kv_cache_gib": 0.05}, "would hold 3264 tokens, less than max_model_len 4096"),
    (GPU, {"data_parallel_size": 2, "tensor_parallel_size": 2}, "4 GPUs would be needed and 1"),
    (GPU | {"gpus": 2}, {"lm_engines": 2, "data_parallel_size": 2}, "several engines share one GPU"),
    (GPU | {"gpus": 2}, {"lm_engines": 2, "tensor_parallel_size": 2}, "several engines share one GPU"),
    (GPU, {"quantization": "int8"}, "mixtures of experts"),
    (GPU, {"quantization": "awq"}, "are not awq"),
    (GPU | {"quantized": "gptq"}, {"quantization": "fp8"}, "are gptq already"),
]


def test_what_cannot_be_there_is_refused_with_the_reason_before_anything_stops(looked_after: Service) -> None:
    client = enter(looked_after)
    for facts, changes, told in REFUSED:
        place(looked_after, **facts)
        reply = client.post("/admin/apply", json={"changes": changes})
        assert reply.status_code == 400 and told in reply.json()["error"]["message"], reply.text
    assert looked_after.worker.restarted == [] and looked_after.engine.state().ready


def test_the_same_is_previewed_where_it_can_be(looked_after: Service) -> None:
    client = enter(looked_after)
    for facts, changes in (
        (GPU, {"quantization": "fp8", "kv_cache_dtype": "fp8_e4m3"}),
        (GPU | {"quantized": "awq"}, {"quantization": "awq"}),
        (GPU | {"gpus": 2}, {"tensor_parallel_size": 2}),
        (GPU, {"lm_engines": 2}),
        ({}, {"kv_cache_gib": 0.05}),  # which has no place for two engines
    ):
        place(looked_after, **facts)
        found = client.post("/admin/preview", json={"changes": changes})
        assert found.status_code == 200 and found.json()["workers"] == ["lm"], found.text


def test_hops_log_level_and_wait_act_on_the_running_engine(looked_after: Service) -> None:
    client = enter(looked_after)
    before = logging.getLogger().level
    changes = {"first_hop_tokens": 50, "hop_growth": 1.0, "batch_wait_s": 0.01, "log_level": "error"}
    try:
        reply = client.post("/admin/apply", json={"changes": changes})
        assert reply.json()["workers"] == []
        settle(looked_after)
        assert logging.getLogger().level == logging.ERROR
    finally:
        logging.getLogger().setLevel(before)
    looked_after.lm.enqueue(Say(130), Finish())
    assert speech(looked_after).status_code == 200
    sizes = [len(step.tokens) for steps in looked_after.token2wav.steps for step in steps]
    assert sizes[0] == 50 and max(sizes) == 50
    (model,) = client.get("/v1/models").json()["data"]
    assert model["quality_settings"]["fast"]["first_chunk_tokens"] == 50
    assert looked_after.worker.restarted == []


def test_guidance_acts_on_the_next_request_without_a_restart(looked_after: Service) -> None:
    client = enter(looked_after)
    preview = client.post("/admin/preview", json={"changes": {"guidance": 1.5}}).json()
    assert preview["workers"] == []
    for guidance in (None, 1.5, 0.7):
        if guidance is not None:  # at first the scripted engine has none
            client.post("/admin/apply", json={"changes": {"guidance": guidance}}).raise_for_status()
            settle(looked_after)
        looked_after.lm.enqueue(Say(30), Finish())
        assert speech(looked_after).status_code == 200
    assert list(looked_after.token2wav.guidances.values()) == [None, 1.5, 0.7]
    assert looked_after.worker.restarted == []


def test_cached_prompts_are_forgotten_unless_requests_hold_them(looked_after: Service) -> None:
    client = enter(looked_after)
    assert client.post("/admin/lm/forget-prompts").status_code == 200 and looked_after.lm.resets == 1
    going = asyncio.Event()
    looked_after.lm.enqueue(Say(5), WaitFor(going), Finish())
    speaking = threading.Thread(target=speech, args=(looked_after,))
    speaking.start()
    looked_after.until(lambda: bool(looked_after.lm._running))
    assert client.post("/admin/lm/forget-prompts").status_code == 409
    looked_after.in_loop(going.set)
    speaking.join(120)


def test_lm_sleeps_while_requests_wait_and_serves_them_when_it_wakes(looked_after: Service) -> None:
    client = enter(looked_after)
    refused = client.post("/admin/lm/sleep")
    assert refused.status_code == 400 and "GPU" in refused.json()["error"]["message"]
    place(looked_after, **GPU)
    assert "enable_sleep_mode" in client.post("/admin/lm/sleep").json()["error"]["message"]
    client.post("/admin/apply", json={"changes": {"enable_sleep_mode": True}}).raise_for_status()
    settle(looked_after)
    place(looked_after, **GPU)
    assert client.post("/admin/lm/wake").status_code == 400
    assert client.post("/admin/lm/sleep").status_code == 200
    settle(looked_after)
    assert looked_after.lm.asleep and client.get("/admin/knobs").json()["phase"] == "asleep"
    assert client.post("/admin/apply", json={"changes": {"top_k": 5}}).status_code == 409
    replies: list[httpx.Response] = []
    waiting = threading.Thread(target=lambda: replies.append(speech(looked_after)))
    waiting.start()
    looked_after.until(lambda: looked_after.engine.state().waiting == 1)
    assert client.post("/admin/lm/wake").json()["phase"] == "idle"
    waiting.join(120)
    assert replies[0].status_code == 200 and not looked_after.lm.asleep
    assert [change["after"] for change in client.get("/admin/changes").json()["changes"][:2]] == [
        {"asleep": False}, {"asleep": True},
    ]  # fmt: skip


def test_restart_lets_new_requests_wait_and_then_serves_them(looked_after: Service) -> None:
    client = enter(looked_after)
    going = asyncio.Event()
    looked_after.lm.enqueue(Say(5), WaitFor(going), Finish())
    replies: list[httpx.Response] = []

    def ask() -> None:
        replies.append(speech(looked_after))

    first = threading.Thread(target=ask)
    first.start()
    looked_after.until(lambda: looked_after.engine.state().running == 1)
    assert client.post("/admin/apply", json={"changes": {"max_num_seqs": 4}}).json()["workers"] == ["lm"]
    looked_after.until(lambda: looked_after.office.tuning.phase == "holding")
    assert client.post("/admin/apply", json={"changes": {"top_k": 5}}).status_code == 409
    others = [threading.Thread(target=ask) for _ in range(2)]
    for other in others:
        other.start()
    looked_after.until(lambda: looked_after.engine.state().waiting == 2)
    assert looked_after.worker.restarted == []  # who speaks is waited for
    looked_after.in_loop(going.set)
    settle(looked_after)
    for thread in (first, *others):
        thread.join(120)
    assert [reply.status_code for reply in replies] == [200] * 3
    assert looked_after.worker.restarted[-1]["max_num_seqs"] == 4
    assert "admin_password" not in looked_after.worker.restarted[-1]
    (change,) = client.get("/admin/changes").json()["changes"]
    assert (change["outcome"], change["before"], change["after"]) == (
        "applied", {"max_num_seqs": 16}, {"max_num_seqs": 4},
    )  # fmt: skip


def test_failed_restart_goes_back_by_itself_and_says_why(looked_after: Service) -> None:
    client = enter(looked_after)
    looked_after.worker.refuses = lambda settings: settings["max_model_len"] == 2048
    client.post("/admin/apply", json={"changes": {"max_model_len": 2048}}).raise_for_status()
    settle(looked_after)
    assert [r["max_model_len"] for r in looked_after.worker.restarted] == [2048, 4096]
    state = client.get("/admin/changes").json()
    assert state["changes"][0]["outcome"] == "rolled back"
    assert "no room for the KV cache" in state["reason"]
    assert speech(looked_after).status_code == 200


def test_requests_that_run_can_be_ended_for_a_restart(looked_after: Service) -> None:
    client = enter(looked_after)
    never = asyncio.Event()
    looked_after.lm.enqueue(WaitFor(never), Finish())
    replies: list[httpx.Response] = []
    waiting = threading.Thread(target=lambda: replies.append(speech(looked_after)))
    waiting.start()
    looked_after.until(lambda: looked_after.engine.state().running == 1)
    wanted = {"changes": {"flow_steps": 6}, "running": "abort"}
    assert client.post("/admin/apply", json=wanted).json()["workers"] == ["token2wav"]
    settle(looked_after)
    waiting.join(120)
    assert replies[0].status_code == 503 and looked_after.engine.state().ready


def test_request_that_never_ends_does_not_hold_a_change_for_ever(looked_after: Service) -> None:
    client = enter(looked_after)
    looked_after.office.tuning.drain_timeout_s = 0.0
    never = asyncio.Event()
    looked_after.lm.enqueue(WaitFor(never), Finish())
    replies: list[httpx.Response] = []
    waiting = threading.Thread(target=lambda: replies.append(speech(looked_after)))
    waiting.start()
    looked_after.until(lambda: looked_after.engine.state().running == 1)
    client.post("/admin/apply", json={"changes": {"max_num_seqs": 4}}).raise_for_status()
    settle(looked_after)
    waiting.join(120)
    assert replies[0].status_code == 503
    looked_after.until(looked_after.is_idle)
    assert speech(looked_after).status_code == 200


def test_preview_compares_the_plans(looked_after: Service) -> None:
    found = enter(looked_after).post("/admin/preview", json={"changes": {"kv_cache_gib": 1.0}}).json()
    assert found["names"] == ["kv_cache_gib"] and found["workers"] == ["lm"]
    assert found["after"]["kv_blocks"] == pytest.approx(2 * found["before"]["kv_blocks"], abs=1)


def test_presets_and_export(looked_after: Service) -> None:
    client = enter(looked_after)
    assert client.put("/admin/presets/night", json={"settings": {"max_num_seqs": 0}}).status_code == 400
    client.put("/admin/presets/night", json={"settings": {"max_running": 2}}).raise_for_status()
    assert client.get("/admin/presets").json() == {"night": {"max_running": 2}}
    client.delete("/admin/presets/night").raise_for_status()
    assert client.delete("/admin/presets/night").status_code == 404
    assert "max_running = 8\n" in client.get("/admin/export").text
    exported = client.get("/admin/export?form=env").text
    assert "STUDIO_MAX_RUNNING=8\n" in exported and PASSWORD not in exported


async def test_bench_opens_pages_that_ask_as_the_tab_does(looked_after: Service) -> None:
    used_s = iter((1.0, 1.0, 1.0, 2.0))
    idle, busy = await pages.rows(looked_after.url, PASSWORD, 3, 11, lambda: next(used_s), look_s=0.0)
    assert (idle["pages"], idle["replies"], idle["web_cpu"]) == (0, 0, 0.0)
    assert (busy["pages"], busy["replies"]) == (3, 33) and busy["web_cpu"] > 0
    script = (ROOT / "assets" / "web" / "admin.js").read_text()
    assert f"LOOK_MS = {1000 * pages.LOOK_S:.0f}, HISTORY_EVERY = {pages.HISTORY_EVERY};" in script
