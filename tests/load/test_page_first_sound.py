"""How soon the page is heard after the first bytes, over 20 plays each: of a scripted source, and of the real engine.

Run on request, on an idle machine: `pytest tests/load/test_page_first_sound.py -s`. Prints a line of JSON each. A
scripted source is asked for fast speech, which starts with its first bytes; the real engine for what its users get,
which waits until the measured speed says that it will not run dry.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence

import pytest

from studio.backends.fake import Finish, Say
from tests.api.conftest import Service
from tests.browser.conftest import (
    OpenPage,
    chromium,
    fakes,
    microphone_file,
    open_on_fakes,
    open_page,
    running_fakes,
)
from tests.browser.studio_page import Heard, StudioPage

__all__ = ["chromium", "fakes", "microphone_file", "open_on_fakes", "open_page", "running_fakes"]
PLAYS = 20


@pytest.mark.parametrize("transport", ["http", "websocket"])
def test_first_sound_follows_the_first_bytes(open_on_fakes: OpenPage, fakes: Service, transport: str) -> None:
    def play(page: StudioPage) -> Heard:
        fakes.lm.enqueue(Say(50), Finish())
        return page.hear("two seconds")

    measure(open_on_fakes(), play, source="scripted", transport=transport, quality="fast")


def test_real_engine_is_heard_without_a_gap(open_page: OpenPage) -> None:
    def play(page: StudioPage) -> Heard:
        return page.hear("The children are playing in the garden, and the sun is going down behind the hills.")

    measure(open_page(), play, source="real engine", transport="http", quality="balanced")


def measure(page: StudioPage, play: Callable[[StudioPage], Heard], source: str, transport: str, quality: str) -> None:
    page.page.locator("#more-options summary").click()
    page.page.locator("#speech-options [name=transport]").select_option(transport)
    page.page.locator("#speech-options [name=quality]").select_option(quality)
    waits, first, underruns = [], [], 0
    for _ in range(PLAYS):
        heard = play(page)
        first_bytes_ms = float(page.player.get_attribute("data-first-bytes-ms") or "nan")
        waits.append(heard.first_ms - first_bytes_ms)
        first.append(heard.first_ms)
        underruns += heard.underruns
    found = {
        "source": source,
        "transport": transport,
        "plays": PLAYS,
        "first_sound_after_first_bytes_ms": spread(waits),
        "first_sound_after_the_click_ms": spread(first),
        "underruns": underruns,
    }
    print(json.dumps(found))
    assert underruns == 0


def spread(values: Sequence[float]) -> dict[str, float]:
    return {
        "first": round(values[0], 1),
        "median": round(statistics.median(values), 1),
        "most": round(max(values), 1),
    }
