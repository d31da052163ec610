"""What was heard to its end becomes a take that can be voiced again; everything else leaves none."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
import soundfile

from studio.backends.fake import voice_prompt
from studio.engine.stream import SpeechStream
from studio.errors import InvalidRequest, SpeechLMError, StudioError
from studio.library.voice import Voice
from studio.speech import Sampling, SynthesisRequest
from studio.takes.recorder import TakeRecorder, request_again
from studio.takes.store import TakeStore

VOICE = Voice("v1", "Clara", "starter", "hello there", "en", "", "", "clip", 3.0, 0.0)
REQUEST = SynthesisRequest("good morning", voice_prompt("anna"), Sampling(seed=9, top_k=40), "ada")


@pytest.fixture
def store(tmp_path: Path) -> TakeStore:
    return TakeStore(tmp_path, max_mb=10)


def stream_of(*chunks: int) -> SpeechStream:
    async def free() -> None:
        return None

    stream = SpeechStream("req1", lambda: None, free)
    stream.spoken = [[1, 2, 3], [4]]
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
    again = request_again(take, REQUEST.voice)
    assert again.spoken == ((1, 2, 3), (4,)) and again.sampling == REQUEST.sampling
    assert (again.text, again.client, again.voice) == (REQUEST.text, "ada", REQUEST.voice)


async def test_stopped_failed_and_replayed_speech_leaves_no_take(store: TakeStore) -> None:
    recorder = TakeRecorder(store, "m")
    stopped, failed, replayed = stream_of(2400), stream_of(2400), stream_of(2400)
    recorder.record(stopped, REQUEST, VOICE)
    await anext(stopped)
    await stopped.aclose()
    recorder.record(failed, REQUEST, VOICE)
    failed.fail(SpeechLMError("internal"))
    with pytest.raises(StudioError):
        await anext(failed)
    again = SynthesisRequest("good morning", REQUEST.voice, client="ada", spoken=((1,),))
    recorder.record(replayed, again, VOICE)
    replayed.finish()
    assert [chunk async for chunk in replayed] and store.search("ada") == []


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
        request_again(take, voice_prompt("berta"))
    assert await asyncio.to_thread(store.samples, take) is not None
