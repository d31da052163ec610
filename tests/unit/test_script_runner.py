"""What waits in the store is what is spoken: a line that changes while it is made is never left to wait for nobody."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest

from studio.errors import EngineDraining, InvalidRequest, StudioError
from studio.script.lines import DraftLine, Fault
from studio.script.runner import ScriptRunner
from studio.script.store import Script, ScriptStore


class Asked:
    """Stands before the engine: notes what is asked for, and refuses it once the test lets it go on."""

    def __init__(self, *refusals: StudioError) -> None:
        self.texts: list[str] = []
        self.go = asyncio.Event()
        self._refusals = list(refusals)

    async def __call__(self, text: str, voice: str, seed: int | None, client: str) -> None:
        self.texts.append(text)
        await self.go.wait()
        raise self._refusals.pop(0) if self._refusals else InvalidRequest("text.empty")


@pytest.fixture
def store(tmp_path: Path) -> ScriptStore:
    return ScriptStore(tmp_path)


def runner_of(store: ScriptStore, asked: Asked) -> ScriptRunner:
    engine, takes = SimpleNamespace(on_ready=lambda observer: None), SimpleNamespace(of_lines=lambda lines: [])
    return ScriptRunner(engine, store, takes, None, asked, 4)  # type: ignore[arg-type]


def one_line(store: ScriptStore) -> Script:
    return store.add("ada", "", [DraftLine("old", voice="v")])


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_line_wanted_again_while_its_task_still_runs_is_begun_again(store: ScriptStore) -> None:
    asked, script = Asked(), one_line(store)
    runner = runner_of(store, asked)
    runner.speak(script, store.lines(script))
    await settle()
    assert store.edit(store.lines(script)[0], text="new")
    runner.speak(script, store.lines(script))
    asked.go.set()
    await settle()
    assert asked.texts == ["old", "new"]
    (line,) = store.lines(script)
    assert (line.text, line.status) == ("new", "failed")


async def test_line_stopped_and_wanted_in_one_moment_is_begun_again(store: ScriptStore) -> None:
    asked, script = Asked(), one_line(store)
    runner = runner_of(store, asked)
    runner.speak(script, store.lines(script))
    await settle()
    stopping = asyncio.create_task(runner.stop(script))
    await asyncio.sleep(0)
    runner.speak(script, store.lines(script))
    await stopping
    await settle()
    assert asked.texts == ["old", "old"]


async def test_line_ended_because_the_engine_is_tuned_is_tried_again(store: ScriptStore) -> None:
    asked, script = Asked(EngineDraining("engine.tuned", retry_after_s=0.001)), one_line(store)
    runner = runner_of(store, asked)
    runner.speak(script, store.lines(script))
    asked.go.set()
    while store.lines(script)[0].status == "waiting":
        await asyncio.sleep(0)
    assert asked.texts == ["old", "old"]


async def test_what_waits_at_the_end_waits_for_the_next_start(store: ScriptStore) -> None:
    asked, script = Asked(), one_line(store)
    runner = runner_of(store, asked)
    runner.speak(script, store.lines(script))
    await settle()
    await runner.close()
    await settle()
    assert asked.texts == ["old"] and store.lines(script)[0].status == "waiting"


def test_error_of_a_line_as_it_was_is_not_told_of_the_line_as_it_is(store: ScriptStore) -> None:
    script = one_line(store)
    store.want(store.lines(script))
    (was,) = store.lines(script)
    assert store.edit(was, voice="other")
    store.failed(was, Fault("internal"))
    assert [(line.status, line.fault) for line in store.lines(script)] == [("new", "")]
