"""What outlives a restart, of the engine or of everything. Together in one file, since each takes an engine's start."""

from __future__ import annotations

import re

import httpx
from playwright.sync_api import expect

from tests.browser.conftest import OpenPage
from tests.browser.studio_page import PROMPTS, WAIT_MS
from tests.real_studio import ADMIN_PASSWORD, RealStudio
from tests.simulated_rater import Owner

CLIP = PROMPTS / "slt_hts.flac"
TRANSCRIPT = "They restored the clock tower last summer and it finally keeps the right time."
LONG_TEXT = "The old lighthouse keeper climbed the narrow stairs every evening to light the lamp. " * 6


def test_killed_engine_is_told_at_once_and_comes_back(open_page: OpenPage, studio: RealStudio) -> None:
    page = open_page()
    page.ask(LONG_TEXT)
    expect(page.player).to_have_attribute("data-total-ms", re.compile("[1-9]"), timeout=WAIT_MS)
    studio.worker("vllm_lm").kill()
    page.wait("failed")
    assert "engine stopped while speaking" in page.said()
    told_after_ms = page.page.evaluate("window.tap.toldAt - window.tap.brokeAt")
    assert told_after_ms >= 0  # and before the next engine was there, else the sentence would be another
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
    with studio.held("vllm_lm"):
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


def test_conditions_of_two_flow_steps_are_made_at_one_press_and_the_old_ones_come_back(studio: RealStudio) -> None:
    """The engine takes on each condition's settings in turn; the same tokens are voiced otherwise."""
    owner = Owner(studio.url)
    owner.http.post("/admin/login", json={"password": ADMIN_PASSWORD}).raise_for_status()
    sources = ({"kind": "speech", "voice": "Clara", "studio": {"flow_steps": steps}} for steps in (6, 10))
    conditions = [{"name": name, "source": source} for name, source in zip(("six", "ten"), sources, strict=True)]
    test = owner.create(kind="abx", title="Flow steps", texts=["We are back."], conditions=conditions)["id"]
    before = {name: studio.worker(name).pid for name in ("vllm_lm", "torch_token2wav")}
    assert owner.http.post(f"/admin/listening/{test}/make").json() == {"parts": 2}
    spoken = {"input": "So am I.", "voice": "Clara", "response_format": "pcm"}
    meanwhile = httpx.post(f"{studio.url}/v1/audio/speech", json=spoken, timeout=240)  # waits in line until the end
    assert meanwhile.status_code == 200 and len(meanwhile.content) > 24_000
    studio.until(lambda: not owner.show(test)["making"], "the material")
    shown = owner.show(test)
    assert shown["problem"] == "" and [clip["condition"] for clip in shown["clips"]] == ["c1", "c2"]
    six, ten = (owner.http.get(f"/v1/listening/tests/{test}/material/{c}/s01").content for c in ("c1", "c2"))
    assert len(six) == len(ten) and six != ten
    knobs = {knob["name"]: knob["value"] for knob in owner.http.get("/admin/knobs").json()["knobs"]}
    assert knobs["flow_steps"] == 10
    assert studio.worker("torch_token2wav").pid != before["torch_token2wav"]
    assert studio.worker("vllm_lm").pid == before["vllm_lm"]  # flow steps are none of its settings
    studio.wait_idle()
