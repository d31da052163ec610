"""A series is gone on with after a restart, one at a time, and not for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from studio.errors import AdminBusy
from studio.listening.answers import Kind
from studio.listening.database import Database
from studio.listening.design import Condition, Design, Source
from studio.listening.generation import Generation, Utterance
from studio.listening.room import ListeningRoom
from studio.listening.series import MAX_TRIES, Series, parts
from studio.listening.store import ListeningStore
from studio.speech import Float32

if TYPE_CHECKING:
    from studio.listening.store import Test  # pytest would take it for a test

OWN = {"flow_steps": 10}


class ScriptedLender:
    """Lends at once; `busy` says that settings are being changed, `cut` that the studio ends in the middle."""

    def __init__(self) -> None:
        self.phase = "idle"
        self.lent: list[Mapping[str, object]] = []
        self.busy = self.cut = False

    def check(self, changes: Mapping[str, object]) -> None:
        return None

    def lend(
        self, sets: Sequence[Mapping[str, object]], work: Callable[[int], Awaitable[bool]], who: str
    ) -> Awaitable[str]:
        if self.busy:
            raise AdminBusy("admin.busy")

        async def run() -> str:
            if self.cut:
                raise asyncio.CancelledError
            for number, changes in enumerate(sets):
                self.lent.append(changes)
                await work(number)
            return ""

        return asyncio.ensure_future(run())


async def speak(wanted: Utterance) -> Float32:
    return np.zeros(24_000, np.float32)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ListeningStore]:
    database = Database(tmp_path / "tests.sqlite")
    yield ListeningStore(tmp_path, database)
    database.close()


def draft(store: ListeningStore, *steps: int) -> Test:
    conditions = tuple(
        Condition(f"c{n}", f"{s} at {n}", Source("speech", voice="Ada", studio={"flow_steps": s}))
        for n, s in enumerate(steps, 1)
    )
    return store.create(Design(Kind.MOS, "t", conditions, ("a", "b")), "owner")


def series_of(store: ListeningStore, lender: ScriptedLender) -> Series:
    return Series(store, Generation(store, speak, lambda: OWN), lender, speak, lambda: OWN)


def run(store: ListeningStore, lender: ScriptedLender, does: Callable[[Series], object]) -> None:
    """One life of the studio: what it does, and until nothing more happens."""

    async def live() -> None:
        series = series_of(store, lender)
        does(series)
        while others := asyncio.all_tasks() - {asyncio.current_task()}:  # type: ignore[arg-type]
            await asyncio.gather(*others, return_exceptions=True)

    asyncio.run(live())


def test_what_the_studio_runs_with_comes_first_and_equal_settings_go_together(store: ListeningStore) -> None:
    found = parts(store, draft(store, 6, 10, 4, 6), OWN)
    assert [(part.settings["flow_steps"], part.conditions) for part in found] == [
        (10, ("c2",)), (6, ("c1", "c4")), (4, ("c3",)),
    ]  # fmt: skip


def test_what_a_restart_cut_off_is_gone_on_with_one_after_the_other(store: ListeningStore) -> None:
    first, second, lender = draft(store, 6), draft(store, 4), ScriptedLender()
    lender.cut = True
    for test in (first, second):
        run(store, lender, lambda series, test=test: series.start(test, "ada"))
    assert list(store.series()) == [first.id, second.id]
    lender.cut = False
    run(store, lender, lambda series: series.resume())
    assert [changes["flow_steps"] for changes in lender.lent] == [6, 4]
    assert store.series() == {} and len(store.clips(second.id, "given")) == 2


def test_series_waits_while_settings_are_being_changed(store: ListeningStore) -> None:
    test, lender = draft(store, 6), ScriptedLender()
    store.begin_series(test.id, "ada")
    lender.busy = True
    run(store, lender, lambda series: series.resume())
    assert list(store.series()) == [test.id] and store.find(test.id).problem == ""


def test_series_that_ends_the_studio_again_and_again_is_given_up_and_says_so(store: ListeningStore) -> None:
    test, lender = draft(store, 6), ScriptedLender()
    lender.cut = True
    run(store, lender, lambda series: series.start(test, "ada"))
    for tries in range(1, MAX_TRIES):
        assert store.series()[test.id] == ("ada", tries)
        run(store, lender, lambda series: series.resume())
    run(store, lender, lambda series: series.resume())
    assert store.series() == {} and "ended 3 times" in store.find(test.id).problem_in("en")
    assert "中断了 3 次" in store.find(test.id).problem_in("zh")


def test_owner_begins_nothing_beside_the_series_of_the_same_test(tmp_path: Path) -> None:
    class StartingLender(ScriptedLender):
        def lend(self, *asked: object) -> Awaitable[str]:
            return asyncio.get_running_loop().create_future()  # the workers are being started

    async def live() -> None:
        room = ListeningRoom(tmp_path, speak, lambda text: None, lambda: OWN)
        series, test = room.borrow_from(StartingLender(), speak), draft(room.store, 10)
        series.start(test, "ada")
        room.start_making(test)
        assert room.is_making(test.id) and not room.generation.is_busy(test.id)
        await room.close()

    asyncio.run(live())
