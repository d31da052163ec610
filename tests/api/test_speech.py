"""POST /v1/audio/speech as clients use it: the official SDK, plain streams, and listeners who leave."""

from __future__ import annotations

import asyncio
import io
import socket

import httpx
import numpy as np
import openai
import pytest
import soundfile

from studio.backends.fake import Finish, Raise, Say, WaitFor
from studio.engine.engine import EngineLimits
from studio.errors import SpeechLMError

WORDS = "one two three four"
SAMPLES = 4 * 5 * 960
"""The scripted LM gives 5 tokens a word."""


def body(**changes: object) -> dict[str, object]:
    return {"input": WORDS, "voice": "Ada", "response_format": "pcm"} | changes


def sdk(service) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{service.url}/v1", api_key="any", max_retries=0)


def test_sdk_streams_pcm_with_the_exact_samples(service) -> None:
    with sdk(service).audio.speech.with_streaming_response.create(
        model="fake-model", voice="Ada", input=WORDS, response_format="pcm"
    ) as reply:
        data = b"".join(reply.iter_bytes())
        assert reply.headers["content-type"] == "audio/pcm" and reply.headers["x-sample-rate"] == "24000"
    assert len(data) == 2 * SAMPLES and np.frombuffer(data, "<i2").any()


@pytest.mark.parametrize("audio_format", ["wav", "flac", "mp3", "opus"])
def test_every_format_holds_the_whole_speech(service, audio_format: str) -> None:
    reply = sdk(service).audio.speech.create(model="", voice="Ada", input=WORDS, response_format=audio_format)
    data = reply.read()
    if audio_format == "wav":
        assert data[:4] == b"RIFF" and data.count(b"RIFF") == 1 and len(data) == 44 + 2 * SAMPLES
        return
    samples, rate_hz = soundfile.read(io.BytesIO(data))
    assert abs(len(samples) / rate_hz - SAMPLES / 24000) < 0.1


def test_aac_is_a_file_that_ffmpeg_reads_back(service) -> None:
    from studio.audio.decode import decode_clip

    data = httpx.post(
        f"{service.url}/v1/audio/speech", json=body(response_format="aac", input=WORDS * 3)
    ).content
    assert decode_clip(data).seconds > 1.0


def test_voice_is_found_by_name_in_any_case_by_id_and_by_object(service) -> None:
    voice = service.store.find("Ada")
    for name in ("Ada", "ADA", voice.id, {"id": voice.id}):
        reply = httpx.post(f"{service.url}/v1/audio/speech", json=body(voice=name))
        assert (reply.status_code, len(reply.content)) == (200, 2 * SAMPLES), name


def test_seed_of_the_take_is_told_and_used(service) -> None:
    assert httpx.post(f"{service.url}/v1/audio/speech", json=body(seed=7)).headers["x-seed"] == "7"
    drawn = httpx.post(f"{service.url}/v1/audio/speech", json=body()).headers["x-seed"]
    assert [s.seed for s in service.lm.samplings] == [7, int(drawn)]


@pytest.mark.parametrize(
    ("changes", "status", "param"),
    [
        ({"input": ""}, 400, "input"),
        ({"input": " \n "}, 400, "input"),
        ({"input": "?! ..."}, 400, "input"),
        ({"input": "x" * 201}, 400, "input"),
        ({"input": None}, 400, "input"),
        ({"voice": "Nobody"}, 404, "voice"),
        ({"voice": ""}, 400, "voice"),
        ({"voice": "../../etc/passwd"}, 404, "voice"),
        ({"response_format": "midi"}, 400, "response_format"),
        ({"speed": 5.0}, 400, "speed"),
        ({"speed": 0}, 400, "speed"),
        ({"quality": "perfect"}, 400, "quality"),
        ({"input": "one [pause forever] two"}, 400, "input"),
        ({"seed": -1}, 400, "seed"),
        ({"seed": 2**40}, 400, "seed"),
        ({"seed": "x"}, 400, "seed"),
        ({"top_p": 3.0}, 400, "top_p"),
        ({"top_k": 0}, 400, "top_k"),
        ({"voise": "Ada"}, 400, "voise"),
        ({"stream_format": "socket"}, 400, "stream_format"),
    ],
)
def test_bad_request_is_told_before_any_work(service, changes, status: int, param: str) -> None:
    reply = httpx.post(f"{service.url}/v1/audio/speech", json=body(**changes))
    error = reply.json()["error"]
    assert (reply.status_code, error["param"]) == (status, param) and error["message"] and error["code"]
    assert not service.lm.prompts and service.is_idle()


def test_missing_field_and_broken_json_use_the_same_envelope(service) -> None:
    missing = httpx.post(f"{service.url}/v1/audio/speech", json={"voice": "Ada"})
    broken = httpx.post(
        f"{service.url}/v1/audio/speech", content=b"{", headers={"Content-Type": "application/json"}
    )
    assert (missing.status_code, missing.json()["error"]["param"]) == (400, "input")
    assert (broken.status_code, broken.json()["error"]["type"]) == (400, "invalid_request_error")


def test_messages_come_in_the_language_that_the_client_accepts(service) -> None:
    chinese = httpx.post(
        f"{service.url}/v1/audio/speech", json=body(input=""), headers={"Accept-Language": "zh-CN,zh;q=0.9"}
    )
    assert "没有要朗读的文字" in chinese.json()["error"]["message"]


def test_sdk_raises_its_own_error_for_an_unknown_voice(service) -> None:
    with pytest.raises(openai.NotFoundError, match="Nobody") as caught:
        sdk(service).audio.speech.create(model="", voice="Nobody", input=WORDS)
    assert caught.value.code == "voice_not_found"


def test_full_line_is_429_with_retry_after_and_nothing_started(start_service, tmp_path) -> None:
    service = start_service(limits=EngineLimits(max_running=1, queue_size=0, max_per_client=9))
    service.store.add(np.ones(48000, np.float32), 24000, "hello", name="Ada")
    go = asyncio.Event()
    bob = service.store.add(np.full(48000, 0.5, np.float32), 24000, "hello", name="Bob")
    service.lm.enqueue(Say(60), WaitFor(go), Finish())
    with httpx.stream("POST", f"{service.url}/v1/audio/speech", json=body(), timeout=120) as first:
        refused = httpx.post(f"{service.url}/v1/audio/speech", json=body(voice="Bob"))
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "queue_full")
        assert int(refused.headers["retry-after"]) >= 1
        service.in_loop(go.set)
        assert len(first.read()) == 2 * 60 * 960
    assert len(service.lm.prompts) == 1 and not list(tmp_path.glob(f"prompts/*/{bob.clip}*"))


def test_broken_characters_are_told_in_a_reply_that_can_be_read(service) -> None:
    for sent, param in (
        (r'{"input": "hello", "voice": "\ud800"}', "voice"),
        (r'{"input": "hello", "voice": {"id": "Ada\udfff"}}', "voice"),
        (r'{"input": "hello", "voice": "Ada", "response_format": "\ud800"}', "response_format"),
        (r'{"input": "\ud800", "voice": "Ada"}', "input"),
        (r'{"input": "hello", "voice": "Ada", "\ud800": 1}', "body"),
    ):
        headers = {"Content-Type": "application/json"}
        reply = httpx.post(f"{service.url}/v1/audio/speech", content=sent, headers=headers)
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, param), sent


def test_engine_that_is_not_ready_is_503_and_says_how_long(service) -> None:
    service.in_loop(lambda: service.worker.to("starting", "stage.weights"))
    reply = httpx.post(f"{service.url}/v1/audio/speech", json=body())
    assert (reply.status_code, reply.json()["error"]["code"], reply.headers["retry-after"]) == (
        503,
        "engine_not_ready",
        "12",
    )
    health = httpx.get(f"{service.url}/health")
    assert health.status_code == 503 and health.json()["workers"][0]["text"] == "loading the weights"


def test_failure_before_the_first_sound_has_its_status(service) -> None:
    service.lm.enqueue(Raise(SpeechLMError("speech.lm_failed", reason="scripted")))
    reply = httpx.post(f"{service.url}/v1/audio/speech", json=body())
    assert (reply.status_code, reply.json()["error"]["code"]) == (500, "speech_lm_failed")
    service.until(service.is_idle)


def test_failure_in_the_middle_breaks_the_stream_and_never_shortens_it(service) -> None:
    service.lm.enqueue(Say(60), Raise(SpeechLMError("speech.lm_failed", reason="scripted")))
    with (
        pytest.raises(httpx.RemoteProtocolError),
        httpx.stream("POST", f"{service.url}/v1/audio/speech", json=body()) as reply,
    ):
        assert reply.status_code == 200
        reply.read()
    service.until(service.is_idle)


def test_worker_death_in_the_middle_breaks_the_stream(service) -> None:
    service.lm.enqueue(Say(60), WaitFor(asyncio.Event()))
    with (
        pytest.raises(httpx.RemoteProtocolError),
        httpx.stream("POST", f"{service.url}/v1/audio/speech", json=body(), timeout=120) as reply,
    ):
        service.in_loop(lambda: service.worker.to("restarting", "stage.restarting"))
        reply.read()
    service.until(service.is_idle)


def test_leaving_in_the_middle_frees_everything(service) -> None:
    service.lm.enqueue(Say(60), WaitFor(asyncio.Event()))
    with httpx.stream("POST", f"{service.url}/v1/audio/speech", json=body(), timeout=120) as reply:
        next(reply.iter_raw())
    service.until(service.is_idle)
    assert list(service.lm.ended.values()) == ["cancelled"]


def test_leaving_before_the_first_sound_frees_everything(service) -> None:
    service.lm.enqueue(WaitFor(asyncio.Event()))
    host, port = service.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as line:
        sent = b'{"input": "one two", "voice": "Ada", "response_format": "pcm"}'
        line.sendall(b"POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
        line.sendall(b"Content-Length: %d\r\n\r\n" % len(sent) + sent)
        service.until(lambda: bool(service.lm._running))
    service.until(service.is_idle)


def test_leaving_while_waiting_in_line_gives_the_place_back(start_service) -> None:
    service = start_service(limits=EngineLimits(max_running=1, queue_size=1, max_per_client=9))
    service.store.add(np.ones(48000, np.float32), 24000, "hello", name="Ada")
    go = asyncio.Event()
    service.lm.enqueue(Say(60), WaitFor(go), Finish())
    with httpx.stream("POST", f"{service.url}/v1/audio/speech", json=body(), timeout=120) as first:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{service.url}/v1/audio/speech", json=body(), timeout=httpx.Timeout(10, read=0.5))
        service.until(lambda: service.engine.state().waiting == 0)
        service.in_loop(go.set)
        first.read()
    service.until(service.is_idle)


def test_two_voices_at_once_keep_their_own_sound(service) -> None:
    service.store.add(np.full(72000, 0.1, np.float32), 24000, "another", name="Bob")
    url = f"{service.url}/v1/audio/speech"
    alone = {name: httpx.post(url, json=body(voice=name)).content for name in ("Ada", "Bob")}

    async def both() -> list[bytes]:
        async with httpx.AsyncClient(timeout=120) as client:
            replies = await asyncio.gather(
                *(client.post(url, json=body(voice=name)) for name in ("Ada", "Bob") * 3)
            )
        return [reply.content for reply in replies]

    assert asyncio.run(both()) == [alone["Ada"], alone["Bob"]] * 3
    assert alone["Ada"] != alone["Bob"]
