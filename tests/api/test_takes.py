"""A caller's history over HTTP, on the scripted engine: what is heard is kept, found, compared, replayed, restored."""

from __future__ import annotations

import asyncio
import io
import json

import httpx
import numpy as np
import pytest
import soundfile

from studio.backends.fake import Raise, Say
from studio.errors import SpeechLMError
from studio.takes.card import read_card
from tests.api.conftest import Service, Start, clip_bytes
from tests.api.test_arriving_text import heard, session, told, write


@pytest.fixture
def http(service: Service) -> httpx.Client:
    """One person's browser: it has the page's cookie."""
    return person(service)


def person(service: Service) -> httpx.Client:
    client = httpx.Client(base_url=service.url, timeout=120)
    client.get("/")
    assert "studio_session" in client.cookies
    return client


def speak(http: httpx.Client, text: str, **more: object) -> str:
    """The id of the take that speaking makes."""
    body = {"input": text, "voice": "Ada", "response_format": "pcm", **more}
    reply = http.post("/v1/audio/speech", json=body)
    assert reply.status_code == 200, reply.text
    return reply.headers["X-Request-Id"]


def listed(http: httpx.Client, **query: object) -> list[str]:
    reply = http.get("/v1/audio/takes", params=query)
    return [take["text"] for take in reply.json()["data"]]


def test_takes_history_per_user_with_search_and_star(service: Service, http: httpx.Client) -> None:
    other = person(service)
    lighthouse = speak(http, "The old lighthouse", seed=5)
    speak(http, "Good morning")
    speak(other, "Somebody else")
    assert listed(http) == ["Good morning", "The old lighthouse"]
    assert listed(other) == ["Somebody else"]
    assert listed(http, q="LIGHT") == ["The old lighthouse"]
    assert other.get(f"/v1/audio/takes/{lighthouse}/audio").status_code == 404
    starred = http.post(f"/v1/audio/takes/{lighthouse}/star", json={"starred": True}).json()
    assert starred["starred"] and starred["seed"] == 5
    assert listed(http, starred=True) == ["The old lighthouse"]
    assert http.delete(f"/v1/audio/takes/{lighthouse}").json()["deleted"]
    assert listed(http) == ["Good morning"]


def test_take_is_there_when_the_reply_ends_and_sounds_as_it_was_heard(http: httpx.Client) -> None:
    body = {"input": "one two three", "voice": "Ada", "response_format": "pcm"}
    reply = http.post("/v1/audio/speech", json=body)
    heard = np.frombuffer(reply.content, "<i2")
    take = http.get(f"/v1/audio/takes/{reply.headers['X-Request-Id']}").json()
    assert take["seconds"] == len(heard) / 24000 and str(take["seed"]) == reply.headers["X-Seed"]
    file = http.get(f"/v1/audio/takes/{take['id']}/audio")
    assert np.array_equal(soundfile.read(io.BytesIO(file.content), dtype="int16")[0], heard)
    assert file.headers["content-type"] == "audio/wav"


def test_stopped_and_broken_speech_leaves_no_take(service: Service, http: httpx.Client) -> None:
    service.lm.enqueue(Say(60), Raise(SpeechLMError("speech.lm_failed", reason="x")))
    with pytest.raises(httpx.RemoteProtocolError):
        speak(http, "this one breaks")
    assert listed(http) == []


def test_audition_is_heard_and_leaves_no_take(service: Service, http: httpx.Client) -> None:
    speak(http, "how do I sound", keep_take=False)
    with session(service, f"studio_session={http.cookies['studio_session']}", keep_take=False) as socket:
        write(socket, "And how do I sound now?")
        write(socket, None)
        heard(socket)
    assert listed(http) == []
    speak(http, "this one counts", keep_take=True)
    assert listed(http) == ["this one counts"]


def test_takes_exact_replay_from_stored_tokens(service: Service, http: httpx.Client) -> None:
    take = speak(http, "one two three", seed=3)
    asked = len(service.lm.prompts)
    kept = http.get(f"/v1/audio/takes/{take}/audio").content
    again = http.post(f"/v1/audio/takes/{take}/replay")
    assert again.status_code == 200 and again.headers["X-Replay-Difference"] == "0"
    sound = [soundfile.read(io.BytesIO(data), dtype="int16")[0] for data in (kept, again.content)]
    assert np.array_equal(*sound) and len(service.lm.prompts) == asked
    assert listed(http) == ["one two three"]  # a replay is no new take


async def test_replay_whose_listener_has_left_frees_its_place(service: Service, http: httpx.Client) -> None:
    take = speak(http, "one two three")
    service.in_loop(service.token2wav.gate.clear)
    try:
        async with httpx.AsyncClient(base_url=service.url, cookies=http.cookies, timeout=120) as browser:
            replaying = asyncio.create_task(browser.post(f"/v1/audio/takes/{take}/replay"))
            await asyncio.to_thread(service.until, lambda: service.engine.state().running == 1)
            replaying.cancel()
            await asyncio.to_thread(service.until, lambda: service.engine.state().running == 0)
    finally:
        service.in_loop(service.token2wav.gate.set)
    service.until(service.is_idle)


def test_converted_clip_is_a_take_with_exact_replay_and_its_settings_in_files(http: httpx.Client) -> None:
    form = {"voice": "Ada", "seed": 6, "speed": 1.5, "pitch": -2, "response_format": "pcm"}
    reply = http.post("/v1/audio/conversions", data=form, files={"audio_sample": clip_bytes(3.0)})
    take = http.get(f"/v1/audio/takes/{reply.headers['X-Request-Id']}").json()
    assert (take["kind"], take["text"], take["seed"], take["voice"]["name"]) == ("conversion", "", 6, "Ada")
    file = http.get(f"/v1/audio/takes/{take['id']}/audio").content
    heard = np.frombuffer(reply.content, "<i2")
    assert np.array_equal(soundfile.read(io.BytesIO(file), dtype="int16")[0], heard)
    again = http.post(f"/v1/audio/takes/{take['id']}/replay")
    assert again.status_code == 200 and again.headers["X-Replay-Difference"] == "0"
    beside = http.get(f"/v1/audio/takes/{take['id']}/settings").json()
    kept = {"text": "", "mode": "conversion", "sampling": {"seed": 6}, "speed": 1.5, "pitch": -2.0}
    assert read_card(file)["request"] == beside["request"] == kept


def test_more_takes_of_a_converted_clip_are_converted_with_other_seeds(service: Service, http: httpx.Client) -> None:
    reply = http.post("/v1/audio/conversions", data={"voice": "Ada"}, files={"audio_sample": clip_bytes(3.0)})
    service.ears.enqueue("what the clip says", "what the clip says")
    found = http.post(f"/v1/audio/takes/{reply.headers['X-Request-Id']}/best", json={"takes": 1}).json()
    assert len({take["seed"] for take in found["takes"]}) == 2 and not service.lm.prompts
    assert all("a converted clip has no text" in take["summary"] for take in found["takes"])
    assert not any(take["marks"] for take in found["takes"])
    kinds = [take["kind"] for take in http.get("/v1/audio/takes").json()["data"]]
    assert kinds == ["conversion", "conversion"]


@pytest.mark.parametrize("interleaved", [False, True])
def test_text_that_arrived_in_parts_is_a_take_with_exact_replay(
    service: Service, http: httpx.Client, interleaved: bool
) -> None:
    word = http.post("/v1/audio/pronunciations", json={"word": "second", "said": "seconnd"}).json()
    parts = ["The first sentence is whole and long enough. [pause 0.5s]", " And the sec", "ond one ends the text. "]
    config = {"seed": 8, "speed": 1.25, "interleaved": interleaved}
    with session(service, f"studio_session={http.cookies['studio_session']}", **config) as socket:
        for text in (*parts, None):
            write(socket, text)
        messages, _ = heard(socket)
    http.delete(f"/v1/audio/pronunciations/{word['id']}")
    [take] = http.get("/v1/audio/takes").json()["data"]
    assert (take["text"], take["seed"], take["kind"]) == ("".join(parts), 8, "speech")
    assert take["id"] == messages[0]["request_id"] and take["request"]["interleaved"] is interleaved
    assert "seconnd" in take["request"]["read_as"]
    file = http.get(f"/v1/audio/takes/{take['id']}/audio").content
    sound = np.frombuffer(b"".join(m for m in messages if isinstance(m, bytes)), "<i2")
    assert np.array_equal(soundfile.read(io.BytesIO(file), dtype="int16")[0], sound)
    assert read_card(file)["request"] == take["request"]
    again = http.post(f"/v1/audio/takes/{take['id']}/replay")
    assert again.status_code == 200 and again.headers["X-Replay-Difference"] == "0"


def test_text_that_never_ended_leaves_no_take(service: Service, http: httpx.Client) -> None:
    with session(service, f"studio_session={http.cookies['studio_session']}") as socket:
        write(socket, "This sentence is whole and long enough. And")
        told(socket)
    service.until(service.is_idle)
    assert listed(http) == []


def test_replay_with_a_voice_that_is_gone_says_so_and_the_sound_stays(service: Service, http: httpx.Client) -> None:
    take = speak(http, "one two three")
    service.in_loop(lambda: service.store.delete("Ada"))
    refused = http.post(f"/v1/audio/takes/{take}/replay")
    assert refused.status_code == 404 and "no voice" in refused.json()["error"]["message"]
    assert http.get(f"/v1/audio/takes/{take}/audio").status_code == 200


@pytest.mark.parametrize("audio_format", ["wav", "flac", "opus", "mp3"])
def test_takes_settings_are_written_into_the_file_and_read_back(http: httpx.Client, audio_format: str) -> None:
    take = speak(http, "“Quoted” und 你好", seed=11, top_k=30)
    file = http.get(f"/v1/audio/takes/{take}/audio", params={"format": audio_format})
    assert file.headers["content-disposition"].startswith('attachment; filename="Ada_')
    read = http.post("/v1/audio/takes/read", content=file.content).json()
    beside = http.get(f"/v1/audio/takes/{take}/settings")
    assert ".settings.json" in beside.headers["content-disposition"]
    assert read["request"] == beside.json()["request"] == read_card(file.content)["request"]
    assert read["request"]["text"] == "“Quoted” und 你好"
    assert read["request"]["sampling"]["seed"] == 11 and read["request"]["sampling"]["top_k"] == 30
    assert read["voice_here"]["name"] == "Ada"
    assert http.post("/v1/audio/takes/read", content=json.dumps(beside.json(), indent=1)).json() == read


def test_file_without_settings_is_refused_with_what_would_have_them(http: httpx.Client) -> None:
    for data in (b"", b"RIFF....WAVE", b"\xff" * 300_000):
        refused = http.post("/v1/audio/takes/read", content=data)
        assert refused.status_code == 400
        assert "wav, flac, opus or mp3" in refused.json()["error"]["message"]


def test_takes_retention_is_a_setting_with_its_size_shown(start_service: Start) -> None:
    service = start_service("--takes-max-mb", "0.06")
    service.in_loop(service.forget)
    http = person(service)
    for number in range(12):
        speak(http, f"number {number} of the twelve that are spoken here in turn")
    reply = http.get("/v1/audio/takes").json()
    usage = reply["usage"]
    assert usage["limit_bytes"] == 60_000 and usage["takes"] == len(reply["data"]) < 12
    assert usage["own_bytes"] == usage["all_bytes"] == sum(take["bytes"] for take in reply["data"]) <= 60_000
    assert reply["data"][0]["text"].startswith("number 11")


def test_star_beyond_a_client_s_share_is_refused_with_what_to_do(start_service: Start) -> None:
    service = start_service("--takes-max-mb", "0.25")
    service.in_loop(service.forget)
    http = person(service)
    take = speak(http, " ".join(["a"] * 80))
    usage = http.get("/v1/audio/takes").json()["usage"]
    assert usage["own_kept_bytes"] == 0 and 125_000 == usage["own_kept_limit_bytes"] < usage["own_bytes"]
    refused = http.post(f"/v1/audio/takes/{take}/star", json={"starred": True})
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "take"
    assert "delete takes or a script first" in refused.json()["error"]["message"]
    chinese = {"Accept-Language": "zh"}
    told = http.post(f"/v1/audio/takes/{take}/star", json={"starred": True}, headers=chinese).json()["error"]
    assert "请先取消加星" in told["message"] and not http.get(f"/v1/audio/takes/{take}").json()["starred"]


def test_takes_survive_a_restart(start_service: Start) -> None:
    first = start_service()
    first.in_loop(first.forget)
    http = person(first)
    take = speak(http, "still here")
    second = start_service()
    again = httpx.get(f"{second.url}/v1/audio/takes/{take}", cookies=dict(http.cookies))
    assert again.json()["text"] == "still here"
