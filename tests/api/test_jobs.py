"""/v1/jobs over a real socket: place in line and time to go, found again, fair turns, stop, HTTP and WebSocket."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from studio.api.guard import SESSION_COOKIE, new_session
from studio.backends.fake import Finish, Raise, Say, WaitFor
from studio.engine.engine import EngineLimits
from studio.errors import SpeechLMError

BODY = {"input": "one two three four", "voice": "Ada", "seed": 7}
SAMPLES = 4 * 5 * 960


@pytest.fixture(autouse=True)
def nobody_tires(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that nobody listens to are kept for as long as a busy machine may need."""
    monkeypatch.setattr("studio.engine.jobs.GRACE_S", 600.0)


@pytest.fixture
def person(service) -> httpx.Client:
    return someone(service.url)


def someone(url: str, key: str = "") -> httpx.Client:
    """A browser's session: jobs are found by its cookie."""
    return httpx.Client(base_url=url, cookies={SESSION_COOKIE: new_session(key)}, timeout=120)


def begin(client: httpx.Client, **changes: object) -> dict:
    reply = client.post("/v1/jobs", json=BODY | changes)
    assert reply.status_code == 201, reply.text
    return reply.json()


def listen(client: httpx.Client, job: dict, **headers: str) -> ClientConnection:
    url = str(client.base_url).replace("http", "ws", 1) + f"/v1/jobs/{job['id']}/audio"
    cookie = f"{SESSION_COOKIE}={client.cookies[SESSION_COOKIE]}"
    return connect(url, additional_headers={"Cookie": cookie} | headers, open_timeout=120, ping_interval=None)


def frames(socket: ClientConnection) -> tuple[list[dict], bytes]:
    told, sound = [], b""
    for message in socket:
        if isinstance(message, bytes):
            sound += message
        else:
            told.append(json.loads(message))
    return told, sound


def test_sound_of_a_job_is_that_of_the_same_request_at_once(person: httpx.Client) -> None:
    job = begin(person)
    heard = person.get(f"/v1/jobs/{job['id']}/audio")
    plain = person.post("/v1/audio/speech", json=BODY | {"response_format": "pcm"})
    assert heard.content == plain.content and len(heard.content) == 2 * SAMPLES
    assert heard.headers["x-seed"] == "7" and heard.headers["content-type"] == "audio/pcm"
    assert person.get(f"/v1/jobs/{job['id']}").json()["state"] == "done"


def test_websocket_gives_the_same_sound_between_start_and_done(person: httpx.Client) -> None:
    job = begin(person)
    with listen(person, job) as socket:
        told, sound = frames(socket)
    assert [message["type"] for message in told] == ["audio.start", "audio.done"]
    assert told[0]["seed"] == 7 and told[0]["prebuffer_ms"] > 0 and told[1]["audio_s"] == SAMPLES / 24000
    assert sound == person.get(f"/v1/jobs/{job['id']}/audio").content


def test_who_waits_is_told_place_and_time(start_service) -> None:
    service = start_service(limits=EngineLimits(max_running=1))
    service.in_loop(service.forget)
    go = asyncio.Event()
    service.lm.enqueue(WaitFor(go), Say(20), Finish())
    people = [someone(service.url) for _ in range(3)]
    jobs = [begin(person) for person in people]
    told = [p.get(f"/v1/jobs/{job['id']}").json() for p, job in zip(people, jobs, strict=True)]
    assert [job["position"] for job in told] == [0, 0, 1]
    assert told[0]["eta_s"] < told[1]["eta_s"] < told[2]["eta_s"]
    assert told[2]["ahead_tokens"] > 0 and told[2]["eta_error_s"] is None
    service.in_loop(go.set)
    for person, job in zip(people, jobs, strict=True):
        assert len(person.get(f"/v1/jobs/{job['id']}/audio").content) == 2 * SAMPLES
    after = people[0].get(f"/v1/jobs/{jobs[0]['id']}").json()
    assert (after["state"], after["position"], after["eta_s"]) == ("done", None, None)
    fourth = begin(people[0])
    assert fourth["eta_error_s"] is not None


def test_sessions_take_turns(start_service) -> None:
    service = start_service(limits=EngineLimits(max_running=1))
    service.in_loop(service.forget)
    go = asyncio.Event()
    service.lm.enqueue(WaitFor(go), Say(5), Finish())
    ann, bob = someone(service.url), someone(service.url)
    begin(ann)
    first, second = begin(ann), begin(ann)
    other = begin(bob)
    place = {j["id"]: c.get(f"/v1/jobs/{j['id']}").json()["position"] for c, j in
             ((ann, first), (ann, second), (bob, other))}  # fmt: skip
    assert place == {first["id"]: 0, other["id"]: 1, second["id"]: 2}
    service.in_loop(go.set)
    service.until(service.is_idle)


def test_refreshed_page_finds_its_job_and_strangers_do_not(service, person: httpx.Client) -> None:
    go = asyncio.Event()
    service.lm.enqueue(Say(60), WaitFor(go), Finish())
    job = begin(person)
    with person.stream("GET", f"/v1/jobs/{job['id']}/audio") as reply:
        next(reply.iter_raw())  # and the page is gone
    (found,) = (j for j in person.get("/v1/jobs").json()["data"] if j["state"] != "done")
    assert (found["id"], found["text"], found["seed"]) == (job["id"], BODY["input"], 7)
    service.in_loop(go.set)
    assert len(person.get(f"/v1/jobs/{found['id']}/audio").content) == 2 * 60 * 960
    stranger = someone(service.url)
    assert stranger.get("/v1/jobs").json()["data"] == []
    for method, path in (("GET", ""), ("GET", "/audio"), ("DELETE", "")):
        reply = stranger.request(method, f"/v1/jobs/{job['id']}{path}")
        assert (reply.status_code, reply.json()["error"]["param"]) == (404, "job")


def test_stop_frees_everything_before_it_answers(service, person: httpx.Client) -> None:
    service.lm.enqueue(Say(60), WaitFor(asyncio.Event()))
    job = begin(person)
    with person.stream("GET", f"/v1/jobs/{job['id']}/audio") as reply:
        pieces = reply.iter_raw()
        next(pieces)
        assert person.delete(f"/v1/jobs/{job['id']}").json()["state"] == "stopped"
        assert service.is_idle()
        with pytest.raises(httpx.RemoteProtocolError):
            list(pieces)
    assert list(service.lm.ended.values()) == ["cancelled"]


def test_refusal_and_failure_have_their_status_and_shape(service, person: httpx.Client) -> None:
    refused = person.post("/v1/jobs", json=BODY | {"input": " "})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "input")
    service.lm.enqueue(Raise(SpeechLMError("speech.lm_failed", reason="scripted")))
    job = begin(person)
    failed = person.get(f"/v1/jobs/{job['id']}/audio")
    assert (failed.status_code, failed.json()["error"]["code"]) == (500, "speech_lm_failed")
    with listen(person, job, **{"Accept-Language": "zh-CN"}) as socket:
        told, sound = frames(socket)
    assert told[0]["type"] == "error" and told[0]["error"]["code"] == "speech_lm_failed" and not sound
    assert person.get(f"/v1/jobs/{job['id']}").json()["error"]["code"] == "speech_lm_failed"


def test_socket_of_another_site_or_without_the_key_is_refused(start_service) -> None:
    locked = start_service("--api-key", "secret")
    locked.in_loop(locked.forget)
    person = someone(locked.url, "secret")
    job = begin(person)
    with pytest.raises(InvalidStatus) as foreign:
        listen(person, job, Origin="https://evil.example")
    assert foreign.value.response.status_code == 403
    with pytest.raises(InvalidStatus) as keyless:
        listen(someone(locked.url), job)
    assert keyless.value.response.status_code == 401
    assert json.loads(keyless.value.response.body)["error"]["code"] == "invalid_api_key"
    with listen(person, job, Origin=locked.url) as socket:
        assert len(frames(socket)[1]) == 2 * SAMPLES
