"""Jobs on the scripted engine: found again, read again, stopped at once, and never left running for nobody."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from studio.backends.fake import Finish, Raise, Say, WaitFor, voice_prompt
from studio.engine import jobs as jobs_module
from studio.engine.jobs import GRACE_S, Job, Jobs
from studio.errors import NotFound, RequestAborted, SpeechLMError, SynthesisError
from studio.speech import Float32, SynthesisRequest
from tests.engine.conftest import Stage


async def begin(stage: Stage, jobs: Jobs, client: str = "ann") -> Job:
    request = SynthesisRequest("hello dear world", voice_prompt("anna"), client=client)
    return jobs.begin(await stage.engine.submit(request), request)


async def read(job: Job) -> Float32:
    return np.concatenate([chunk.samples async for chunk in job.read()])


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_refreshed_page_finds_its_job_and_hears_all_of_it(stage: Stage) -> None:
    jobs, rest = Jobs(stage.clock.sleep), asyncio.Event()
    stage.lm.enqueue(Say(60), WaitFor(rest), Say(30), Finish())
    job = await begin(stage, jobs)
    listening = job.read()
    await anext(listening)
    await listening.aclose()  # the page goes, and comes back before its time is over
    stage.clock.advance(GRACE_S - 1)
    await settle()
    (found,) = jobs.of("ann")
    assert found is job and found.state == "speaking" and jobs.of("bob") == []
    reading = asyncio.create_task(read(jobs.find(job.id, "ann")))
    await settle()
    stage.clock.advance(GRACE_S + 1)
    rest.set()
    assert len(await reading) == 90 * 960
    assert job.state == "done" and len(await read(job)) == 90 * 960


@pytest.mark.parametrize("listened", [False, True])
async def test_job_that_nobody_listens_to_ends_and_frees_everything(stage: Stage, listened: bool) -> None:
    jobs = Jobs(stage.clock.sleep)
    stage.lm.enqueue(Say(60), WaitFor(asyncio.Event()))
    job = await begin(stage, jobs)
    if listened:
        listening = job.read()
        await anext(listening)
        await listening.aclose()
    await settle()
    stage.clock.advance(GRACE_S)
    while not await stage.all_is_free():
        await asyncio.sleep(0)
    assert job.state == "stopped"


async def test_stop_tells_the_reader_and_frees_everything_at_once(stage: Stage) -> None:
    jobs = Jobs(stage.clock.sleep)
    stage.lm.enqueue(Say(60), WaitFor(asyncio.Event()))
    job = await begin(stage, jobs)
    reading = asyncio.create_task(read(job))
    await settle()
    await job.stop()
    assert await stage.all_is_free()
    with pytest.raises(RequestAborted):
        await reading
    await job.stop()


async def test_stop_before_anything_began_frees_the_place(stage: Stage) -> None:
    jobs = Jobs(stage.clock.sleep)
    await (await begin(stage, jobs)).stop()
    assert await stage.all_is_free()


async def test_failure_is_told_to_who_reads_now_and_later(stage: Stage) -> None:
    jobs = Jobs(stage.clock.sleep)
    stage.lm.enqueue(Raise(SpeechLMError("speech.lm_failed", reason="scripted")))
    job = await begin(stage, jobs)
    for _ in range(2):
        with pytest.raises(SpeechLMError):
            await read(job)
    assert job.state == "failed"


async def test_job_of_another_client_is_not_found(stage: Stage) -> None:
    jobs = Jobs(stage.clock.sleep)
    job = await begin(stage, jobs)
    with pytest.raises(NotFound):
        jobs.find(job.id, "bob")
    await read(job)


async def test_slow_reader_holds_the_engine_up_and_memory_down(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_module, "AHEAD_SAMPLES", 24_000)
    jobs = Jobs(stage.clock.sleep)
    stage.lm.enqueue(Say(200), Finish())
    job = await begin(stage, jobs)
    listening = job.read()
    await settle()
    made = job.samples
    assert 24_000 < made < 200 * 960
    rest = [chunk async for chunk in listening]
    assert sum(len(chunk.samples) for chunk in rest) == 200 * 960


async def test_only_so_much_is_kept_of_ended_jobs(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "KEPT_JOBS", 2)
    jobs, made = Jobs(stage.clock.sleep), []
    for _ in range(4):
        made.append(await begin(stage, jobs))
        await read(made[-1])
    assert [job.id for job in jobs.of("ann")] == [job.id for job in reversed(made[1:])]


async def test_job_that_meets_a_bug_ends_and_tells_its_listener(stage: Stage) -> None:
    async def broken(_: Float32) -> None:
        raise RuntimeError("nobody thought of this")

    job = await begin(stage, Jobs(stage.clock.sleep))
    job.stream.when_read(broken)
    with pytest.raises(SynthesisError, match="log has the details"):
        await read(job)
    assert job.state == "failed" and job.ended
