"""What the Admin tab shows of the machine, and what may be asked of the LM, on the scripted engine."""

from __future__ import annotations

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.api.conftest import Service
from tests.browser.conftest import OpenPage
from tests.browser.test_admin import enter


@pytest.fixture
def admin(open_on_fakes: OpenPage) -> Page:
    return enter(open_on_fakes())


def speak(service: Service) -> None:
    body = {"input": "one two three", "voice": "Ada", "response_format": "pcm"}
    httpx.post(f"{service.url}/v1/audio/speech", json=body, timeout=120).raise_for_status()


def test_ladder_of_overload_shows_what_was_given_up_and_how_often(admin: Page, fakes: Service) -> None:
    rungs = admin.locator("#admin [data-part=ladder] [data-rung]")
    expect(rungs).to_have_count(6)
    expect(rungs.nth(2)).to_contain_text("unused voices forgotten")
    smaller = admin.locator("#admin [data-rung=smaller_batch]")
    before = int(smaller.locator("output").inner_text())
    fakes.token2wav.given_up = ("smaller_batch",)  # the one that leaves the shared engine as it was
    speak(fakes)
    expect(smaller.locator("output")).to_have_text(str(before + 1))
    expect(smaller).to_have_attribute("data-taken", "true")


def test_machine_without_a_gpu_says_so(admin: Page) -> None:
    expect(admin.locator("#admin [data-part=gpus]")).to_have_text("The studio uses no GPU on this machine.")
    expect(admin.locator("#admin [data-chart=gpu_mb]")).to_have_count(0)


def test_knobs_stand_in_groups_and_a_live_one_acts_without_a_restart(admin: Page, fakes: Service) -> None:
    heads = admin.locator("#admin [data-part=knobs] h3")
    expect(heads).to_have_text(
        ["Server", "Speech LM", "Flow and vocoder", "Sampling where a request names none", "Limits"]
    )
    restarts, logged = len(fakes.worker.restarted), len(fakes.office.log.latest())
    changes = admin.locator("#admin [data-part=log] tbody tr")
    for number, tokens in enumerate(("50", "25"), 1):
        admin.locator("#admin [name=first_hop_tokens]").fill(tokens)
        admin.locator("#admin [data-part=apply]").click()
        expect(changes).to_have_count(logged + number)  # shown last, when the fields stand anew
        expect(admin.locator("#admin [data-part=plan]")).to_have_text("In force.")
        expect(admin.locator("#admin [name=first_hop_tokens]")).to_have_value(tokens)
        assert fakes.engine._voicing.scheduler.hops.first_tokens == int(tokens)
    assert len(fakes.worker.restarted) == restarts


def test_cached_prompts_are_forgotten_and_sleep_is_refused_on_a_cpu(admin: Page, fakes: Service) -> None:
    resets = fakes.lm.resets
    admin.locator("#admin [data-part=forget]").click()
    expect(admin.locator("#admin [data-part=lm-told]")).to_have_text("Cached prompts are forgotten.")
    assert fakes.lm.resets == resets + 1
    admin.locator("#admin [data-part=sleep]").click()
    expect(admin.locator("#admin [data-part=lm-error]")).to_contain_text("Only a GPU's memory can be given back")
    expect(admin.locator("#admin [data-part=wake]")).to_be_hidden()
