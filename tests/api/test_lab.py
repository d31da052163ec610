"""/admin/lab: sweeps and loads as jobs, the settings put back after them, and their figures."""

from __future__ import annotations

import asyncio
import csv
import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from studio.backends.fake import Finish, Say, WaitFor
from tests.api.conftest import Service, serve, stop
from tests.api.test_admin import PASSWORD, enter, speech
from tests.api.test_admin import settle as settle_change

SWEEP = {"sweep": "block_size", "values": [64, 96], "streams": 1, "seconds": 0.1, "text_s": 3}
LOAD = {"sweep": "load", "values": [3], "seconds": 0.1, "text_s": 3}


@pytest.fixture(scope="module")
def service_of_the_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    running: list[tuple[uvicorn.Server, threading.Thread]] = []
    yield serve(tmp_path_factory.mktemp("lab"), running, "--admin-password", PASSWORD)
    stop(running)


@pytest.fixture
def looked_after(service_of_the_lab: Service) -> Service:
    """The lab's service as if it had just started, but for the runs of before."""
    service = service_of_the_lab
    service.worker.refuses = lambda settings: False
    asyncio.run_coroutine_threadsafe(reset(service), service.loop).result(120)
    service.until(service.is_idle)
    service.in_loop(service.forget)
    service.worker.restarted.clear()
    return service


async def reset(service: Service) -> None:
    """The settings that the service was started with, which a test may have left changed."""
    tuning, lab = service.office.tuning, service.office.lab
    lab.stop()  # the run of a test that failed
    await lab.settled()
    tuning.phase, tuning.reason = "idle", ""
    tuning.settings = tuning.settings.model_copy(update={"kv_cache_gib": 0.5, "top_k": None})
    tuning.apply(tuning.settings)


def newest(client: httpx.Client) -> dict[str, Any]:
    """The run that was begun last."""
    return client.get("/admin/lab").json()["runs"][0]


def runs(client: httpx.Client) -> int:
    return max((run["number"] for run in client.get("/admin/lab").json()["runs"]), default=0)


def settle(service: Service) -> None:
    asyncio.run_coroutine_threadsafe(service.office.lab.settled(), service.loop).result(120)


def begun(client: httpx.Client, **wanted: object) -> int:
    reply = client.post("/admin/lab", json=wanted)
    assert reply.status_code == 202, reply.text
    return int(reply.json()["number"])


def measuring(service: Service) -> asyncio.Event:
    """Let a run warm up and the try of its first value pass, and hold the play after it until the event is set."""
    held = asyncio.Event()
    service.lm.enqueue(Say(5), Finish())
    service.lm.enqueue(Say(5), Finish())
    service.lm.enqueue(Say(5), WaitFor(held), Finish())
    return held


def is_held(service: Service) -> bool:
    """Whether that play has begun: after two others."""
    return len(service.lm.prompts) == 3


def block_sizes(service: Service) -> list[object]:
    return [settings["block_size"] for settings in service.worker.restarted]


def test_sweep_tells_its_progress_and_puts_the_old_settings_back(looked_after: Service) -> None:
    client = enter(looked_after)
    held = measuring(looked_after)
    number = begun(client, **SWEEP)
    looked_after.until(lambda: is_held(looked_after))
    told = client.get("/admin/lab").json()
    assert told["progress"] == {
        "sweep": "block_size", "points": 2, "number": number, "step": "measuring", "point": 1, "value": 64, "plays": 0,
    }  # fmt: skip
    assert told["runs"][0]["outcome"] == "running"
    looked_after.in_loop(held.set)
    settle(looked_after)
    told = client.get("/admin/lab").json()
    run = told["runs"][0]
    assert (told["progress"], run["outcome"], run["reason"]) == (None, "finished", "")
    assert [(p["block_size"], p["outcome"], p["failures"]) for p in run["points"]] == [
        (64, "measured", 0), (96, "measured", 0),
    ]  # fmt: skip
    assert all(p["plays"] >= 1 and p["audio_s_per_s"] > 0 and p["planned_kv_blocks"] > 0 for p in run["points"])
    assert run["conditions"]["device"] == "cpu" and run["conditions"]["hardware"]
    assert block_sizes(looked_after) == [64, 96, 32]
    assert looked_after.office.tuning.settings.block_size == 32


def test_every_run_is_in_the_log_of_changes(looked_after: Service) -> None:
    client = enter(looked_after)
    number = begun(client, **LOAD)
    settle(looked_after)
    change = client.get("/admin/changes").json()["changes"][0]
    assert change["after"] == {"lab": "load", "values": "3", "run": number}
    assert (change["outcome"], change["who"]) == ("finished", newest(client)["who"])


def test_stop_ends_the_load_and_puts_the_old_settings_back(looked_after: Service) -> None:
    client = enter(looked_after)
    measuring(looked_after)  # and never let go
    begun(client, **SWEEP)
    looked_after.until(lambda: is_held(looked_after))
    client.post("/admin/lab/stop").raise_for_status()
    settle(looked_after)
    run = newest(client)
    assert (run["outcome"], run["points"]) == ("stopped", [])
    assert block_sizes(looked_after) == [64, 32]
    looked_after.until(looked_after.is_idle)
    assert client.post("/admin/apply", json={"changes": {"top_k": 5}}).status_code == 202
    settle_change(looked_after)


def test_value_that_does_not_start_is_a_point_and_the_old_settings_come_back(looked_after: Service) -> None:
    client = enter(looked_after)
    looked_after.worker.refuses = lambda settings: settings["block_size"] == 64
    begun(client, **SWEEP)
    settle(looked_after)
    run = newest(client)
    first, second = run["points"]
    assert (first["outcome"], second["outcome"]) == ("rolled back", "measured")
    assert "no room for the KV cache" in first["reason"]
    assert block_sizes(looked_after) == [64, 32, 96, 32]


def test_engine_that_does_not_come_back_fails_the_run(looked_after: Service) -> None:
    client = enter(looked_after)
    looked_after.worker.refuses = lambda settings: True
    begun(client, **SWEEP)
    settle(looked_after)
    run = newest(client)
    assert run["outcome"] == "failed" and "no room for the KV cache" in run["reason"]
    assert len(run["points"]) == 1 and client.get("/admin/lab").json()["progress"] is None


def test_run_that_a_stopped_server_left_is_called_cut_off_and_the_old_settings_hold(tmp_path: Path) -> None:
    running: list[tuple[uvicorn.Server, threading.Thread]] = []
    try:
        service = serve(tmp_path, running, "--admin-password", PASSWORD)
        measuring(service)
        begun(enter(service), **SWEEP)
        service.until(lambda: is_held(service))
        stop(running[-1:])
        again = serve(tmp_path, running, "--admin-password", PASSWORD)
        client = enter(again)
        run = newest(client)
        assert run["outcome"] == "interrupted"
        assert again.office.tuning.settings.block_size == 32
        assert client.get("/admin/changes").json()["changes"][0]["outcome"] == "interrupted"
        begun(client, **LOAD)
        settle(again)
    finally:
        stop(running)


def test_planner_refuses_a_value_without_a_restart_unless_it_is_told_to_try(looked_after: Service) -> None:
    client = enter(looked_after)
    client.post("/admin/apply", json={"changes": {"kv_cache_gib": 0.05}}).raise_for_status()
    settle_change(looked_after)
    looked_after.worker.restarted.clear()
    sweep = {"sweep": "max_model_len", "values": [2048, 32768], "seconds": 0.1, "streams": 1}
    begun(client, **sweep)
    settle(looked_after)
    points = newest(client)["points"]
    assert [p["outcome"] for p in points] == ["measured", "refused"]
    assert "KV cache would hold" in points[1]["reason"]
    assert [s["max_model_len"] for s in looked_after.worker.restarted] == [2048, 4096]
    looked_after.worker.refuses = lambda settings: settings["max_model_len"] == 32768
    begun(client, **sweep, beyond_plan=True)
    settle(looked_after)
    points = newest(client)["points"]
    assert [p["outcome"] for p in points] == ["measured", "rolled back"]


@pytest.mark.parametrize("wanted", [SWEEP, LOAD])
def test_run_is_refused_while_somebody_listens_unless_forced(looked_after: Service, wanted: dict) -> None:
    client = enter(looked_after)
    going = asyncio.Event()
    looked_after.lm.enqueue(Say(40), WaitFor(going), Finish())
    replies: list[httpx.Response] = []
    speaking = threading.Thread(target=lambda: replies.append(speech(looked_after)))
    speaking.start()
    looked_after.until(lambda: len(looked_after.engine.in_flight()) == 1)
    before = runs(client)
    refused = client.post("/admin/lab", json=wanted)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "admin_busy")
    assert looked_after.worker.restarted == [] and runs(client) == before
    begun(client, **wanted, force=True)
    looked_after.in_loop(going.set)  # whom a restart waits for
    settle(looked_after)
    speaking.join(120)
    assert replies[0].status_code == 200
    assert newest(client)["outcome"] == "finished"


def test_requests_of_others_during_a_load_are_counted(looked_after: Service) -> None:
    client = enter(looked_after)
    warm, held = asyncio.Event(), asyncio.Event()
    looked_after.lm.enqueue(WaitFor(warm), Say(5), Finish())
    begun(client, **LOAD, force=True)
    looked_after.until(lambda: len(looked_after.lm.prompts) == 1)
    looked_after.lm.enqueue(Say(40), WaitFor(held), Finish())
    speaking = threading.Thread(target=speech, args=(looked_after,))
    speaking.start()
    looked_after.until(lambda: len(looked_after.lm.prompts) == 2)
    looked_after.in_loop(warm.set)
    settle(looked_after)
    looked_after.in_loop(held.set)
    speaking.join(120)
    (point,) = newest(client)["points"]
    assert point["others"] == 1


def test_the_lab_owns_the_settings_while_it_runs(looked_after: Service) -> None:
    client = enter(looked_after)
    held = measuring(looked_after)
    begun(client, **SWEEP)
    looked_after.until(lambda: is_held(looked_after))
    for path, body in (("/admin/apply", {"changes": {"top_k": 5}}), ("/admin/lab", LOAD)):
        refused = client.post(path, json=body)
        assert refused.status_code == 409 and "lab is at work" in refused.json()["error"]["message"]
    looked_after.in_loop(held.set)
    settle(looked_after)


def test_load_test_gives_the_figures_of_the_bench(looked_after: Service) -> None:
    client = enter(looked_after)
    begun(client, **LOAD)
    settle(looked_after)
    (point,) = newest(client)["points"]
    assert (point["streams"], point["failures"], point["others"]) == (3, 0, 0)
    assert 0 <= point["continuity"] <= 1
    assert 0 < point["ttfa_p50_ms"] <= point["ttfa_p95_ms"] <= point["ttfa_p99_ms"]
    assert point["plays"] >= 3 and point["audio_s_per_s"] > 0
    assert looked_after.worker.restarted == []


def test_load_counts_what_is_not_heard_out(looked_after: Service) -> None:
    client = enter(looked_after)
    looked_after.lm.enqueue(Say(5), Finish())  # the one that is not counted
    looked_after.token2wav.fail(None, "no such luck")
    begun(client, **LOAD)
    settle(looked_after)
    (point,) = newest(client)["points"]
    assert point["failures"] == 1 and "no such luck" in point["failed"][0]


def test_figures_are_saved_as_csv(looked_after: Service) -> None:
    client = enter(looked_after)
    number = begun(client, **SWEEP)
    settle(looked_after)
    reply = client.get(f"/admin/lab/csv?run={number}")
    assert reply.headers["content-type"].startswith("text/csv")
    assert f"lab-{number:05d}.csv" in reply.headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(reply.text)))
    points = newest(client)["points"]
    assert [row["block_size"] for row in rows] == ["64", "96"]
    assert [float(row["audio_s_per_s"]) for row in rows] == [point["audio_s_per_s"] for point in points]
    assert client.get("/admin/lab/csv?run=99").status_code == 404


@pytest.mark.parametrize(
    ("wanted", "named"),
    [
        ({"sweep": "quantization"}, "not quantised"),
        ({"sweep": "block_size", "values": [64, 40]}, "multiple of 32"),
        ({"sweep": "streams", "values": [1, 1000]}, "1 to 64"),
        ({"sweep": "max_model_len", "values": ["long"]}, "max_model_len"),
    ],
)
def test_what_cannot_be_tried_is_refused_before_anything_stops(
    looked_after: Service, wanted: dict, named: str
) -> None:
    client = enter(looked_after)
    before = runs(client)
    refused = client.post("/admin/lab", json=wanted)
    assert refused.status_code == 400 and named in refused.json()["error"]["message"]
    assert runs(client) == before and looked_after.worker.restarted == []


def test_page_is_told_why_a_sweep_cannot_run_here(looked_after: Service) -> None:
    sweeps = {s["name"]: s for s in enter(looked_after).get("/admin/lab").json()["sweeps"]}
    assert "GPU" in sweeps["quantization"]["refused"] and sweeps["streams"]["refused"] is None
    assert sweeps["streams"]["values"] == [1, 2, 4, 8]
