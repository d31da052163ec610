"""Conditions of other settings of the engine, made at one press: lent, worked with, and put back whatever happens."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from studio.api.engine_settings import possible_with
from studio.api.listening_speech import ConditionSpeech
from studio.backends.fake import Finish, Raise, Say, WaitFor
from studio.errors import SpeechLMError
from studio.listening.generation import Utterance
from studio.settings import Settings
from tests.api.conftest import Service, clip_samples, serve, stop
from tests.simulated_rater import Owner

PASSWORD = "open sesame"
TEXTS = ["one two three four", "five six seven eight"]
SEEDS = (100, 101)
Begin = Callable[[], Service]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Starts the service over its folder; the one that ran before is ended first."""
    running: list = []

    def start() -> Service:
        stop(running)
        running.clear()
        service = serve(tmp_path, running, "--admin-password", PASSWORD)
        if not service.store.all():
            service.store.add(clip_samples(), 24000, "hello there", name="Ada")
        return service

    yield start
    stop(running)


class Engineer(Owner):
    """An owner who is an administrator as well, and sees which settings each sentence was spoken under."""

    def __init__(self, service: Service) -> None:
        super().__init__(service.url)
        self.service = service
        self.http.post("/admin/login", json={"password": PASSWORD}).raise_for_status()
        self.spoken: list[tuple[int, int]] = []
        opened = service.token2wav.open

        async def watched(row_id, voice, seed, guidance):
            self.spoken.append((seed, self.settings.flow_steps))
            return await opened(row_id, voice, seed, guidance)

        service.token2wav.open = watched  # type: ignore[method-assign]

    @property
    def settings(self):
        return self.service.office.tuning.settings

    def draft(self, *steps: int) -> str:
        conditions = [
            {"name": f"{n} steps", "source": {"kind": "speech", "voice": "Ada", "studio": {"flow_steps": n}}}
            for n in steps
        ]
        design = {"kind": "ab", "title": "steps", "headphones": "off", "seed": SEEDS[0]}
        return self.create(conditions=conditions, texts=TEXTS, **design)["id"]

    def make(self, test: str) -> httpx.Response:
        return self.http.post(f"/admin/listening/{test}/make")

    def ended(self, test: str) -> dict:
        """The test once nothing is made of it any more."""
        room = self.service.app.state.listening
        self.service.until(lambda: not room.is_making(test))
        return self.show(test)

    def material(self) -> list[tuple[int, int]]:
        """Seeds of the test's own sentences with the flow steps that they were spoken with."""
        return sorted(spoken for spoken in self.spoken if spoken[0] in SEEDS)

    def restarts(self) -> list[int]:
        worker = self.service.office.tuning.workers["token2wav"]
        return [settings["flow_steps"] for settings in worker.restarted]  # type: ignore[attr-defined]


@pytest.fixture
def engineer(begin) -> Engineer:
    return Engineer(begin())


def test_each_condition_is_made_under_its_own_settings_while_others_wait_in_line(engineer: Engineer) -> None:
    service, going = engineer.service, asyncio.Event()
    test = engineer.draft(6, 10, 4)
    service.lm.enqueue(Say(20), WaitFor(going), Finish())
    assert engineer.make(test).json() == {"parts": 3}
    service.until(lambda: service.lm.samplings != [])
    shown = engineer.show(test)
    assert shown["making"] and shown["series"]["phase"] == "lent"
    assert shown["series"]["settings"] == {"flow_steps": 10}  # what needs no restart comes first
    replies: list[httpx.Response] = []
    body = {"input": "nine ten", "voice": "Ada", "seed": 7, "response_format": "pcm"}
    listener = threading.Thread(
        target=lambda: replies.append(httpx.post(f"{service.url}/v1/audio/speech", json=body, timeout=120))
    )
    listener.start()
    service.until(lambda: service.engine.state().waiting == 1)
    service.in_loop(going.set)
    shown = engineer.ended(test)
    assert shown["problem"] == "" and shown["made"] == shown["to_make"] == 6
    assert engineer.material() == [(seed, steps) for seed in SEEDS for steps in (4, 6, 10)]
    assert engineer.restarts() == [6, 4, 10] and engineer.settings.flow_steps == 10
    listener.join(120)
    assert replies[0].status_code == 200 and (7, 10) in engineer.spoken
    changes = engineer.http.get("/admin/changes").json()["changes"]
    assert [change["after"]["flow_steps"] for change in changes] == [10, 4, 6]
    assert engineer.do(test, "open").status_code == 200


def test_sentence_past_the_line_is_ended_when_nobody_waits_for_it_any_more(engineer: Engineer) -> None:
    service = engineer.service
    speech = ConditionSpeech(service.office.desk.models, service.store, possible_with(Settings()))

    async def left() -> int:
        speaking = asyncio.ensure_future(speech.speak_past_line(Utterance(TEXTS[0], "Ada", 7, {})))
        while not (await service.lm.stats()).running:
            await asyncio.sleep(0)
        speaking.cancel()
        await asyncio.wait([speaking])
        return (await service.lm.stats()).running

    service.lm.enqueue(WaitFor(asyncio.Event()))
    assert asyncio.run_coroutine_threadsafe(left(), service.loop).result(120) == 0


def test_settings_that_do_not_start_are_told_and_the_old_ones_come_back(engineer: Engineer) -> None:
    test = engineer.draft(10, 6)
    worker = engineer.service.office.tuning.workers["token2wav"]
    worker.refuses = lambda settings: settings["flow_steps"] == 6
    engineer.make(test)
    shown = engineer.ended(test)
    assert "own settings again" in shown["problem"] and "no room for the KV cache" in shown["problem"]
    assert [clip["condition"] for clip in shown["clips"]] == ["c1", "c1"]
    assert engineer.restarts() == [6, 10] and engineer.settings.flow_steps == 10
    first = engineer.http.get("/admin/changes").json()["changes"][0]
    assert (first["outcome"], first["after"]) == ("rolled back", {"flow_steps": 6})
    chinese = engineer.http.get(f"/v1/listening/tests/{test}", headers={"accept-language": "zh"}).json()
    assert "已恢复原来的设置" in chinese["problem"]
    assert engineer.service.engine.state().ready


def test_sentence_that_fails_ends_the_series_and_the_next_makes_only_what_is_missing(engineer: Engineer) -> None:
    test = engineer.draft(6, 4)
    lm = engineer.service.lm
    lm.enqueue(Say(9), Finish())  # the self-test of six steps
    lm.enqueue(Say(20), Finish())
    lm.enqueue(Raise(SpeechLMError("speech.lm_failed", reason="scripted")))
    engineer.make(test)
    shown = engineer.ended(test)
    assert "scripted" in shown["problem"] and engineer.settings.flow_steps == 10
    assert engineer.restarts() == [6, 10]
    kept = len(shown["clips"])
    assert kept < 4
    engineer.spoken.clear()
    engineer.make(test)
    shown = engineer.ended(test)
    assert shown["problem"] == "" and shown["made"] == 4 and len(engineer.material()) == 4 - kept
    assert engineer.make(test).status_code == 409


def test_series_goes_on_after_a_restart_of_the_studio(begin) -> None:
    engineer = Engineer(begin())
    test = engineer.draft(10, 6)
    lm, never = engineer.service.lm, asyncio.Event()
    for _ in TEXTS:
        lm.enqueue(Say(20), Finish())
    lm.enqueue(Say(9), Finish())  # the self-test of six steps
    lm.enqueue(WaitFor(never), Finish())
    lm.enqueue(WaitFor(never), Finish())
    engineer.make(test)
    engineer.service.until(lambda: len(lm.samplings) == 5)
    key = engineer.http.get("/v1/listening/owner").json()["key"]

    again = Engineer(begin())
    again.http.post("/v1/listening/owner", json={"key": key}).raise_for_status()
    shown = again.ended(test)
    assert shown["problem"] == "" and shown["made"] == 4 and shown["series"] is None
    # Its sentences may have begun before this test could watch; what was started says what they were spoken with.
    assert again.restarts() == [6, 10] and again.settings.flow_steps == 10
    assert again.service.app.state.listening.store.series() == {}


def test_series_can_be_stopped_and_the_old_settings_come_back(engineer: Engineer) -> None:
    service, never = engineer.service, asyncio.Event()
    test = engineer.draft(6, 4)
    service.lm.enqueue(Say(9), Finish())
    service.lm.enqueue(WaitFor(never), Finish())
    service.lm.enqueue(WaitFor(never), Finish())
    engineer.make(test)
    service.until(lambda: len(service.lm.samplings) == 3)
    assert engineer.http.post("/admin/apply", json={"changes": {"flow_steps": 7}}).status_code == 409
    assert engineer.do(test, "open").status_code == 409
    assert engineer.make(test).status_code == 409
    assert engineer.http.delete(f"/admin/listening/{test}/make").json() == {"ok": True}
    shown = engineer.ended(test)
    assert (shown["made"], shown["problem"], engineer.settings.flow_steps) == (0, "", 10)
    assert engineer.restarts() == [6, 10]
    assert engineer.http.delete(f"/admin/listening/{test}/make").status_code == 404


def test_only_an_administrator_has_the_engine_started_anew(engineer: Engineer) -> None:
    test = engineer.draft(10, 6)
    refused = Owner(engineer.service.url).http.post(f"/admin/listening/{test}/make")
    assert refused.status_code == 401 and "administrators" in refused.json()["error"]["message"]
    assert engineer.restarts() == []


REFUSED = {
    "memory": ({"kv_cache_gib": 1}, "it is about memory"),
    "speed": ({"token2wav_threads": 1}, "it is about speed"),
    "many at once": ({"max_num_seqs": 4}, "how many are served at once"),
    "request": ({"temperature": 0.5}, "a setting of each request"),
    "unknown": ({"flow_stepz": 6}, "it may be one of"),
    "secret": ({"admin_password": "x"}, "it may be one of"),
    "out of range": ({"flow_steps": 99}, "flow_steps"),
    "no such choice": ({"dtype": "fp5"}, "dtype"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_setting_that_makes_no_condition_is_refused_with_the_reason(service: Service, case: str) -> None:
    studio, said = REFUSED[case]
    source = {"kind": "speech", "voice": "Ada", "studio": studio}
    body = {"kind": "mos", "title": "t", "texts": ["one two"], "conditions": [{"name": "a", "source": source}]}
    reply = Owner(service.url).http.post("/v1/listening/tests", json=body)
    error = reply.json()["error"]
    assert (reply.status_code, error["param"]) == (400, "conditions") and said in error["message"]


def test_every_condition_names_what_any_of_them_changes(service: Service) -> None:
    """One that named nothing would be made with whatever the studio runs with at that moment."""
    owner = Owner(service.url)
    sources = ({}, {"studio": {"flow_steps": 6}}, {"studio": {"dtype": "bfloat16"}})
    conditions = [
        {"name": f"n{n}", "source": {"kind": "speech", "voice": "Ada", **source}} for n, source in enumerate(sources)
    ]
    made = owner.create(kind="mos", title="t", texts=["one two"], conditions=conditions)
    assert [c["source"]["studio"] for c in made["design"]["conditions"]] == [
        {"flow_steps": 10, "dtype": "auto"},
        {"flow_steps": 6, "dtype": "auto"},
        {"flow_steps": 10, "dtype": "bfloat16"},
    ]


def test_settings_that_a_condition_may_name_are_offered_with_their_ranges(service: Service) -> None:
    offered = httpx.get(f"{service.url}/v1/listening/settings").json()
    engine, request = ({row["name"]: row for row in offered[group]} for group in ("studio", "request"))
    assert (engine["flow_steps"]["least"], engine["flow_steps"]["most"], engine["flow_steps"]["value"]) == (1, 50, 10)
    assert "bfloat16" in engine["dtype"]["choices"]
    assert not {"kv_cache_gib", "temperature", "api_key"} & engine.keys()
    assert request["temperature"]["most"] == 2.0 and request["quality"]["choices"] == ["fast", "balanced", "best"]
    assert not {"input", "voice", "seed"} & request.keys()
