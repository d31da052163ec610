"""How soon the page is heard: from the first bytes of a scripted source to the first sound, over 20 plays each.

Run on request, on an idle machine: `pytest tests/load/test_page_first_sound.py -s`. Prints a line of JSON each.
"""

from __future__ import annotations

import json
import statistics

import pytest

from studio.backends.fake import Finish, Say
from tests.api.conftest import Service
from tests.browser.conftest import OpenPage, chromium, fakes, microphone_file, open_on_fakes, running_fakes

__all__ = ["chromium", "fakes", "microphone_file", "open_on_fakes", "running_fakes"]
PLAYS = 20


@pytest.mark.parametrize("transport", ["http", "websocket"])
def test_first_sound_follows_the_first_bytes(open_on_fakes: OpenPage, fakes: Service, transport: str) -> None:
    page = open_on_fakes()
    page.page.locator("#more-options summary").click()
    page.page.locator("#speech-options [name=transport]").select_option(transport)
    page.page.locator("#speech-options [name=quality]").select_option("fast")
    waits, underruns = [], 0
    for _ in range(PLAYS):
        fakes.lm.enqueue(Say(50), Finish())
        heard = page.hear("two seconds")
        first_bytes_ms = float(page.player.get_attribute("data-first-bytes-ms") or "nan")
        waits.append(heard.first_ms - first_bytes_ms)
        underruns += heard.underruns
    found = {
        "transport": transport,
        "plays": PLAYS,
        "first_sound_after_first_bytes_ms": {
            "first": round(waits[0], 1),
            "median": round(statistics.median(waits), 1),
            "most": round(max(waits), 1),
        },
        "underruns": underruns,
    }
    print(json.dumps(found))
    assert underruns == 0
