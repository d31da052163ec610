"""Fast, balanced and best on the scripted engine; promises to who waits."""

from __future__ import annotations

import asyncio

import pytest

from studio.backends.fake import Finish, Say, WaitFor
from studio.errors import NoSpeech, RunawaySpeech
from tests.engine.conftest import Stage, read_all

NOTHING, UNENDING = (Finish(),), (Say(200), Finish("length"))


async def spoken(stage: Stage, quality: str | None, *scripts: tuple) -> int:
    for script in scripts:
        stage.lm.enqueue(*script)
    return len(await read_all(await stage.submit("one two", quality=quality))) // 960


@pytest.mark.parametrize("quality", ["fast", "balanced"])
async def test_first_chunk_is_of_one_block_whatever_the_quality(stage: Stage, quality: str) -> None:
    """Docs/decisions/0014; a block that begins in the prompt, as a real one does, takes 22 tokens."""
    assert await spoken(stage, quality, (Say(100), Finish())) == 100
    first = stage.token2wav.steps[0][0]
    assert (len(first.tokens), len(first.lookahead)) == (25, 3)


async def test_segment_without_speech_is_made_again_with_another_seed(stage: Stage) -> None:
    assert await spoken(stage, "balanced", NOTHING, (Say(30), Finish())) == 30
    assert len({sampling.seed for sampling in stage.lm.samplings}) == 2


async def test_fast_makes_nothing_again(stage: Stage) -> None:
    with pytest.raises(NoSpeech):
        await spoken(stage, "fast", NOTHING)
    assert await stage.all_is_free()


async def test_balanced_fails_where_sound_was_heard_already(stage: Stage) -> None:
    with pytest.raises(RunawaySpeech):
        await spoken(stage, "balanced", UNENDING)


async def test_best_hears_the_end_before_the_listener_hears_the_beginning(stage: Stage) -> None:
    assert await spoken(stage, "best", UNENDING, NOTHING, (Say(40), Finish())) == 40


async def test_best_makes_an_unlikely_length_again_and_takes_it_the_third_time(stage: Stage) -> None:
    await read_all(await stage.submit("one two"))  # two words last ten tokens
    long = (Say(200), Finish())
    assert await spoken(stage, "best", long, (Say(11), Finish())) == 11
    assert await spoken(stage, "best", long, long, (Say(210), Finish())) == 210


async def test_best_gives_no_sound_before_its_segment_is_whole(stage: Stage) -> None:
    rest = asyncio.Event()
    stage.lm.enqueue(Say(60), WaitFor(rest), Say(20), Finish())
    async with await stage.submit(quality="best") as stream:
        first = asyncio.ensure_future(anext(stream))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not first.done()
        rest.set()
        assert len((await first).samples)


async def test_fast_player_is_not_asked_to_hold_anything(stage: Stage) -> None:
    held = {}
    for quality in ("fast", "balanced", "best"):
        async with await stage.submit("word " * 50, quality=quality) as stream:
            held[quality] = stream.prebuffer_s
    assert held["fast"] == 0 < held["balanced"] == held["best"]


async def test_automatic_choice_is_told_with_its_reason(make_stage) -> None:
    stage = make_stage(max_running=2)
    await stage.engine.start()
    held = asyncio.Event()
    async with await stage.submit(quality=None) as alone:
        assert (alone.choice.quality, alone.choice.reason) == ("balanced", "quality.unmeasured")
    stage.lm.enqueue(WaitFor(held), Finish())
    async with await stage.submit(), await stage.submit(quality=None) as second:
        assert (second.choice.quality, second.choice.others) == ("fast", 1)
        assert second.prebuffer_s > 0  # nobody asked to hear it at once, and a gap is likelier than ever


async def test_who_waits_is_told_place_and_time_and_how_wrong_that_was(make_stage) -> None:
    stage: Stage = make_stage(max_running=1)
    await stage.engine.start()
    go = [asyncio.Event(), asyncio.Event()]
    for event in go:
        stage.lm.enqueue(WaitFor(event), Say(20), Finish())
    first, second, third = [await stage.submit("one two three four", client=c) for c in ("a", "b", "c")]
    told = [stage.engine.progress(stream.request_id) for stream in (first, second, third)]
    assert [progress.position for progress in told] == [0, 0, 1]
    assert told[0].eta_s < told[1].eta_s < told[2].eta_s and told[0].eta_error_s is None
    assert told[2].ahead_tokens > told[1].ahead_tokens == 0
    stage.clock.advance(7.0)
    go[0].set()
    await read_all(first)
    assert stage.engine.progress(first.request_id) is None
    go[1].set()
    await read_all(second)
    assert stage.engine.progress(third.request_id).eta_error_s > 0
    await third.aclose()
