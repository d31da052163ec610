"""The page as a person uses it: fields to fill, buttons to press, and what the player measured."""

from __future__ import annotations

import io
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from playwright.sync_api import Locator, Page, TimeoutError, expect

from tests.real_studio import ROOT

PROMPTS = ROOT / "tests" / "fixtures" / "prompts"
WAIT_MS = 400_000
"""For what the engine has to do, on a machine that may be busy."""


_JUDGED = re.compile("✅|⚠")
_ENDED = re.compile("^(done|failed|refused|stopped)$")


@dataclass(frozen=True)
class Heard:
    """What the player measured of one utterance."""

    first_ms: float
    underruns: int
    played_ms: int
    total_ms: int


class StudioPage:
    """One open page."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.player = page.locator("#player .player")
        self.engine = page.locator("#engine .engine-status")
        self.text = page.locator("#text textarea")
        self.speak_button = page.locator("#speak")
        self.transcript = page.locator("#transcript textarea")
        self.voice = page.locator("#voice input")
        self.verdict = page.locator("#verdict")
        self.kept = page.locator("#kept")

    def said(self) -> str:
        return self.player.locator("[data-part=status]").inner_text()

    def error_at(self, field: str) -> Locator:
        return self.page.locator(f"#error-{field} [data-part=error]")

    def open_tab(self, *names: str) -> None:
        """Open the tab that has one of these names; where the screen is narrow it may be in Gradio's menu of tabs."""
        self.page.wait_for_selector("#player [data-ready]", state="attached", timeout=WAIT_MS)  # it may be loading
        name = re.compile(f"^({'|'.join(names)})$")
        for _ in range(20):  # for Gradio measures the tabs anew now and then, and puts one away that was there just now
            tab = self.page.get_by_role("tab", name=name)
            with suppress(TimeoutError):
                if not tab.is_visible():
                    self.page.locator(".overflow-menu > button").first.click(timeout=6_000)
                    tab = self.page.locator(".overflow-dropdown button", has_text=name)
                return tab.click(timeout=6_000)
        raise AssertionError(f"no tab {names}")

    def open_clone(self) -> None:
        self.page.locator("#source").get_by_role("tab").nth(1).click()
        expect(self.transcript).to_be_visible()

    def give_clip(self, file: Path, transcript: str = "") -> None:
        """Upload a clip, wait for the verdict on it, and type what is said in it."""
        self.page.locator("#clip input[type=file]").set_input_files(file)
        expect(self.verdict).to_contain_text(_JUDGED)
        self.transcript.fill(transcript)

    def drop(self, file: Path, on: Locator) -> None:
        """Drop a file from outside the browser, as from a folder; the browser itself makes the events."""
        on.scroll_into_view_if_needed()
        box = on.bounding_box()
        assert box is not None
        at = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
        data = {"items": [], "files": [str(file)], "dragOperationsMask": 1}
        session = self.page.context.new_cdp_session(self.page)
        for kind in ("dragEnter", "dragOver", "drop"):
            session.send("Input.dispatchDragEvent", {"type": kind, **at, "data": data})
        session.detach()

    def record(self) -> None:
        """Speak four seconds into the microphone; the recorder's own clock tells when."""
        clip = self.page.locator("#clip")
        clip.get_by_label("Record audio").click()
        clip.locator("button.record-button").click()
        expect(clip.locator("time.duration")).to_have_text(re.compile("0:(0[4-9]|[12][0-9])"))
        clip.locator("button.stop-button").click()
        expect(self.verdict).to_contain_text(_JUDGED)

    def keep(self, name: str, agreed: bool = True) -> None:
        self.page.locator("#name input, #name textarea").fill(name)
        self.page.locator("#consent input").set_checked(agreed)
        self.page.locator("#keep").click()
        expect(self.kept).to_contain_text(_JUDGED)

    def pick(self, name: str) -> None:
        """Choose a voice from the list."""
        self.page.locator("#source").get_by_role("tab").first.click()
        self.voice.click()
        self.page.get_by_role("option", name=name).click()
        expect(self.voice).to_have_value(re.compile(re.escape(name)))

    def ask(self, text: str) -> None:
        self.text.fill(text)
        self.speak_button.click()

    def wait(self, state: str) -> None:
        expect(self.player).to_have_attribute("data-state", state, timeout=WAIT_MS)

    def hear(self, text: str) -> Heard:
        """Speak a text to its end."""
        self.player.evaluate("player => { player.dataset.state = 'before' }")  # not the earlier play's end
        self.ask(text)
        expect(self.player).to_have_attribute("data-state", _ENDED, timeout=WAIT_MS)
        assert self.state() == "done", self.said()
        return self.heard()

    def states_until_ended(self, press: Locator) -> list[str]:
        """Press what makes the player play, and wait for its end; every state that it was in, however short."""
        self.player.evaluate("""player => {
          player.dataset.state = "before"; // not the earlier play's end
          window.states = [];
          new MutationObserver(() => window.states.push(player.dataset.state))
            .observe(player, { attributeFilter: ["data-state"] });
        }""")
        press.click()
        expect(self.player).to_have_attribute("data-state", _ENDED, timeout=WAIT_MS)
        states: list[str] = self.page.evaluate("window.states")
        return states

    def state(self) -> str | None:
        return self.player.get_attribute("data-state")

    def heard(self) -> Heard:
        figures = self.player.evaluate("p => ({...p.dataset})")
        return Heard(
            float(figures["firstMs"] or 0),
            int(figures["underruns"]),
            int(figures["playedMs"]),
            int(figures["totalMs"]),
        )

    def wav(self) -> np.ndarray:
        """The sound behind the download link, float32 at 24 kHz."""
        with self.page.expect_download() as download:
            self.player.locator("[data-part=download]").click()
        samples, rate_hz = soundfile.read(io.BytesIO(download.value.path().read_bytes()), dtype="float32")
        assert rate_hz == 24000
        return samples
