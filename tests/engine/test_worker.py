"""A real child program under supervision: answers, streams, and every way to die."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from studio.engine.worker import Supervision, WorkerProcess, WorkerState
from studio.errors import EngineDead, EngineNotReady, SpeechLMError

PROGRAM = [sys.executable, str(Path(__file__).with_name("worker_program.py"))]
MakeWorker = Callable[..., WorkerProcess]


class ManualSleep:
    """Stands for asyncio.sleep: remembers what was asked and returns when the test says so."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[float] = asyncio.Queue()
        self._release = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        self.asked.put_nowait(seconds)
        await self._release.wait()
        self._release.clear()

    def over(self) -> None:
        self._release.set()


@pytest.fixture
async def make_worker() -> AsyncIterator[MakeWorker]:
    made: list[WorkerProcess] = []

    def make(settings: dict[str, Any] | None = None, **options: Any) -> WorkerProcess:
        made.append(WorkerProcess(PROGRAM, "test worker", settings or {}, **options))
        return made[-1]

    yield make
    for worker in made:
        await worker.close()


async def no_wait(seconds: float) -> None:
    """A backoff of no length; the start limit, which is longer, never comes."""
    if seconds > 100:
        await asyncio.Event().wait()


async def gone(pid: int) -> None:
    """Returns when a process is gone or only waits to be reaped."""
    while True:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX":
                return
        except (FileNotFoundError, ProcessLookupError):  # the latter when it goes between opening and reading
            return
        await asyncio.sleep(0.01)


async def test_call_is_answered(make_worker: MakeWorker) -> None:
    worker = make_worker()
    await worker.start()
    await worker.wait_ready()
    assert await worker.call("add", a=2, b=3) == 5


async def test_call_before_ready_says_what_the_worker_does(make_worker: MakeWorker) -> None:
    worker = make_worker()
    with pytest.raises(EngineNotReady) as caught:
        await worker.call("add", a=1, b=1)
    assert "waiting to start" in caught.value.message("en")
    assert caught.value.retry_after_s and caught.value.retry_after_s > 0


async def test_start_is_shown_stage_by_stage(make_worker: MakeWorker) -> None:
    seen: list[WorkerState] = []
    worker = make_worker()
    worker.subscribe(seen.append)
    await worker.start()
    ready = await worker.wait_ready()
    shown = [(s.phase, s.stage, s.fraction, s.detail) for s in seen]
    assert ("starting", "stage.weights", 0.5, {"file": "flow.pt"}) in shown
    assert (ready.stage, ready.fraction, ready.facts["pid"]) == ("stage.ready", 1.0, ready.pid)


async def test_first_failed_start_says_why(make_worker: MakeWorker) -> None:
    worker = make_worker({"crash_at_start": True}, sleep=ManualSleep())
    await worker.start()
    with pytest.raises(EngineNotReady) as caught:
        await worker.wait_started()
    assert "the disk is on fire" in caught.value.message("en")


async def test_stream_gives_its_items_in_order_and_ends(make_worker: MakeWorker) -> None:
    worker = make_worker()
    await worker.start()
    await worker.wait_ready()
    assert [n async for n in worker.stream("count", to=4)] == [0, 1, 2, 3]


async def test_stream_left_early_is_cancelled_in_the_worker(make_worker: MakeWorker) -> None:
    worker = make_worker()
    await worker.start()
    await worker.wait_ready()
    items = worker.stream("count", to=-1)
    assert await anext(items) == -1
    assert await worker.call("open_now") == 1
    await items.aclose()  # type: ignore[attr-defined]
    assert await worker.call("open_now") == 0


async def test_streams_that_share_frames_end_each_in_its_own_way(make_worker: MakeWorker) -> None:
    worker = make_worker()
    await worker.start()
    await worker.wait_ready()
    left = worker.stream("count", to=200)
    assert await anext(left) == 0

    async def whole() -> list[int]:
        return [n async for n in worker.stream("count", to=200)]

    async def failed() -> list[int]:
        numbers: list[int] = []
        with pytest.raises(SpeechLMError, match="no"):
            async for number in worker.stream("count_and_fail", to=200):
                numbers.append(number)
        return numbers

    _, *found = await asyncio.gather(left.aclose(), whole(), failed(), whole())  # type: ignore[attr-defined]
    assert found == [list(range(200))] * 3
    assert await worker.call("open_now") == 0


async def test_error_of_a_handler_ends_that_call_alone(make_worker: MakeWorker) -> None:
    worker = make_worker()
    await worker.start()
    await worker.wait_ready()
    with pytest.raises(SpeechLMError, match="no"):
        await worker.call("fail")
    assert await worker.call("add", a=1, b=1) == 2


async def test_kill_9_fails_pending_work_and_the_next_life_answers(make_worker: MakeWorker) -> None:
    worker = make_worker(sleep=no_wait)
    await worker.start()
    first = await worker.wait_ready()
    call = asyncio.create_task(worker.call("forever"))
    items = worker.stream("count", to=-1)
    assert await anext(items) == -1
    assert first.pid
    os.kill(first.pid, signal.SIGKILL)
    with pytest.raises(EngineDead) as caught:
        await call
    assert caught.value.retry_after_s and caught.value.values["seconds"] == caught.value.retry_after_s
    with pytest.raises(EngineDead):
        await anext(items)
    second = await worker.wait_ready()
    assert second.pid != first.pid and second.restarts == 1
    assert await worker.call("add", a=1, b=2) == 3


async def test_engine_dead_from_a_handler_restarts_the_worker(make_worker: MakeWorker) -> None:
    worker = make_worker(sleep=no_wait)
    await worker.start()
    await worker.wait_ready()
    with pytest.raises(EngineDead):
        await worker.call("die")
    async with asyncio.timeout(120):
        while worker.state.restarts == 0:
            await asyncio.sleep(0)
    assert (await worker.wait_ready()).restarts == 1


async def test_death_takes_the_processes_it_started_with_it(make_worker: MakeWorker) -> None:
    worker = make_worker(sleep=no_wait)
    await worker.start()
    state = await worker.wait_ready()
    grandchild = await worker.call("start_child")
    assert state.pid
    os.kill(state.pid, signal.SIGKILL)
    async with asyncio.timeout(120):
        await gone(grandchild)


async def test_worker_and_its_children_die_with_the_studio() -> None:
    """The studio is killed with -9: nothing of its workers may stay behind."""
    studio = await asyncio.create_subprocess_exec(
        sys.executable, str(Path(__file__).with_name("worker_parent.py")), stdout=asyncio.subprocess.PIPE
    )
    assert studio.stdout
    pids = [int(word) for word in (await studio.stdout.readline()).split()]
    assert len(pids) == 2
    studio.kill()
    await studio.wait()
    async with asyncio.timeout(120):
        for pid in pids:
            await gone(pid)


async def test_crash_at_start_is_tried_again_then_given_up(make_worker: MakeWorker) -> None:
    asked: list[float] = []

    async def remember(seconds: float) -> None:
        if seconds < 100:
            asked.append(seconds)
        await no_wait(seconds)

    worker = make_worker({"crash_at_start": True}, sleep=remember, supervision=Supervision(failures=3))
    await worker.start()
    with pytest.raises(EngineNotReady, match="the disk is on fire"):
        await worker.wait_ready()
    assert worker.state.phase == "failed" and asked == [1.0, 2.0]


async def test_checkpoint_that_does_not_fit_is_not_tried_again(make_worker: MakeWorker) -> None:
    worker = make_worker({"bad_checkpoint": True}, sleep=no_wait)
    await worker.start()
    with pytest.raises(EngineNotReady, match=r"flow\.pt is missing"):
        await worker.wait_ready()
    assert worker.state.restarts == 0


async def test_hung_start_is_ended_at_the_limit(make_worker: MakeWorker) -> None:
    sleep = ManualSleep()
    limits = Supervision(start_timeout_s=77, failures=1)
    worker = make_worker({"hang_at_start": True}, sleep=sleep, supervision=limits)
    await worker.start()
    assert await sleep.asked.get() == 77
    pid = worker.state.pid
    assert pid
    sleep.over()
    with pytest.raises(EngineNotReady, match="77 s"):
        await worker.wait_ready()
    await gone(pid)


async def test_failed_worker_comes_back_when_started_again(make_worker: MakeWorker) -> None:
    settings = {"crash_at_start": True}
    worker = make_worker(settings, supervision=Supervision(failures=1))
    await worker.start()
    with pytest.raises(EngineNotReady):
        await worker.wait_ready()
    settings.clear()
    await worker.start()
    await worker.wait_ready()
    assert await worker.call("add", a=1, b=1) == 2


async def test_close_tells_who_waits_for_a_start_what_has_become_of_it(make_worker: MakeWorker) -> None:
    worker = make_worker({"hang_at_start": True})
    await worker.start()
    waiting = asyncio.create_task(worker.wait_started())
    await asyncio.sleep(0)
    await worker.close()
    with pytest.raises(EngineNotReady, match="is starting"):
        await waiting


async def test_close_is_in_order_and_tells_who_waits(make_worker: MakeWorker, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    worker = make_worker({"close_mark": str(mark)}, supervision=Supervision(close_timeout_s=120))
    await worker.start()
    await worker.wait_ready()
    call = asyncio.create_task(worker.call("forever"))
    await asyncio.sleep(0)
    await worker.close()
    with pytest.raises(EngineDead):
        await call
    assert mark.read_text() == "closed in order" and worker.state.phase == "closed"
