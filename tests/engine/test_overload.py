"""The ladder of overload as the engine takes it: each rung is counted, and only the last one ends streams."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from studio.backends.fake import Finish, Say, WaitFor, sine
from studio.backends.torch_ladder import out_of_memory
from studio.errors import OutOfMemory, QueueFull
from studio.metrics.exporter import exposition
from studio.protocols import Rung
from tests.engine.conftest import Stage, read_all

MakeStage = Callable[..., Stage]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0)


async def rungs(stage: Stage) -> dict[str, int]:
    """Those that were taken."""
    return {rung: count for rung, count in (await stage.engine.stats()).given_up.items() if count}


async def test_what_token2wav_gives_up_is_counted_and_the_stream_goes_on(make_stage: MakeStage) -> None:
    stage = make_stage()
    await stage.engine.start()
    stage.token2wav.given_up = ("smaller_batch", "recompute", "smaller_hop")
    sound = await read_all(await stage.submit("one two three"))
    assert len(sound) == len(sine(1, 0, 15 * 960))
    assert await rungs(stage) == {"smaller_batch": 1, "recompute": 1, "smaller_hop": 1}
    text = exposition({"m": await stage.engine.stats()})
    assert 'studio_overload_steps_total{model="m",step="recompute"} 1.0' in text
    assert 'studio_overload_steps_total{model="m",step="restart"} 0.0' in text


async def test_full_memory_narrows_the_door_until_requests_have_ended_well(make_stage: MakeStage) -> None:
    stage = make_stage(max_running=3)
    await stage.engine.start()
    going = asyncio.Event()
    for _ in range(3):
        stage.lm.enqueue(Say(30), WaitFor(going), Finish())
    stage.token2wav.gate.clear()
    streams = [await stage.submit() for _ in range(3)]
    await until(lambda: stage.engine.state().running == 3 and bool(stage.token2wav.steps))
    stage.token2wav.given_up = ("recompute",)
    stage.token2wav.gate.set()
    await until(lambda: stage.engine._recorder.given_up["recompute"] == 1)
    assert (await stage.engine.stats()).places == 2
    streams.append(await stage.submit())
    assert stage.engine.state().waiting == 1
    going.set()
    for stream in streams:
        await read_all(stream)
    assert (await stage.engine.stats()).places == 3
    assert await stage.all_is_free()


@pytest.mark.parametrize("rung", ["smaller_batch", "forget_voices"])
async def test_what_costs_no_row_its_cache_narrows_nothing(make_stage: MakeStage, rung: Rung) -> None:
    stage = make_stage(max_running=3)
    await stage.engine.start()
    stage.token2wav.given_up = (rung,)
    await read_all(await stage.submit())
    assert (await stage.engine.stats()).places == 3


async def test_restart_for_want_of_memory_is_counted_and_told_to_all_streams(make_stage: MakeStage) -> None:
    stage = make_stage()
    await stage.engine.start()
    stage.token2wav.fail(out_of_memory())
    stage.token2wav.gate.clear()
    streams = [await stage.submit() for _ in range(2)]
    await until(lambda: bool(stage.token2wav.steps) and stage.engine._voicing.rows_open == 2)
    stage.token2wav.gate.set()
    for stream in streams:
        with pytest.raises(OutOfMemory, match="memory is full"):
            await read_all(stream)
    assert await rungs(stage) == {"restart": 1}
    assert len(await read_all(await stage.submit())) > 0


async def test_who_is_turned_away_is_told_when_to_come_back_and_counted(make_stage: MakeStage) -> None:
    stage = make_stage(max_running=1, queue_size=0)
    await stage.engine.start()
    stage.lm.enqueue(Say(1000))
    stream = await stage.submit()
    with pytest.raises(QueueFull) as refused:
        await stage.submit()
    assert refused.value.retry_after_s and refused.value.http_status == 429
    assert await rungs(stage) == {"refused": 1}
    await stream.aclose()
