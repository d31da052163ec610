"""Requests on scripted models: what a listener hears, who goes first, and that nothing stays behind."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import weakref
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from studio.audio.stretch import stretched_samples
from studio.backends.fake import (
    Finish,
    Raise,
    Say,
    WaitFor,
    WordFrontend,
    pitch_hz,
    sine,
    voice_prompt,
    word_ids,
)
from studio.engine.engine import EngineLimits
from studio.engine.rates import LEAST_PREBUFFER_S
from studio.engine.stats import FirstStep
from studio.engine.utterance import SEGMENT_PAUSE_S
from studio.errors import (
    EngineDead,
    EngineDraining,
    EngineNotReady,
    NoSpeech,
    QueueFull,
    RequestAborted,
    RunawaySpeech,
    SpeechLMError,
    StudioError,
    SynthesisError,
    Token2WavError,
)
from studio.speech import TOKEN_RATE_HZ, Segment, SynthesisRequest, VoicingRequest
from tests.engine.conftest import Stage, read_all

PAUSE_SAMPLES = 3600


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0)


async def test_sound_is_whole_in_order_and_exact(stage: Stage) -> None:
    stage.lm.enqueue(Say(90), Finish())
    async with await stage.submit(voice="anna") as stream:
        chunks = [chunk async for chunk in stream]
    assert [chunk.index for chunk in chunks] == list(range(len(chunks))) and len(chunks) > 1
    samples = np.concatenate([chunk.samples for chunk in chunks])
    assert np.array_equal(samples, sine(pitch_hz(voice_prompt("anna")), 0, 90 * 960))


async def test_first_sound_needs_28_tokens_and_nothing_more(stage: Stage) -> None:
    rest = asyncio.Event()
    stage.lm.enqueue(Say(28), WaitFor(rest), Say(10), Finish())
    async with await stage.submit() as stream:
        first = await anext(stream)
        assert 0 < len(first.samples) <= 25 * 960
        rest.set()
        assert len(first.samples) + sum([len(c.samples) async for c in stream]) == 38 * 960


async def test_segments_are_heard_in_order_with_a_pause_between(stage: Stage) -> None:
    for tokens in (40, 30, 50):
        stage.lm.enqueue(Say(tokens), Finish())
    samples = await read_all(await stage.submit("one two. three four. five six"))
    assert len(samples) == (40 + 30 + 50) * 960 + 2 * PAUSE_SAMPLES
    pitch = pitch_hz(voice_prompt("anna"))
    second = 40 * 960 + PAUSE_SAMPLES
    assert not samples[40 * 960 : second].any()
    assert np.array_equal(samples[second : second + 30 * 960], sine(pitch, 0, 30 * 960))
    assert samples[:10].any() and samples[-10:].any()


class Paused(WordFrontend):
    """The segments that the test gives, whatever the text."""

    def __init__(self, *segments: Segment) -> None:
        self._given = segments

    def segments(self, text: str) -> tuple[Segment, ...]:
        return self._given


@pytest.mark.parametrize("speed", [1.0, 1.25, 0.8])
async def test_pauses_that_a_text_asks_for_are_exact_in_samples(make_stage, speed: float) -> None:
    """Whatever the speed: only speech is made faster or slower, and its length is exact too."""
    stage = make_stage(
        Paused(Segment("one", (1,), pause_s=0.25), Segment("two", (2,), pause_s=0.5, pause_after_s=1.0))
    )
    await stage.engine.start()
    for tokens in (40, 30):
        stage.lm.enqueue(Say(tokens), Finish())
    samples = await read_all(await stage.submit(speed=speed))
    one, two = (stretched_samples(tokens * 960, speed) for tokens in (40, 30))
    ends = np.cumsum([6000, one, 12_000, two, 24_000])
    assert len(samples) == ends[-1]
    silent = [not samples[start:end].any() for start, end in pairwise([0, *ends])]
    assert silent == [True, False, True, False, True]
    for start, end in ((ends[0], ends[1]), (ends[2], ends[3])):
        assert samples[start : start + 100].any() and samples[end - 720 : end].any()


async def test_speed_changes_what_the_player_is_told_to_hold(stage: Stage) -> None:
    await read_all(await stage.submit())
    held = {}
    for speed in (0.5, 1.0, 2.0):
        async with await stage.submit("word " * 200, speed=speed) as stream:
            held[speed] = stream.prebuffer_s
    assert held[0.5] <= held[1.0] < held[2.0]


async def test_next_segments_tokens_run_ahead_by_one_segment_only(stage: Stage) -> None:
    stage.token2wav.gate.clear()
    async with await stage.submit("one. two. three. four") as stream:
        while len(stage.lm.prompts) < 2:
            await asyncio.sleep(0)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(stage.lm.prompts) == 2
        stage.token2wav.gate.set()
        async for _ in stream:
            pass
    assert len(stage.lm.prompts) == 4


async def test_each_segment_gets_its_own_seed_from_the_requests(stage: Stage) -> None:
    await read_all(await stage.submit("one. two", seed=2**32 - 1))
    assert [s.seed for s in stage.lm.samplings] == [2**32 - 1, 0]


async def test_lm_reads_prompt_text_then_this_segment(stage: Stage) -> None:
    await read_all(await stage.submit("one two. three"))
    assert [len(p.text_ids) for p in stage.lm.prompts] == [2, 1]
    assert {len(p.prompt_text_ids) for p in stage.lm.prompts} == {2}
    assert {len(p.speech_tokens) for p in stage.lm.prompts} == {75}


@pytest.mark.parametrize("past_the_line", [False, True])
async def test_text_is_read_by_the_rules_of_its_language(stage: Stage, past_the_line: bool) -> None:
    begin = stage.engine.try_out if past_the_line else stage.engine.submit
    await read_all(await begin(SynthesisRequest("chapter 3", voice_prompt("anna"), language="de")))
    assert [prompt.text_ids for prompt in stage.lm.prompts] == [word_ids("chapter 3", "de")]


async def test_token_hop_restarts_for_each_request(stage: Stage) -> None:
    """Upstream kept the hop on the model: later listeners waited for 100 tokens (CosyVoice#1849)."""
    for _ in range(2):
        stage.lm.enqueue(Say(300, delta_tokens=300), Finish())
        stage.token2wav.steps.clear()
        await read_all(await stage.submit())
        assert [step[0].tokens.size for step in stage.token2wav.steps] == [25, 25, 25, 50, 100, 75]


async def test_two_voices_at_once_never_mix(stage: Stage) -> None:
    for _ in range(2):
        stage.lm.enqueue(Say(130), Finish())
    stage.token2wav.gate.clear()
    streams = [await stage.submit(voice=voice) for voice in ("anna", "ben")]
    while (await stage.token2wav.stats()).rows_open < 2:
        await asyncio.sleep(0)
    stage.token2wav.gate.set()
    anna, ben = await asyncio.gather(*(read_all(stream) for stream in streams))
    assert np.array_equal(anna, sine(pitch_hz(voice_prompt("anna")), 0, 130 * 960))
    assert np.array_equal(ben, sine(pitch_hz(voice_prompt("ben")), 0, 130 * 960))
    assert any(len(step) == 2 for step in stage.token2wav.steps)


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ((Say(60), Raise(SpeechLMError("speech.lm_failed", reason="x"))), SpeechLMError),
        ((Say(60), Finish(None)), SpeechLMError),
        ((Say(60), Finish("length")), RunawaySpeech),
        ((Finish(),), NoSpeech),
        ((Say(60), Raise(ZeroDivisionError("a bug"))), SynthesisError),
        ((Say(60), Raise(EngineDead("engine.dead", seconds=3.0))), EngineDead),
    ],
)
async def test_lm_error_reaches_the_listener_at_once_and_frees_all(
    stage: Stage, script: tuple[Say | Raise | Finish, ...], error: type[StudioError]
) -> None:
    """Upstream's consumer spins for ever when the LM's thread fails (CosyVoice#1869). The clock stands still here."""
    stage.lm.enqueue(*script)
    with pytest.raises(error):
        await read_all(await stage.submit(quality="fast"))
    assert await stage.all_is_free() and stage.clock.now_s == 0
    stage.lm.enqueue(Say(30), Finish())
    assert len(await read_all(await stage.submit())) == 30 * 960


async def test_error_of_a_later_segment_does_not_wait_for_the_earlier_to_be_heard(stage: Stage) -> None:
    stage.token2wav.gate.clear()
    stage.lm.enqueue(Say(60), Finish())
    stage.lm.enqueue(Raise(SpeechLMError("speech.lm_failed", reason="x")))
    with pytest.raises(SpeechLMError):
        await read_all(await stage.submit("one. two"))


async def test_failing_row_ends_its_request_alone(stage: Stage) -> None:
    gates = [asyncio.Event(), asyncio.Event()]
    for gate in gates:
        stage.lm.enqueue(Say(28), WaitFor(gate), Say(40), Finish())
    bad, good = [await stage.submit(voice=voice) for voice in ("anna", "ben")]
    await anext(bad), await anext(good)
    stage.token2wav.fail("non-finite values")
    gates[0].set()
    with pytest.raises(Token2WavError, match="non-finite"):
        await read_all(bad)
    gates[1].set()
    assert len(await read_all(good)) > 0
    assert await stage.all_is_free()


async def test_token2wav_error_of_a_whole_step_ends_its_rows_and_not_the_loop(stage: Stage) -> None:
    stage.token2wav.fail(RuntimeError("a bug"))
    with pytest.raises(Token2WavError, match="a bug"):
        await read_all(await stage.submit())
    assert len(await read_all(await stage.submit())) > 0


async def test_listener_leaving_returns_everything_to_baseline(stage: Stage) -> None:
    stage.lm.enqueue(Say(28), WaitFor(asyncio.Event()))
    stream = await stage.submit()
    await anext(stream)
    assert not await stage.all_is_free()
    await stream.aclose()
    await stream.aclose()
    assert await stage.all_is_free()
    with pytest.raises(RequestAborted):
        await anext(stream)
    assert (await stage.engine.stats()).finished == {"aborted": 1}


async def test_closing_before_anything_began_frees_the_place(make_stage: Callable[..., Stage]) -> None:
    stage = make_stage(max_running=1)
    await stage.engine.start()
    for _ in range(3):
        await (await stage.submit()).aclose()
    assert await stage.all_is_free()
    assert len(await read_all(await stage.submit())) > 0


async def test_request_cancelled_while_waiting_leaves_the_line(make_stage: Callable[..., Stage]) -> None:
    stage = make_stage(max_running=1)
    await stage.engine.start()
    held = asyncio.Event()
    stage.lm.enqueue(WaitFor(held), Say(30), Finish())
    first, second, third = [await stage.submit() for _ in range(3)]
    assert [stage.engine.progress(s.request_id).position for s in (first, second, third)] == [0, 0, 1]
    await second.aclose()
    assert stage.engine.progress(third.request_id).position == 0 and stage.engine.state().waiting == 1
    held.set()
    assert len(await read_all(first)) == 30 * 960
    assert len(await read_all(third)) > 0
    assert len(stage.lm.prompts) == 2 and await stage.all_is_free()


async def test_full_queue_refuses_and_says_when_to_come_back(make_stage: Callable[..., Stage]) -> None:
    stage = make_stage(max_running=1, queue_size=1)
    await stage.engine.start()
    stage.lm.enqueue(WaitFor(asyncio.Event()))
    streams = [await stage.submit() for _ in range(2)]
    with pytest.raises(QueueFull) as caught:
        await stage.submit()
    assert caught.value.key == "queue.full" and (caught.value.retry_after_s or 0) >= 1
    for stream in streams:
        await stream.aclose()
    assert await stage.all_is_free()


async def test_one_client_cannot_take_all_places(make_stage: Callable[..., Stage]) -> None:
    stage = make_stage(max_running=4, max_per_client=2)
    await stage.engine.start()
    for _ in range(2):
        stage.lm.enqueue(WaitFor(asyncio.Event()))
    streams = [await stage.submit(client="greedy") for _ in range(2)]
    with pytest.raises(QueueFull) as caught:
        await stage.submit(client="greedy")
    assert caught.value.key == "queue.client_full"
    assert len(await read_all(await stage.submit(client="modest"))) > 0
    for stream in streams:
        await stream.aclose()


async def test_places_go_round_between_clients(make_stage: Callable[..., Stage]) -> None:
    stage = make_stage(max_running=1)
    await stage.engine.start()
    held = asyncio.Event()
    stage.lm.enqueue(WaitFor(held), Say(30), Finish())
    first = await stage.submit("zero", client="greedy")
    texts = {"one": "greedy", "two words": "greedy", "three small words": "greedy", "four is a word": "modest"}
    streams = [first, *[await stage.submit(text, client=client) for text, client in texts.items()]]
    held.set()
    await asyncio.gather(*(read_all(stream) for stream in streams))
    assert [len(prompt.text_ids) for prompt in stage.lm.prompts] == [1, 1, 4, 2, 3]


async def test_clips_are_waited_for_and_wait_while_workers_are_exchanged(stage: Stage) -> None:
    encoded: list[str] = []

    async def encode(client: str) -> None:
        async with stage.engine.encoder_turn(client):
            encoded.append(client)

    async with stage.engine.encoder_turn("anna"):
        holding = asyncio.create_task(stage.engine.hold(abort=False))
        waiting = asyncio.create_task(encode("bob"))
        await asyncio.wait({holding, waiting}, timeout=0)
        assert not holding.done()
    await holding
    assert encoded == []
    stage.engine.release()
    await waiting
    assert encoded == ["bob"]


async def test_clips_that_wait_while_workers_are_exchanged_are_not_left_behind_at_the_end(stage: Stage) -> None:
    async def encode() -> None:
        async with stage.engine.encoder_turn("bob"):
            await stage.engine.voice(VoicingRequest((), voice_prompt("anna")))

    await stage.engine.hold(abort=False)
    waiting = asyncio.create_task(encode())
    await asyncio.wait({waiting}, timeout=0)
    await stage.engine.close()
    with pytest.raises(EngineDraining):
        await asyncio.wait_for(waiting, 120)


async def test_slow_listener_does_not_slow_others_and_is_not_buffered_without_bound(
    make_stage: Callable[..., Stage],
) -> None:
    stage = make_stage(max_ahead_s=4.0)
    await stage.engine.start()
    for _ in range(2):
        stage.lm.enqueue(Say(1000, delta_tokens=50), Finish())
    slow, quick = [await stage.submit(voice=voice) for voice in ("anna", "ben")]
    assert len(await read_all(quick)) == 1000 * 960
    assert 4.0 <= slow.waiting_s <= 4.0 + 4.0
    assert len(await read_all(slow)) == 1000 * 960


async def test_listener_that_reads_nothing_is_dropped_after_the_limit(make_stage: Callable[..., Stage]) -> None:
    stage = make_stage(max_ahead_s=1.0, listener_timeout_s=60.0)
    await stage.engine.start()
    stage.lm.enqueue(Say(500), Finish())
    stream = await stage.submit()
    while stream.waiting_s <= 1.0:
        await asyncio.sleep(0)
    for _ in range(20):
        await asyncio.sleep(0)
    stage.clock.advance(61.0)
    for _ in range(20):
        await asyncio.sleep(0)
    assert await stage.all_is_free()
    with pytest.raises(RequestAborted, match="60 s"):
        await anext(stream)


async def test_death_mid_stream_is_told_and_the_next_life_serves(stage: Stage) -> None:
    lm_worker = stage.workers[0]
    stage.lm.enqueue(Say(28), WaitFor(asyncio.Event()))
    stream = await stage.submit()
    await anext(stream)
    lm_worker.to("restarting")
    with pytest.raises(EngineDead) as caught:
        await read_all(stream)
    assert caught.value.retry_after_s == 12.0
    with pytest.raises(EngineNotReady) as refused:
        await stage.submit()
    assert "loading the weights" in refused.value.message("en") and refused.value.retry_after_s == 12.0
    lm_worker.to("ready")
    assert await stage.all_is_free()
    assert len(await read_all(await stage.submit())) > 0
    assert (await stage.engine.stats()).finished == {"engine_restarting": 1, "stop": 1}


async def test_death_of_token2wav_in_a_step_ends_every_row(stage: Stage) -> None:
    for _ in range(2):
        stage.lm.enqueue(Say(28), WaitFor(asyncio.Event()))
    streams = [await stage.submit() for _ in range(2)]
    stage.token2wav.fail(EngineDead("engine.dead", seconds=1.0))
    for stream in streams:
        with pytest.raises(EngineDead):
            await read_all(stream)
    assert await stage.all_is_free()


async def test_state_says_which_worker_is_behind(stage: Stage) -> None:
    assert stage.engine.state().ready
    stage.workers[0].to("starting", "stage.importing", 0.2)
    stage.workers[1].to("starting", "stage.warming", 0.8)
    state = stage.engine.state()
    assert (state.ready, state.stage, state.fraction) == (False, "stage.importing", 0.5)
    stage.workers[1].to("failed", "stage.failed", reason="no memory")
    state = stage.engine.state()
    assert state.failed and state.stage == "stage.failed"
    with pytest.raises(EngineNotReady, match="no memory"):
        await stage.submit()


async def test_observers_hear_that_a_worker_is_ready_at_first_and_after_a_restart(stage: Stage) -> None:
    calls: list[bool] = []
    for worker in stage.workers:
        worker.to("starting", "stage.importing")
    stage.engine.on_ready(lambda: calls.append(stage.engine.state().ready))
    stage.workers[0].to("ready", "stage.ready")
    stage.workers[1].to("ready", "stage.ready")
    assert calls == [False, True]  # who needs one worker only need not wait for the slower one
    stage.workers[1].to("restarting", "stage.restarting")
    stage.workers[1].to("ready", "stage.ready")
    assert calls == [False, True, True]


class SlowToWarm(WordFrontend):
    """Loads until the test says so; notes what was asked of it."""

    def __init__(self) -> None:
        self.loaded, self.calls = threading.Event(), list[str]()

    def warm(self) -> None:
        self.loaded.wait(120)
        self.calls.append("warm")

    def segments(self, text: str) -> tuple[Segment, ...]:
        self.calls.append(text)
        return super().segments(text)


async def test_first_text_is_read_once_all_it_needs_is_loaded(make_stage: Callable[..., Stage]) -> None:
    text = SlowToWarm()
    stage = make_stage(text)

    async def warm() -> None:
        text.calls.append("observer")

    stage.engine.on_warm(warm)
    stage.lm.enqueue(Say(28), Finish())
    await stage.engine.start()
    asked = asyncio.create_task(stage.submit("hello"))
    left = asyncio.create_task(stage.submit("bye"))
    await until(lambda: stage.engine.state().running == 2)
    left.cancel()  # whoever leaves does not end the loading
    assert not asked.done() and text.calls == []
    text.loaded.set()
    assert len(await read_all(await asked)) == 28 * 960
    assert text.calls == ["warm", "observer", "hello"]
    stage.workers[0].to("restarting")
    stage.workers[0].to("ready")
    assert await stage.all_is_free() and text.calls.count("warm") == 1


@pytest.mark.parametrize("past_the_line", [False, True])
async def test_request_that_has_ended_is_gone_without_the_collector(stage: Stage, past_the_line: bool) -> None:
    """It held its sound until the collector came by, and gave it work at a time when others wait."""
    gc.collect()
    gc.disable()
    try:
        for tokens in (40, 30):
            stage.lm.enqueue(Say(tokens), Finish())
        begin = stage.engine.try_out if past_the_line else stage.engine.submit
        stream = await begin(SynthesisRequest("one two. three four", voice_prompt("anna")))
        gone = weakref.ref(stream)
        assert len(await read_all(stream)) == (40 + 30) * 960 + PAUSE_SAMPLES
        del stream
        await until(lambda: gone() is None)
    finally:
        gc.enable()


async def test_drain_lets_running_requests_end_and_refuses_new_ones(stage: Stage) -> None:
    held = asyncio.Event()
    stage.lm.enqueue(Say(28), WaitFor(held), Say(20), Finish())
    stream = await stage.submit()
    await anext(stream)
    draining = asyncio.create_task(stage.engine.drain(1000.0))
    await asyncio.sleep(0)
    with pytest.raises(EngineDraining):
        await stage.submit()
    held.set()
    await draining
    assert len(await read_all(stream)) > 0


async def test_close_tells_those_who_listen_and_closes_the_models(stage: Stage) -> None:
    stage.lm.enqueue(Say(28), WaitFor(asyncio.Event()))
    stream = await stage.submit()
    await anext(stream)
    await stage.engine.close()
    with pytest.raises(EngineDraining):
        await anext(stream)
    assert stage.lm.closed and stage.token2wav.closed and await stage.all_is_free()


async def test_end_of_a_request_is_measured_and_logged_without_its_text(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    held = asyncio.Event()
    stage.lm.enqueue(Say(28), WaitFor(held), Say(22), Finish())
    with caplog.at_level(logging.INFO, logger="studio.engine"):
        async with await stage.submit("secret words", voice="anna") as stream:
            stage.clock.advance(0.0)
            await anext(stream)
            stage.clock.advance(0.5)
            held.set()
            async for _ in stream:
                pass
    (summary,) = (await stage.engine.stats()).last_requests
    assert (summary.tokens, summary.characters, summary.reason) == (50, 12, "stop")
    assert (summary.audio_s, summary.ttfa_s, summary.rtf) == (2.0, 0.0, 0.25)
    (line,) = [record.getMessage() for record in caplog.records if "ended" in record.getMessage()]
    assert "tokens=50" in line and "reason=stop" in line and "secret" not in line


async def test_what_the_first_sound_waited_for_is_told_stage_by_stage(stage: Stage) -> None:
    rest = asyncio.Event()
    stage.lm.enqueue(Say(20), WaitFor(rest), Say(30), Finish())
    stage.token2wav.gate.clear()
    async with await stage.submit() as stream:
        await until(lambda: stage.engine.in_flight()[0].tokens == 20)
        stage.clock.advance(0.25)
        rest.set()
        await until(lambda: bool(stage.token2wav.steps))
        stage.clock.advance(0.5)
        stage.token2wav.gate.set()
        async for _ in stream:
            pass
    (summary,) = (await stage.engine.stats()).last_requests
    assert (summary.first_token_s, summary.ttfa_s) == (0.0, 0.75)
    assert summary.first_step == FirstStep(
        ready_s=0.25, began_s=0.25, ended_s=0.75, rows=1, flow_s=0.0, vocoder_s=0.0
    )


async def test_flow_and_vocoder_of_a_step_are_counted_where_they_are_told(stage: Stage) -> None:
    for flow_s, vocoder_s in ((0.0, 0.0), (0.25, 0.125)):
        stage.token2wav.flow_s, stage.token2wav.vocoder_s = flow_s, vocoder_s
        stage.lm.enqueue(Say(50), Finish())
        async with await stage.submit() as stream:
            async for _ in stream:
                pass
        stats = await stage.engine.stats()
        told = stats.flow_s.count
        assert stats.step_s.count == len(stage.token2wav.steps) and stats.vocoder_s.count == told
        assert (told > 0) == (flow_s > 0)
        assert (stats.flow_s.total, stats.vocoder_s.total) == (told * flow_s, told * vocoder_s)
    assert told < stats.step_s.count
    first = stats.last_requests[-1].first_step
    assert first is not None and (first.flow_s, first.vocoder_s) == (0.25, 0.125)


async def hear_slowly(stage: Stage, seconds: float) -> None:
    """Two words to their end, whose second chunk comes so much later than the first."""
    held = asyncio.Event()
    stage.lm.enqueue(Say(28), WaitFor(held), Say(22), Finish())
    async with await stage.submit("one two") as stream:
        await anext(stream)
        stage.clock.advance(seconds)
        held.set()
        async for _ in stream:
            pass


async def test_player_holds_more_when_the_studio_was_slower_than_real_time(stage: Stage) -> None:
    async with await stage.submit("one two") as stream:
        unmeasured = stream.prebuffer_s
    await hear_slowly(stage, 8.0)
    async with await stage.submit("one two") as stream:
        slow = stream.prebuffer_s
    # two words last 2 s; at a quarter of real time all of it is held, and the least
    assert slow > unmeasured and slow == pytest.approx(2.0 + LEAST_PREBUFFER_S)
    assert stage.engine.measured_rate() == pytest.approx(0.25, rel=0.5)


async def test_what_a_player_holds_is_settled_with_the_first_sound_by_all_who_run_then(stage: Stage) -> None:
    """It was once told when the request came: of a burst, the first knew of nobody (128 at once on an H200)."""
    go = asyncio.Event()
    await hear_slowly(stage, 2.0)
    stage.lm.enqueue(WaitFor(go), Say(60), Finish())
    stage.lm.enqueue(WaitFor(asyncio.Event()))
    async with await stage.submit("word " * 50) as first:
        alone_s = first.prebuffer_s
        async with await stage.submit("word " * 50):
            go.set()
            await anext(first)
            among_two_s = first.prebuffer_s
        assert alone_s < among_two_s == first.prebuffer_s


async def test_what_a_player_will_hold_is_told_by_the_first_block_of_the_settings(make_stage) -> None:
    """It was told as of 22 tokens, also on a GPU, where 13 are set and the first chunk is over sooner."""
    stage = make_stage(first_block_tokens=13)
    await stage.engine.start()
    stage.lm.enqueue(WaitFor(asyncio.Event()))
    async with await stage.submit("word " * 50) as stream:
        short_s = stream.prebuffer_s
        stage.engine.limit(EngineLimits(first_block_tokens=22))
        assert short_s - stream.prebuffer_s == pytest.approx((22 - 13) / TOKEN_RATE_HZ)


async def test_spoken_tokens_are_voiced_again_without_the_speech_lm(stage: Stage) -> None:
    for tokens in (40, 30):
        stage.lm.enqueue(Say(tokens), Finish())
    first = await stage.submit("one two. three four", speed=1.2)
    samples = await read_all(first)
    asked = len(stage.lm.prompts)
    again = await stage.engine.voice(VoicingRequest(tuple(first.spoken), voice_prompt("anna"), speed=1.2))
    assert np.array_equal(await read_all(again), samples)
    assert again.spoken == first.spoken and len(stage.lm.prompts) == asked == 2
    assert [row.pause_s for row in first.spoken] == [0.0, SEGMENT_PAUSE_S]


async def test_request_keeps_the_guidance_it_began_with_and_the_next_has_the_new(make_stage) -> None:
    stage = make_stage(guidance=0.7)
    await stage.engine.start()
    held = asyncio.Event()
    stage.lm.enqueue(Say(30), Finish())
    stage.lm.enqueue(Say(30), WaitFor(held), Finish())
    async with await stage.submit("one two. three four") as stream:
        await anext(stream)
        stage.engine.limit(EngineLimits(guidance=2.0))
        held.set()
        async for _ in stream:
            pass
    stage.lm.enqueue(Say(30), Finish())
    await read_all(await stage.submit("five"))
    assert list(stage.token2wav.guidances.values()) == [0.7, 0.7, 2.0]


async def test_loop_that_breaks_fails_who_is_there_and_goes_on(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def nonsense(rows: object) -> list[object]:
        return [object()]

    with monkeypatch.context() as broken:
        broken.setattr(stage.token2wav, "step", nonsense)
        with pytest.raises(SynthesisError, match="went wrong"):
            await read_all(await stage.submit())
    assert "the token2wav loop broke" in caplog.text
    assert len(await read_all(await stage.submit()))
    assert await stage.all_is_free()
