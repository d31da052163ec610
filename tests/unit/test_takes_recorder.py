"""What was heard to its end becomes a take that can be voiced again; everything else leaves none."""

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

from studio.backends.fake import voice_prompt
from studio.engine.stream import SpeechStream
from studio.errors import InvalidRequest, SpeechLMError, StudioError
from studio.library.voice import Voice
from studio.speech import Sampling, SpokenRow, SynthesisRequest, VoicingRequest
from studio.takes.recorder import TakeRecorder, made_anew, voiced_again
from studio.takes.store import TakeStore

VOICE = Voice("v1", "Clara", "starter", "hello there", "en", "", "", "clip", 3.0, 0.0)
DRAWN = Sampling(seed=9, top_k=40)
REQUEST = SynthesisRequest("good morning", voice_prompt("anna"), DRAWN, "ada", speed=1.25, pitch=-2.0)


@pytest.fixture
def store(tmp_path: Path) -> TakeStore:
    return TakeStore(tmp_path, max_mb=10)


def stream_of(*chunks: int) -> SpeechStream:
    async def free() -> None:
        return None

    stream = SpeechStream("req1", lambda: None, free)
    stream.spoken = [SpokenRow([1, 2, 3]), SpokenRow([4], 0.5, 1.0)]
    for size in chunks:
        stream.push(np.full(size, 0.25, np.float32))
    return stream


async def test_take_is_there_when_the_stream_ends_and_gives_the_request_again(store: TakeStore) -> None:
    stream = stream_of(2400, 4800)
    TakeRecorder(store, "m").record(stream, REQUEST, VOICE)
    stream.finish()
    assert sum([len(chunk.samples) async for chunk in stream]) == 7200
    take = store.find("ada", "req1")
    assert (take.text, take.voice_name, take.model, take.audio_s) == ("good morning", "Clara", "m", 0.3)
    again = voiced_again(take, REQUEST.voice)
    assert list(again.rows) == stream.spoken and (again.seed, again.speed, again.pitch) == (9, 1.25, -2.0)
    assert (again.client, again.voice) == ("ada", REQUEST.voice)
    assert made_anew(take, REQUEST.voice, seed=10) == replace(REQUEST, sampling=replace(REQUEST.sampling, seed=10))


async def test_take_of_a_text_that_arrived_has_all_of_it(store: TakeStore) -> None:
    stream, arriving = stream_of(2400), replace(REQUEST, text="", interleaved=True)
    TakeRecorder(store, "m").record(stream, arriving, VOICE, lambda: replace(arriving, text="hello", read_as="helo"))
    stream.finish()
    assert [chunk async for chunk in stream]
    take = store.find("ada", "req1")
    assert take.text == "hello" and not take.is_conversion
    anew = made_anew(take, REQUEST.voice, seed=1)
    assert (anew.text, anew.read_as, anew.interleaved) == ("hello", "helo", False)


async def test_take_of_a_conversion_is_voiced_again_and_anew_with_another_seed(store: TakeStore) -> None:
    stream = stream_of(2400)
    asked = VoicingRequest((SpokenRow([5, 6]),), REQUEST.voice, 3, "ada", 0.5, 1.0)
    TakeRecorder(store, "m").record(stream, asked, VOICE)
    stream.finish()
    assert [chunk async for chunk in stream]
    take = store.find("ada", "req1")
    assert take.is_conversion and (take.text, take.seed) == ("", 3)
    again, anew = voiced_again(take, REQUEST.voice), made_anew(take, REQUEST.voice, seed=4)
    assert list(again.rows) == list(anew.rows) == stream.spoken
    assert [(r.seed, r.speed, r.pitch) for r in (again, anew)] == [(3, 0.5, 1.0), (4, 0.5, 1.0)]


async def test_stopped_and_failed_speech_leaves_no_take(store: TakeStore) -> None:
    recorder = TakeRecorder(store, "m")
    stopped, failed = stream_of(2400), stream_of(2400)
    recorder.record(stopped, REQUEST, VOICE)
    await anext(stopped)
    await stopped.aclose()
    recorder.record(failed, REQUEST, VOICE)
    failed.fail(SpeechLMError("internal"))
    with pytest.raises(StudioError):
        await anext(failed)
    assert store.search("ada") == []


async def test_listener_hears_all_even_if_the_take_cannot_be_kept(tmp_path: Path) -> None:
    store, stream = TakeStore(tmp_path, max_mb=1e-6), stream_of(2400)
    TakeRecorder(store, "m").record(stream, REQUEST, VOICE)
    stream.finish()
    assert len([chunk async for chunk in stream]) == 1 and store.search("ada") == []


async def test_listener_hears_all_even_if_the_disk_is_full(store: TakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise soundfile.LibsndfileError(2)  # a RuntimeError

    stream = stream_of(2400)
    monkeypatch.setattr(soundfile, "write", full)
    TakeRecorder(store, "m").record(stream, REQUEST, VOICE)
    stream.finish()
    assert len([chunk async for chunk in stream]) == 1 and store.search("ada") == []


async def test_history_can_be_switched_off(tmp_path: Path) -> None:
    store, stream = TakeStore(tmp_path, max_mb=0), stream_of(2400)
    TakeRecorder(store, "m").record(stream, REQUEST, VOICE)
    stream.finish()
    assert [chunk async for chunk in stream] and store.search("ada") == []


async def test_take_of_another_prompt_is_not_voiced_again(store: TakeStore) -> None:
    stream = stream_of(2400)
    take = await TakeRecorder(store, "m").keep(stream, np.zeros(960, np.float32), REQUEST, VOICE)
    with pytest.raises(InvalidRequest, match="another clip"):
        voiced_again(take, voice_prompt("berta"))
    assert await asyncio.to_thread(store.samples, take) is not None
