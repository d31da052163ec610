"""Marks every test by its folder, and runs the cheap folders first.

Beside each other (`make test`: two workers of pytest-xdist) all tests of real engines are one group, which shares the
one engine, and every other file is one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.real_studio import RealStudio

FOLDERS = ("unit", "parity", "engine", "api", "browser", "load")
TESTS = Path(__file__).parent
STARTS_ENGINE = re.compile(r"\bRealStudio\b|^def test_[^)]*\b(open_page|page: StudioPage)\b", re.MULTILINE)
"""In the text of a file whose tests start a real engine, or ask for the shared one by a fixture of the browser."""
PATIENCE_S = 120.0
"""httpx gives up after five seconds where nobody says otherwise, which a reply may take on a machine that is busy."""


def pytest_configure() -> None:
    """One object is what every function and client of httpx falls back to."""
    usual: httpx.Timeout = httpx.get.__kwdefaults__["timeout"]
    usual.connect = usual.read = usual.write = usual.pool = PATIENCE_S


def folder_of(path: Path) -> str:
    """Return the folder of tests/ that holds `path`."""
    return path.relative_to(TESTS).parts[0]


@cache
def group_of(path: Path) -> str:
    """What one worker runs from begin to end: "engine", or the file alone."""
    if folder_of(path) == "engine" or STARTS_ENGINE.search(path.read_text(encoding="utf-8")):
        return "engine"
    return path.relative_to(TESTS).as_posix()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Groups go to workers whole. pytest-xdist's own groups are lost on pytest 9.2, whose ids cannot be added to."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(config.rootpath / nodeid.partition("::")[0])

    return Groups(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark by folder; order by folder; leave load tests out unless they are asked for."""
    for item in items:
        item.add_marker(folder_of(item.path))
        if "running_studio" in getattr(item, "fixturenames", ()) and group_of(item.path) != "engine":
            raise pytest.UsageError(f"{item.nodeid} asks for the engine; STARTS_ENGINE does not see it")
    items.sort(key=lambda item: FOLDERS.index(folder_of(item.path)))
    if "PYTEST_XDIST_WORKER" in os.environ:
        # The long ones first, so that nobody waits for them at the end.
        others = [item for item in items if group_of(item.path) != "engine"]
        others.sort(key=lambda item: FOLDERS.index(folder_of(item.path)), reverse=True)
        items[:] = [item for item in items if group_of(item.path) == "engine"] + others
    asked = any("load" in arg for arg in (*config.args, config.option.markexpr))
    left_out = [] if asked else [item for item in items if folder_of(item.path) == "load"]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def running_studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealStudio]:
    """app.py on the embedded voice, started at the first need."""
    studio = RealStudio(tmp_path_factory.mktemp("studio"))
    studio.start()
    yield studio
    studio.stop()


@pytest.fixture
def studio(running_studio: RealStudio) -> RealStudio:
    """The shared studio, ready and with nothing to do."""
    running_studio.wait_ready()
    running_studio.wait_idle()
    return running_studio
