"""The Admin tab on the real engine: what it shows under load, and settings that restart the engine."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray
from playwright.sync_api import Page, expect

from tests.browser.conftest import PHONE, OpenPage
from tests.browser.studio_page import WAIT_MS, StudioPage
from tests.real_studio import ADMIN_PASSWORD, RealStudio

TEXT = "The old lighthouse keeper climbed the narrow stairs every evening."


@pytest.fixture
def admin(open_page: OpenPage) -> Page:
    return enter(open_page())


def enter(opened: StudioPage) -> Page:
    opened.open_tab("Admin", "管理")
    page = opened.page
    page.locator("#admin [data-ready]").wait_for()
    page.locator("#admin input[name=password]").fill(ADMIN_PASSWORD)
    page.keyboard.press("Enter")
    expect(page.locator("#admin [name=max_num_seqs]")).to_be_visible()
    return page


def speak(studio: RealStudio, replies: list[httpx.Response], text: str = TEXT) -> threading.Thread:
    def run() -> None:
        voice = httpx.get(f"{studio.url}/v1/audio/voices").json()["data"][0]["id"]
        body = {"input": text, "voice": voice, "response_format": "pcm"}
        with contextlib.suppress(httpx.RemoteProtocolError):  # a reply that was broken off is none
            replies.append(httpx.post(f"{studio.url}/v1/audio/speech", json=body, timeout=280))

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.fixture
def speaking(admin: Page, studio: RealStudio) -> Iterator[threading.Thread]:
    # Long: the LM, ahead of what is heard, pauses, and a look a second must meet it at work, also on a busy machine.
    thread = speak(studio, [], f"{TEXT} " * 12)
    yield thread
    thread.join()


def test_kv_use_and_requests_show_under_load_and_return_to_nothing(
    admin: Page, studio: RealStudio, speaking: threading.Thread
) -> None:
    expect(admin.locator("#admin [data-part=requests] tbody tr")).to_have_count(1, timeout=WAIT_MS)
    admin.wait_for_function(
        "() => parseFloat(document.querySelector('#admin [data-part=figures] dd').innerText) > 0"
    )
    expect(admin.locator("#admin [data-part=pages] [data-shade='0']").first).to_be_visible()
    speaking.join()
    studio.wait_idle()
    expect(admin.locator("#admin [data-part=requests]")).to_contain_text("Nobody speaks")
    admin.wait_for_function(
        "() => parseFloat(document.querySelector('#admin [data-part=figures] dd').innerText) === 0"
    )


def test_retakes_show_as_hits_of_the_prefix_cache(admin: Page, studio: RealStudio) -> None:
    before = studio.metric("studio_prefix_cache_hits_tokens_total")
    for _ in range(2):
        speak(studio, [], "One more time.").join()
    studio.wait_idle()
    hits, asked = (studio.metric(f"studio_prefix_cache_{name}_tokens_total") for name in ("hits", "queries"))
    assert hits > before
    figure = admin.locator("#admin [data-part=figures] div", has_text="prefix cache hits")
    expect(figure).to_contain_text(f"{100 * hits / asked:.1f} %")
    expect(figure).to_contain_text(f"{hits:.0f} of {asked:.0f} prompt tokens")


def test_flow_and_vocoder_tell_their_share_of_a_step(admin: Page, studio: RealStudio) -> None:
    speak(studio, []).join()
    names = ("token2wav step", "flow in a step", "vocoder (HiFT) in a step")
    figures = [admin.locator("#admin [data-part=figures] div", has_text=name).locator("dd") for name in names]
    for figure in figures:
        expect(figure).to_have_text(re.compile(r"^[\d.]+ ms$"))
    step, flow, vocoder = (float(figure.inner_text().removesuffix(" ms")) for figure in figures)
    assert min(flow, vocoder) > 0 and flow + vocoder <= 1.01 * step  # three digits of each are shown


def test_request_can_be_ended_from_the_table(admin: Page, studio: RealStudio) -> None:
    replies: list[httpx.Response] = []
    thread = speak(studio, replies, f"{TEXT} " * 20)
    admin.locator("#admin [data-part=requests] button").click(timeout=WAIT_MS)
    studio.wait_idle()
    thread.join()
    assert not [reply for reply in replies if reply.status_code == 200]
    expect(admin.locator("#admin [data-part=requests]")).to_contain_text("Nobody speaks")


def test_guidance_is_heard_in_the_next_request_and_its_old_value_brings_the_old_sound_back(
    admin: Page, studio: RealStudio
) -> None:
    """Hops differ with the machine's load, and sums in another order move the pitch a little: see `hift_weights` of
    tests/parity/test_token2wav_torch.py."""
    pid = studio.worker("torch_token2wav").pid
    voice = httpx.get(f"{studio.url}/v1/audio/voices").json()["data"][0]["id"]
    field = admin.locator("#admin [name=guidance]")
    newest_change = admin.locator("#admin [data-part=log] tbody tr").first.locator("td").nth(3)

    def sound() -> NDArray[np.float64]:
        body = {"input": "Good evening.", "voice": voice, "seed": 7, "response_format": "pcm"}
        reply = httpx.post(f"{studio.url}/v1/audio/speech", json=body, timeout=280)
        return np.frombuffer(reply.raise_for_status().content, "<i2").astype(np.float64)

    own, sounds = field.input_value(), [sound()]
    for guidance in ("2.5", own):
        field.fill(guidance)
        admin.locator("#admin [data-part=apply]").click()
        expect(newest_change).to_contain_text(guidance)  # shown last, when the fields stand anew
        sounds.append(sound())
    first, other, again = sounds
    assert len(first) == len(other) == len(again)  # the speech LM has no part in it
    apart, near = (np.linalg.norm(of - first) / np.linalg.norm(first) for of in (other, again))
    assert near < 0.05 and apart > 0.2, (near, apart)
    assert studio.worker("torch_token2wav").pid == pid


def test_engine_restarts_under_two_waiting_requests_and_a_bad_value_is_taken_back(
    admin: Page, studio: RealStudio
) -> None:
    pid = studio.worker("vllm_lm").pid
    replies: list[httpx.Response] = []
    admin.locator("#admin [name=max_num_seqs]").fill("8")
    admin.locator("#admin [name=max_model_len]").fill("3072")
    admin.locator("#admin [data-part=preview]").click()
    plan = admin.locator("#admin [data-part=plan]")
    expect(plan).to_contain_text("Changes max_num_seqs, max_model_len.")
    expect(plan).to_contain_text("The engine restarts")
    admin.locator("#admin [data-part=apply]").click()
    expect(plan).to_contain_text("Restarting the engine")
    waiting = [speak(studio, replies) for _ in range(2)]
    studio.until(lambda: studio.metric("studio_requests_waiting") == 2, "two waiting requests")
    expect(plan).to_contain_text("In force.", timeout=WAIT_MS)
    for thread in waiting:
        thread.join()
    assert [reply.status_code for reply in replies] == [200, 200] and all(len(r.content) > 24000 for r in replies)
    assert studio.worker("vllm_lm").pid != pid
    expect(admin.locator("#admin [name=max_num_seqs]")).to_have_value("8")
    expect(admin.locator("#admin [name=max_model_len]")).to_have_value("3072")
    newest = admin.locator("#admin [data-part=log] tbody tr").first
    expect(newest).to_contain_text("max_num_seqs = 8, max_model_len = 3072")
    held = int(studio.metric("studio_kv_cache_blocks"))  # as vLLM counts them, beside what was planned
    expect(newest.locator("td").last).to_contain_text(re.compile(rf"^\d+ / {held}; "))

    admin.locator("#admin [name=kv_cache_gib]").fill("0.05")
    admin.locator("#admin [name=max_model_len]").fill("32768")
    admin.locator("#admin [data-part=apply]").click()
    expect(admin.locator("#admin [data-part=knob-error]")).to_contain_text("KV cache would hold")
    admin.locator("#admin [data-part=force]").check()
    admin.locator("#admin [data-part=apply]").click()
    expect(plan).to_contain_text("Taken back:", timeout=WAIT_MS)
    expect(admin.locator("#admin [data-part=log] tbody tr").first).to_contain_text("taken back")
    expect(admin.locator("#admin [name=max_model_len]")).to_have_value("3072")
    after: list[httpx.Response] = []
    speak(studio, after).join()
    assert after[0].status_code == 200


def test_load_from_the_tab_is_measured_on_the_real_engine(admin: Page) -> None:
    expect(admin.locator("#admin [name=lab_sweep]")).to_have_value("load")  # the Lab knows what can be tried
    admin.locator("#admin [name=lab_values]").fill("1")
    admin.locator("#admin [name=lab_seconds]").fill("1")
    admin.locator("#admin [name=lab_text_s]").select_option("3")
    admin.locator("#admin [data-part=lab-start]").click()
    run = admin.locator("#admin [data-part=lab-runs] details").first
    expect(run.locator("summary")).to_contain_text("finished", timeout=WAIT_MS)
    heads = run.locator("th").all_inner_texts()
    figures = dict(zip(heads, run.locator("tbody td").all_inner_texts(), strict=True))
    assert (figures["streams"], figures["failures"], figures["outcome"]) == ("1", "0", "measured")
    # The planner has the costs of a step from what was spoken before.
    assert all(float(figures[name]) > 0 for name in ("ttfa_p50_ms", "audio_s_per_s", "planned_ttfa_ms"))


def test_tab_fits_a_phone_and_speaks_chinese(open_page: OpenPage) -> None:
    page = enter(open_page(locale="zh-CN", theme="dark", viewport=PHONE))
    expect(page.locator("#admin h2").first).to_have_text("现在")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    rights = page.locator("#admin td").evaluate_all("cells => cells.map((cell) => cell.getBoundingClientRect().right)")
    assert len(rights) > 50 and max(rights) <= PHONE["width"]  # all of a setting is seen without scrolling sideways
    fills = [
        page.locator(f"#admin [data-part={name}]").evaluate("button => getComputedStyle(button).backgroundColor")
        for name in ("apply", "preview")
    ]
    assert fills[0] != fills[1]


def test_password_that_is_sent_before_the_page_listens_goes_nowhere(open_page: OpenPage) -> None:
    page = open_page()
    page.open_tab("Admin", "管理")
    # Without its script another form would put what was typed into the address.
    expect(page.page.locator("#admin form")).to_have_attribute("method", "dialog")
