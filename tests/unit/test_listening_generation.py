"""The studio makes material only while it runs with the settings that a condition asks for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np

from studio.admin.knobs import tunable
from studio.api.engine_settings import ABOUT, comparable
from studio.listening.answers import Kind
from studio.listening.database import Database
from studio.listening.design import Condition, Design, Source
from studio.listening.generation import Generation, Utterance
from studio.listening.store import ListeningStore
from studio.speech import Float32

SIX = Condition("c1", "six", Source("speech", "Ada", studio={"flow_steps": 6}))


def made(
    folder: Path, running: dict[str, Any], during: dict[str, Any], own: dict[str, Any] | None = None
) -> tuple[int, str]:
    """Clips and the problem after making one sentence; during: what somebody changes while it is spoken."""

    async def speak(wanted: Utterance) -> Float32:
        running.update(during)
        return np.zeros(24_000, np.float32)

    async def make() -> None:
        generation.start(test)
        while generation.is_busy(test.id):
            await asyncio.sleep(0)

    database = Database(folder / "tests.sqlite")
    store = ListeningStore(folder, database)
    test = store.create(Design(Kind.MOS, "t", (SIX,), ("a",)), "owner")
    generation = Generation(store, speak, lambda: dict(running), lambda: own or dict(running))
    asyncio.run(make())
    found = len(store.clips(test.id, "given")), store.find(test.id).problem
    database.close()
    return found


def test_settings_are_those_of_the_moment(tmp_path: Path) -> None:
    assert made(tmp_path, {"flow_steps": 10}, {}) == (0, "")
    assert made(tmp_path, {"flow_steps": 6}, {}) == (1, "")


def test_what_was_made_while_the_settings_changed_is_not_kept(tmp_path: Path) -> None:
    clips, problem = made(tmp_path, {"flow_steps": 6}, {"flow_steps": 10})
    assert clips == 0 and "changed" in problem


def test_what_is_begun_while_other_settings_are_lent_is_made_under_the_studios_own(tmp_path: Path) -> None:
    assert made(tmp_path, {"flow_steps": 4}, {"flow_steps": 6}, own={"flow_steps": 6}) == (1, "")
    assert made(tmp_path, {"flow_steps": 6}, {"flow_steps": 10}, own={"flow_steps": 10}) == (0, "")


def test_conditions_name_what_can_be_heard_and_see_no_secret_and_no_path() -> None:
    """A new setting of the models is either here, or among those that `engine_settings.SILENT` gives a reason for."""
    assert comparable() == {
        "dtype", "quantization", "kv_cache_dtype", "batch_invariant",
        "flow_steps", "guidance", "flow_cache", "flow_precision", "flow_dtype", "vocoder_precision",
        "upstream_streaming", "first_block_tokens",
    }  # fmt: skip
    assert ABOUT.keys() <= tunable().keys()
