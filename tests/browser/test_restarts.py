"""What outlives a restart, of the engine or of everything. Together in one file, since each takes an engine's start."""

from __future__ import annotations

import re

import httpx
from playwright.sync_api import expect

from tests.browser.conftest import OpenPage
from tests.browser.studio_page import PROMPTS, WAIT_MS
from tests.real_studio import RealStudio

CLIP = PROMPTS / "slt_hts.flac"
TRANSCRIPT = "They restored the clock tower last summer and it finally keeps the right time."
LONG_TEXT = "The old lighthouse keeper climbed the narrow stairs every evening to light the lamp. " * 6
TOLD_WITHIN_MS = 2000


def test_killed_engine_is_told_at_once_and_comes_back(open_page: OpenPage, studio: RealStudio) -> None:
    page = open_page()
    page.ask(LONG_TEXT)
    expect(page.player).to_have_attribute("data-total-ms", re.compile("[1-9]"), timeout=WAIT_MS)
    studio.worker("vllm_lm").kill()
    page.wait("failed")
    assert "engine stopped while speaking" in page.said()
    told_after_ms = page.page.evaluate("window.tap.toldAt - window.tap.brokeAt")
    assert 0 <= told_after_ms < TOLD_WITHIN_MS
    expect(page.engine).to_have_attribute("data-state", "starting")
    expect(page.engine).to_contain_text("speech model: ")
    expect(page.player.locator("[data-part=download]")).to_be_visible()  # what came so far is kept
    expect(page.engine).to_have_attribute("data-state", "ready", timeout=WAIT_MS)
    heard = page.hear("We are back.")
    assert heard.played_ms == heard.total_ms > 0
    studio.wait_idle()


def test_kept_voice_is_there_after_a_restart_and_speaks(open_page: OpenPage, studio: RealStudio) -> None:
    page = open_page()
    page.open_clone()
    page.give_clip(CLIP, TRANSCRIPT)
    page.keep("Anna of the tower")
    expect(page.kept).to_contain_text('Saved as "Anna of the tower"')
    blend = {"voices": [{"voice": "Anna of the tower"}, {"voice": "Clara"}], "name": "Annara", "consent": "agreed"}
    assert httpx.post(f"{studio.url}/v1/audio/voice-designs", json=blend).status_code == 200
    studio.stop()
    expect(page.engine).to_have_attribute("data-state", "lost")
    studio.start()
    studio.wait_answering()
    again = open_page(ready=False)
    expect(again.engine).to_have_attribute("data-state", "starting")
    again.ask("Too early.")
    again.wait("failed")
    assert "The engine is starting" in again.said()
    expect(again.engine).to_have_attribute("data-state", "ready", timeout=WAIT_MS)
    again.pick("Anna of the tower")
    expect(again.page.locator("#voice-details")).to_contain_text(TRANSCRIPT)
    heard = again.hear("I am still here.")
    assert heard.played_ms == heard.total_ms > 0
    again.page.locator("#delete-voice").click()
    expect(again.voice).not_to_have_value(re.compile("Anna"))
    # The blend has outlived the restart too, and now the deletion of a voice that it is made of.
    spoken = {"input": "So am I.", "voice": "Annara", "response_format": "pcm"}
    assert len(httpx.post(f"{studio.url}/v1/audio/speech", json=spoken, timeout=120).content) > 24_000
    httpx.delete(f"{studio.url}/v1/audio/voices/Annara?forever=true")
