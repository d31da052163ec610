"""Several models at once on scripts: picked by name, loaded and unloaded by an administrator, each on its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx
import openai
import pytest

from studio.backends.fake import Finish, Say, WaitFor, voice_prompt
from studio.errors import CheckpointError
from tests.api.conftest import FakeModel, Service, clip_bytes, clip_samples

VOICE = Path(__file__).resolve().parents[2] / "assets" / "voice"
PASSWORD = "open sesame"
TEXT = "one two three"
SAMPLES = 15 * 960


class Studio:
    """A service that knows a second model, and its administrator."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.http = httpx.Client(base_url=service.url, timeout=120)
        self.admin = httpx.Client(base_url=service.url, timeout=120)
        self.admin.post("/admin/login", json={"password": PASSWORD}).raise_for_status()

    @property
    def twin(self) -> FakeModel:
        return self.service.loader.of["twin"]

    def load(self, **how: object) -> httpx.Response:
        reply = self.admin.post("/admin/models/twin/load", json=how)
        self.settle()
        return reply

    def unload(self, **how: object) -> httpx.Response:
        return self.admin.post("/admin/models/twin/unload", json=how)

    def settle(self) -> None:
        settled = self.service.office.desk.settled("twin")
        asyncio.run_coroutine_threadsafe(settled, self.service.loop).result(120)

    def row(self, name: str = "twin") -> dict:
        return next(row for row in self.admin.get("/admin/models").json()["models"] if row["name"] == name)

    def speak(self, model: str | None = "twin", **more: object) -> httpx.Response:
        named = {} if model is None else {"model": model}
        body = {"input": TEXT, "voice": "Ada", "response_format": "pcm", **named, **more}
        return self.http.post("/v1/audio/speech", json=body)

    def listen(self, go_on: asyncio.Event) -> tuple[threading.Thread, list[httpx.Response]]:
        """Somebody who hears the second model, which goes on when told."""
        self.twin.lm.enqueue(Say(40), WaitFor(go_on), Finish())
        replies: list[httpx.Response] = []

        def run() -> None:
            with suppress(httpx.RemoteProtocolError):  # a body that was broken off
                replies.append(self.speak())

        thread = threading.Thread(target=run)
        thread.start()
        self.service.until(lambda: any(r.tokens == 40 for r in self.twin.loaded.engine.in_flight()))
        return thread, replies


@pytest.fixture
def studio(start_service: Callable[..., Service]) -> Studio:
    return start(start_service, "--load-models", "false")


def start(start_service: Callable[..., Service], *flags: str, place: Path = VOICE) -> Studio:
    """Without the page, which takes its time to build."""
    known = ("--models", f"twin={place}", "--page", "false")
    service = start_service("--admin-password", PASSWORD, *known, *flags)
    service.store.add(clip_samples(), 24000, "hello there", name="Ada")
    return Studio(service)


def refusal(reply: httpx.Response) -> tuple[int, str, str]:
    error = reply.json()["error"]
    return reply.status_code, error["code"], error["message"]


def test_request_picks_its_model_by_name_and_one_without_gets_the_first(studio: Studio) -> None:
    begun = studio.load().json()
    assert begun["state"] == "loading" and begun["fit"]["fits"] and begun["fit"]["needs_bytes"] > 1e8
    for model, asked in (
        (None, studio.service.lm),
        ("", studio.service.lm),
        ("fake-model", studio.service.lm),
    ):
        asked.prompts.clear()
        assert len(studio.speak(model).content) == 2 * SAMPLES and len(asked.prompts) == 1
    assert len(studio.speak("twin").content) == 2 * SAMPLES
    assert len(studio.twin.lm.prompts) == 1 and len(studio.service.lm.prompts) == 1


def test_models_lists_what_may_be_asked_to_speak_and_what_else_is_known(studio: Studio) -> None:
    def listed() -> tuple[list[str], list[dict[str, str]]]:
        found = studio.http.get("/v1/models").json()
        return [model["id"] for model in found["data"]], found["not_loaded"]

    assert listed() == (["fake-model"], [{"id": "twin", "state": "unloaded"}])
    studio.load()
    assert listed() == (["fake-model", "twin"], [])


def test_unknown_model_is_refused_as_openai_does_it_and_one_that_is_not_loaded_with_what_to_do(
    studio: Studio,
) -> None:
    sdk = openai.OpenAI(base_url=f"{studio.service.url}/v1", api_key="x", max_retries=0)
    with pytest.raises(openai.NotFoundError, match="fake-model, twin") as unknown:
        sdk.audio.speech.create(model="nobody", voice="Ada", input=TEXT)
    assert unknown.value.code == "model_not_found" and unknown.value.param == "model"
    reply = studio.speak()
    assert refusal(reply)[:2] == (503, "model_not_loaded") and "Admin tab" in refusal(reply)[2]
    assert "retry-after" not in reply.headers  # it would not come by itself
    bodies = {
        "/v1/jobs": {"input": TEXT, "voice": "Ada", "model": "twin"},
        "/v1/audio/speech/preview": {"input": TEXT, "model": "twin"},
        "/v1/audio/speech/best": {"input": TEXT, "voice": "Ada", "model": "twin"},
    }
    for path, body in bodies.items():
        assert refusal(studio.http.post(path, json=body))[:2] == (503, "model_not_loaded"), path
    form = {"data": {"voice": "Ada", "model": "twin"}, "files": {"audio_sample": clip_bytes()}}
    assert refusal(studio.http.post("/v1/audio/conversions", **form))[:2] == (503, "model_not_loaded")
    assert not studio.service.lm.prompts


def test_model_that_is_being_loaded_tells_when_to_come_again(studio: Studio) -> None:
    studio.service.loader.gate.clear()
    assert studio.admin.post("/admin/models/twin/load", json={}).status_code == 202
    assert studio.row()["state"] == "loading"
    reply = studio.speak()
    assert refusal(reply)[:2] == (503, "model_not_loaded") and int(reply.headers["retry-after"]) > 0
    assert studio.admin.post("/admin/models/twin/load", json={}).status_code == 409
    assert studio.speak("fake-model").status_code == 200
    studio.service.loader.gate.set()
    studio.settle()
    assert studio.speak().status_code == 200
    assert studio.admin.post("/admin/models/twin/load", json={}).status_code == 409


@pytest.mark.parametrize("how", ["checkpoint", "worker"])
def test_model_that_fails_to_load_leaves_the_others_as_they_are(studio: Studio, how: str) -> None:
    if how == "checkpoint":
        studio.service.loader.refuses = CheckpointError(
            "checkpoint.unreadable", file="llm.pt", reason="too short"
        )
    else:
        studio.service.loader.phase = "failed"
    studio.load()
    assert studio.row()["state"] == "failed"
    assert {"checkpoint": "too short", "worker": "KV cache"}[how] in studio.row()["reason"]
    assert how == "checkpoint" or studio.twin.lm.closed
    assert refusal(studio.speak())[1] == "model_not_loaded"
    assert studio.speak("fake-model").status_code == 200
    change = studio.admin.get("/admin/changes").json()["changes"][0]
    assert (change["outcome"], change["after"]) == ("failed", {"model twin": "failed"})
    studio.service.loader.refuses, studio.service.loader.phase = None, "ready"
    studio.load()
    assert studio.speak().status_code == 200


def test_planner_refuses_what_does_not_fit_with_its_figures_unless_forced(start_service) -> None:
    studio = start(start_service, "--load-models", "false", "--kv-cache-gib", "64")
    reply = studio.load()
    assert refusal(reply)[0] == 400 and "GB are free" in refusal(reply)[2]
    fit = studio.row()["fit"]
    assert fit["needs_bytes"] > 64 * 2**30 > fit["free_bytes"] and not fit["fits"]
    assert studio.row()["state"] == "unloaded" and "twin" not in studio.service.loader.of
    assert studio.load(force=True).status_code == 202 and studio.row()["state"] == "loaded"


def test_on_a_gpu_the_share_of_vllm_counts_and_nothing_is_refused_where_no_driver_tells(
    studio: Studio,
) -> None:
    facts = {"device": "cuda", "gpus": 1, "gpu_memory_bytes": 10**11}
    studio.service.in_loop(lambda: studio.service.worker.reports(**facts))
    fit = studio.row()["fit"]
    assert fit["needs_bytes"] > 10**10 and fit["free_bytes"] is None and fit["fits"]
    assert studio.row("fake-model")["held_mb"] is None


def test_folder_without_a_checkpoint_is_told_before_anything_begins(start_service, tmp_path: Path) -> None:
    studio = start(start_service, "--load-models", "false", place=tmp_path / "no")
    assert "cosyvoice2.yaml" in studio.row()["reason"]
    reply = studio.load()
    assert reply.status_code >= 400 and "cosyvoice2.yaml" in refusal(reply)[2]
    assert studio.row()["state"] == "unloaded"


def test_unloading_waits_for_who_listens_and_lets_nobody_else_in(studio: Studio) -> None:
    studio.load()
    go_on = asyncio.Event()
    listener, replies = studio.listen(go_on)
    assert studio.unload().status_code == 202
    assert studio.row()["state"] == "unloading" and studio.row()["running"] == 1
    assert refusal(studio.speak())[1] == "model_not_loaded"
    studio.service.in_loop(go_on.set)
    listener.join(120)
    assert len(replies[0].content) == 2 * 40 * 960
    studio.settle()
    assert studio.row()["state"] == "unloaded" and studio.twin.lm.closed and studio.twin.token2wav.closed
    assert studio.speak("fake-model").status_code == 200
    change = studio.admin.get("/admin/changes").json()["changes"][0]
    assert (change["before"], change["after"]) == ({"model twin": "loaded"}, {"model twin": "unloaded"})


def test_unloading_at_once_ends_who_listens(studio: Studio) -> None:
    studio.load()
    listener, replies = studio.listen(asyncio.Event())
    studio.unload(running="abort")
    listener.join(120)
    studio.settle()
    assert studio.row()["state"] == "unloaded" and studio.twin.lm.closed
    assert not replies or "unloaded this model" in replies[0].text
    studio.load()
    assert studio.speak().status_code == 200


def test_first_model_stays(studio: Studio) -> None:
    reply = studio.admin.post("/admin/models/fake-model/unload", json={})
    assert reply.status_code == 400 and "--model-dir" in refusal(reply)[2]
    assert studio.admin.post("/admin/models/nobody/load", json={}).status_code == 404
    assert studio.unload().status_code == 409  # it is not loaded


def test_voice_is_encoded_once_for_each_model(studio: Studio) -> None:
    studio.load()
    first = studio.service.encoder.encoded
    for model in ("twin", "fake-model", "twin", "fake-model"):
        assert studio.speak(model).status_code == 200
    assert studio.twin.encoder.encoded == 1 and studio.service.encoder.encoded - first <= 1
    studio.unload()
    studio.settle()
    studio.load()
    assert studio.speak().status_code == 200
    assert studio.twin.encoder.encoded == 0  # a new one reads what the last one kept


def test_deleted_voice_is_forgotten_by_every_model(studio: Studio) -> None:
    studio.load()
    studio.service.store.add(clip_samples(3.0), 24000, "good day", name="Bob")
    for model in ("twin", "fake-model"):
        assert studio.speak(model, voice="Bob").status_code == 200
    studio.http.delete("/v1/audio/voices/Bob?forever=true").raise_for_status()
    for loaded in (studio.twin.loaded, studio.service.loader.of["fake-model"].loaded):
        assert loaded.prompts._memory == {}


def test_presets_are_the_voices_of_their_model_alone(studio: Studio) -> None:
    studio.load()
    studio.twin.encoder.preset = {"Own": voice_prompt("own", tokens=0, prompt_text="")}
    studio.service.in_loop(lambda: studio.twin.worker.to("ready", "stage.ready"))
    studio.service.in_loop(studio.twin.loaded.prompts.show_presets)
    studio.service.until(lambda: any(v.name == "Own" for v in studio.service.store.all()))
    assert studio.speak(voice="Own").status_code == 200
    reply = studio.speak("fake-model", voice="Own")
    assert reply.status_code == 422 and "another model" in refusal(reply)[2]
    studio.unload()
    studio.settle()
    assert "Own" not in [v.name for v in studio.service.store.all()]


def test_metrics_tell_the_models_apart(studio: Studio) -> None:
    studio.load()
    studio.speak()
    studio.service.until(lambda: not studio.twin.loaded.engine.in_flight())
    page = studio.http.get("/metrics").text
    assert 'studio_requests_finished_total{model="twin",reason="stop"} 1.0' in page
    assert 'studio_requests_finished_total{model="fake-model",reason="stop"}' not in page
    assert (
        'vllm:num_requests_running{model="twin"} 0' in page
        and page.count("# TYPE vllm:num_requests_running ") == 1
    )


def test_take_tells_which_model_spoke_and_is_made_again_by_it(studio: Studio) -> None:
    studio.load()
    studio.speak()
    studio.speak("fake-model")
    takes = studio.http.get("/v1/audio/takes").json()["data"]
    assert [take["model"] for take in takes] == ["fake-model", "twin"]
    again = f"/v1/audio/takes/{takes[1]['id']}/replay"
    reply = studio.http.post(again)
    assert reply.headers["x-replay-difference"] == "0"
    studio.unload()
    studio.settle()
    assert refusal(studio.http.post(again))[1] == "model_not_loaded"


def test_job_of_another_model_is_followed_as_any(studio: Studio) -> None:
    studio.load()
    go_on = asyncio.Event()
    studio.twin.lm.enqueue(WaitFor(go_on), Say(25), Finish())
    job = studio.http.post("/v1/jobs", json={"input": TEXT, "voice": "Ada", "model": "twin"}).json()
    assert studio.http.get(f"/v1/jobs/{job['id']}").json()["eta_s"] is not None
    studio.service.in_loop(go_on.set)
    assert len(studio.http.get(f"/v1/jobs/{job['id']}/audio").content) == 2 * 25 * 960


def test_administrator_sees_each_model_alone_and_ends_its_requests(studio: Studio) -> None:
    studio.load()
    listener, _ = studio.listen(asyncio.Event())
    monitor = studio.service.office.desk.monitor_of("twin")
    assert monitor is not None
    asyncio.run_coroutine_threadsafe(monitor.sample(), studio.service.loop).result(120)
    (request,) = studio.admin.get("/admin/live?model=twin").json()["in_flight"]
    assert studio.admin.get("/admin/live").json()["in_flight"] == []
    assert studio.admin.get("/admin/history?model=twin").json()["running"][-1] == 1
    assert studio.admin.post(f"/admin/requests/{request['request_id']}/abort").status_code == 200
    listener.join(120)


def test_settings_that_act_at_once_act_on_all_and_others_at_the_next_loading(studio: Studio) -> None:
    studio.load()
    for changes in ({"temperature": 0.5}, {"kv_cache_gib": 0.25}):
        studio.admin.post("/admin/apply", json={"changes": changes}).raise_for_status()
        tuning = studio.service.office.tuning
        asyncio.run_coroutine_threadsafe(tuning.settled(), studio.service.loop).result(120)
    assert studio.twin.loaded.model.sampling.temperature == 0.5
    assert studio.twin.worker.restarted == [] and len(studio.service.worker.restarted) == 1
    studio.unload()
    studio.settle()
    studio.load()
    taken_on = studio.service.loader.settings["twin"]
    assert taken_on.max_model_len == studio.service.office.tuning.settings.max_model_len == 4096
    assert (taken_on.kv_cache_gib, taken_on.temperature, taken_on.model_dir) == (0.25, 0.5, str(VOICE))


def test_longer_requests_than_a_model_reads_are_not_asked_of_it(start_service) -> None:
    studio = start(start_service, "--load-models", "false", "--max-model-len", "8192")
    studio.load()
    assert (
        studio.service.loader.settings["twin"].max_model_len == 4096
    )  # as the embedded voice's config.json says


def test_models_of_the_settings_are_loaded_at_the_start(start_service) -> None:
    studio = start(start_service)
    studio.service.until(lambda: studio.service.office.desk.monitor_of("twin") is not None)
    assert studio.speak().status_code == 200


def test_condition_of_a_listening_test_may_name_its_model(studio: Studio) -> None:
    studio.load()
    offered = studio.http.get("/v1/listening/settings").json()["request"]
    assert [row["choices"] for row in offered if row["name"] == "model"] == [["fake-model", "twin"]]

    def create(*sources: dict[str, object]) -> httpx.Response:
        spoken = [{"kind": "speech", "voice": "Ada", **source} for source in sources]
        conditions = [{"name": f"c{number}", "source": source} for number, source in enumerate(spoken)]
        body = {"kind": "abx", "title": "Two models", "texts": [TEXT], "conditions": conditions}
        return studio.http.post("/v1/listening/tests", json=body)

    made = create({"settings": {"model": "twin"}}, {}).json()
    sources = [condition["source"] for condition in made["design"]["conditions"]]
    assert [source["settings"] for source in sources] == [{"model": "twin"}, {"model": "fake-model"}]
    test = f"/v1/listening/tests/{made['id']}"
    studio.http.post(f"{test}/make").raise_for_status()
    studio.service.until(lambda: bool(studio.twin.lm.prompts and studio.service.lm.prompts))
    other = create({"settings": {"model": "twin"}, "studio": {"flow_steps": 6}}, {})
    assert other.status_code == 400 and "fake-model" in refusal(other)[2]
    unknown = create({"settings": {"model": "nobody"}}, {})
    assert (
        refusal(unknown)[:2] == (404, "model_not_found") and unknown.json()["error"]["param"] == "conditions"
    )
