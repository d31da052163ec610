"""Checked takes on the page: what is wrong with the take in the player, and more of which the best is kept.

Speech is a sine here, in which the real recogniser hears no words, or other ones; so there always is something wrong.
"""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.access import faults
from tests.browser.conftest import OpenPage
from tests.browser.studio_page import WAIT_MS, StudioPage

TEXT = "the cat sat on the mat"


def speak(open_on_fake_studio: OpenPage) -> StudioPage:
    page = open_on_fake_studio()
    page.pick("Ada")
    expect(page.page.locator("#checks .checks")).to_be_hidden()
    page.ask(TEXT)
    page.wait("done")
    return page


def test_take_is_checked_and_what_is_wrong_is_marked_on_the_waveform(open_on_fake_studio: OpenPage) -> None:
    page = speak(open_on_fake_studio)
    with page.page.expect_response(re.compile("/check$")) as reply:
        page.page.locator("#checks [data-part=check]").click()
    found = reply.value.json()
    assert found["marks"]
    expect(page.page.locator("#checks li")).to_have_count(len(found["reasons"]))
    expect(page.page.locator("#checks [data-part=said]")).to_contain_text("of the words wrong")
    # the mark is behind the waveform, in its own colour
    coloured = """() => {
      const canvas = document.querySelector("#player canvas");
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      let found = 0;
      for (let i = 0; i < data.length; i += 4) if (data[i + 3] && data[i] > data[i + 2] + 40) found += 1;
      return found;
    }"""
    assert page.page.evaluate(coloured) > 0
    page.ask("Another one.")
    expect(page.page.locator("#checks li")).to_have_count(0)


def test_more_takes_are_made_and_the_best_is_kept_with_reasons(open_on_fake_studio: OpenPage) -> None:
    page = speak(open_on_fake_studio)
    page.page.locator("#checks [data-part=best]").click()
    said = page.page.locator("#checks [data-part=said]")
    expect(said).to_have_text(re.compile(r"Kept take \d of 4\."), timeout=WAIT_MS)
    expect(page.page.locator("#checks li audio")).to_have_count(4)
    expect(page.page.locator("#checks li[data-best]")).to_have_count(1)
    assert faults(page.page) == set()
