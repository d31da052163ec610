"""Tests of conditions from each source, from the design form to the report; on a studio of fakes."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.api.conftest import Service
from tests.browser.conftest import OpenOwner
from tests.browser.listening_tab import begin_design, condition, field, link_of, open_test, setting
from tests.real_studio import ADMIN_PASSWORD
from tests.simulated_rater import SimulatedRater, higher_is_better, tone

TEXTS = "one two three four\nfive six seven eight"
RATERS = 3


def keep(page: Page) -> None:
    page.get_by_text("Raters, checks and texts").click()
    field(page, "headphones").select_option("off")
    page.locator("[data-part=keep]").click()


def report_of(page: Page, fakes: Service, title: str) -> dict[str, Any]:
    """Open the test, let several raters answer, read the report as its owner does; gives its figures."""
    open_test(page, fakes)
    token = link_of(page)

    def pass_time(seconds: float) -> None:
        fakes.clock.ahead_s += seconds

    for _ in range(RATERS):
        assert SimulatedRater(fakes.url, token, pass_time, higher_is_better).finish()["phase"] == "finished"
    page.get_by_role("button", name="Refresh").click()
    expect(page.locator("[data-part=counts]")).to_contain_text(f"{RATERS} joined, {RATERS} finished")
    names = [row.inner_text() for row in page.locator("tbody th").all()]
    with page.expect_popup() as shown:
        page.locator("[data-result='report']").click()
    expect(shown.value.locator("h1")).to_contain_text(title)
    shown.value.wait_for_load_state()
    told = shown.value.locator("body").inner_text()
    assert names and all(name in told for name in names)
    assert shown.value.locator("img, svg").count() >= 1
    address = page.locator("[data-result='report']").get_attribute("href")
    assert address
    figures: dict[str, Any] = page.request.get(address.replace("/report?", "/report.json?")).json()
    assert figures["everyone"]["raters"] == RATERS
    return figures


def values(figures: dict[str, Any]) -> dict[str, float]:
    return {cell["condition"]: cell["value"]["value"] for cell in figures["everyone"]["cells"]}


def test_voices_compared_from_design_to_report(open_owner: OpenOwner, fakes: Service) -> None:
    page = open_owner()
    begin_design(page, "mos", "Ada or Bob")
    for place, name in enumerate(("Ada", "Bob")):
        condition(page, place, f"voice of {name}", "speech").locator("[data-part=voice]").select_option(label=name)
    field(page, "texts").fill(TEXTS)
    keep(page)
    page.locator("[data-part=make]").click()
    expect(page.locator(".test [role=status]")).to_contain_text("4 of 4")
    found = values(report_of(page, fakes, "Ada or Bob"))
    assert found.keys() == {"c1", "c2"}


def test_takes_compared_from_design_to_report(open_owner: OpenOwner, fakes: Service) -> None:
    page = open_owner()
    for voice in ("Ada", "Bob"):
        body = {"input": "one two three four", "voice": voice, "response_format": "wav"}
        assert page.request.post(f"{fakes.url}/v1/audio/speech", data=body).status == 200
    while len(page.request.get(f"{fakes.url}/v1/audio/takes").json()["data"]) < 2:
        pass  # a take is kept after its sound was sent
    begin_design(page, "ab", "Two takes")
    for place, voice in enumerate(("Ada", "Bob")):
        row = condition(page, place, f"take of {voice}", "takes")
        add = row.locator("[data-part=add-take]")
        titles = [title for title in add.locator("option").all_inner_texts() if f"· {voice} ·" in title]
        add.select_option(label=titles[0])
        expect(row.locator("[data-take]")).to_contain_text("one two three four")
    keep(page)
    expect(page.locator("tbody tr").first).to_contain_text("my takes")
    assert report_of(page, fakes, "Two takes")["everyone"]["answers"] == RATERS


@pytest.mark.parametrize("packed", [False, True])
def test_folders_compared_from_design_to_report(
    open_owner: OpenOwner, fakes: Service, tmp_path: Path, packed: bool
) -> None:
    """A folder chosen in the browser, or a zip of it; refused with what to change until it is right."""
    clips = tmp_path / "clips"
    for folder, hertz in (("low", 300), ("high", 900)):
        (clips / folder).mkdir(parents=True)
        for item in ("s01", "s02"):
            (clips / folder / f"{item}.wav").write_bytes(tone(hertz))
    (clips / ".DS_Store").write_bytes(b"\0")
    (clips / "high" / "s02.wav").rename(clips / "s02.wav")

    def choose() -> None:
        part = "zip" if packed else "folder"
        chosen = clips
        if packed:
            chosen = tmp_path / "clips.zip"
            with zipfile.ZipFile(chosen, "w") as archive:
                for file in sorted(clips.rglob("*.*")):
                    archive.write(file, file.relative_to(tmp_path))
        page.locator(f"[data-part={part}]").set_input_files(chosen)

    page = open_owner()
    begin_design(page, "mos", "Two folders")
    choose()
    page.locator("[data-part=keep]").click()
    error = page.locator("[data-error=files]")
    expect(error).to_contain_text('"clips" lacks 1 of the sentences: s01.')  # a clip lay beside the folders
    (clips / "s02.wav").unlink()
    choose()
    expect(page.locator(".condition [data-part=name]")).to_have_count(2)
    assert [row.input_value() for row in page.locator(".condition [data-part=name]").all()] == ["high", "low"]
    expect(page.locator(".condition").nth(1)).to_contain_text("folder low: 2 clips")
    page.locator("[data-part=keep]").click()
    expect(error).to_contain_text('"high" lacks 1 of the sentences: s02.')
    (clips / "high" / "s02.wav").write_bytes(b"%PDF-1.4")
    choose()
    page.locator("[data-part=keep]").click()
    expect(error).to_contain_text('high/s02.wav" cannot be used, and nothing of this upload was kept')
    (clips / "high" / "s02.wav").write_bytes(tone(900))
    choose()
    page.locator(".condition [data-part=name]").first.fill("the high one")  # a name may differ from its folder's
    keep(page)
    expect(page.locator("tbody tr").first).to_contain_text("s02")
    assert values(report_of(page, fakes, "Two folders")) == {"c1": 4.0, "c3": 2.0}  # c2 was the folder too many


def test_settings_of_the_engine_compared_from_design_to_report(open_owner: OpenOwner, fakes: Service) -> None:
    """One press by an administrator makes each condition under its settings; then the old ones are in force again."""
    page = open_owner()
    tuning = fakes.office.tuning
    own = tuning.settings.flow_steps
    begin_design(page, "abx", "Flow steps")
    for place, steps in enumerate((own, 6)):
        setting(condition(page, place, f"{steps} steps", "speech"), "studio/flow_steps").fill(str(steps))
    field(page, "texts").fill(TEXTS)
    keep(page)
    expect(page.locator(".test")).to_contain_text('"6 steps" waits for the settings flow_steps 6')
    page.locator("[data-part=series]").click()
    expect(page.locator(".listening-said")).to_contain_text("Only administrators")
    assert page.request.post(f"{fakes.url}/admin/login", data={"password": ADMIN_PASSWORD}).ok
    page.locator("[data-part=series]").click()
    expect(page.locator(".test [role=status]").first).to_contain_text("4 of 4")
    expect(page.locator("[data-part=series-at]")).to_have_count(0)
    assert tuning.settings.flow_steps == own and tuning.phase == "idle"
    assert [s["flow_steps"] for s in tuning.workers["token2wav"].restarted[-2:]] == [6, own]  # type: ignore[attr-defined]
    found = report_of(page, fakes, "Flow steps")
    assert [row["test"] for row in found["everyone"]["contrasts"]] == ["binomial"]


def test_settings_that_the_engine_does_not_take_are_told_in_the_tab(open_owner: OpenOwner, fakes: Service) -> None:
    page = open_owner()
    worker = fakes.office.tuning.workers["token2wav"]
    begin_design(page, "mos", "Too few")
    setting(condition(page, 0, "one step", "speech"), "studio/flow_steps").fill("1")
    page.get_by_role("button", name="Remove this condition").last.click()
    field(page, "texts").fill(TEXTS)
    keep(page)
    page.request.post(f"{fakes.url}/admin/login", data={"password": ADMIN_PASSWORD})
    worker.refuses = lambda settings: settings["flow_steps"] == 1
    page.locator("[data-part=series]").click()
    expect(page.locator(".test .field-error")).to_contain_text("the studio runs with its own settings again")
    worker.refuses = lambda settings: False
    page.locator("[data-part=series]").click()
    expect(page.locator(".test [role=status]").first).to_contain_text("2 of 2")
    expect(page.locator(".test .field-error")).to_have_count(0)
