"""The Listening tests tab as an owner uses it: design, material, links, results, deletion; on a studio of fakes."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import expect

from tests.api.conftest import Service
from tests.browser.access import faults
from tests.browser.conftest import PHONE, OpenOwner
from tests.browser.listening_tab import begin_design, condition, field, link_of, open_test, setting
from tests.simulated_rater import SimulatedRater, higher_is_better, tone


def test_settings_compared_from_design_to_answers_without_a_file(open_owner: OpenOwner, fakes: Service) -> None:
    """The studio speaks the same sentences under two settings; a rater answers; the owner sees it counted."""
    page = open_owner()
    begin_design(page, "ab", "Cooler or hotter")
    for place, (name, temperature) in enumerate((("cool", "0.6"), ("hot", "1.3"))):
        setting(condition(page, place, name, "speech"), "settings/temperature").fill(temperature)
    field(page, "texts").fill("one two three four\nfive six seven eight")
    page.get_by_text("Raters, checks and texts").click()
    field(page, "headphones").select_option("off")
    page.locator("[data-part=keep]").click()
    page.locator("[data-part=make]").click()
    expect(page.locator(".test [role=status]")).to_contain_text("4 of 4")
    open_test(page, fakes)
    token = link_of(page)

    def pass_time(seconds: float) -> None:
        fakes.clock.ahead_s += seconds

    rater = SimulatedRater(fakes.url, token, pass_time, higher_is_better)
    assert rater.finish()["phase"] == "finished"
    page.get_by_role("button", name="Refresh").click()
    expect(page.locator("[data-part=counts]")).to_contain_text("1 joined, 1 finished, 2 answers")
    drawn = page.locator("img[data-picture=values]")
    expect(drawn).to_have_js_property("complete", True)
    assert drawn.evaluate("picture => picture.naturalWidth") > 300
    with page.expect_popup() as shown:
        page.locator("[data-result='report']").click()
    expect(shown.value.locator("h1")).to_contain_text("Cooler or hotter")


def test_problems_are_shown_while_they_can_be_changed(open_owner: OpenOwner, tmp_path: Path) -> None:
    page = open_owner()
    begin_design(page, "mushra", "")
    condition(page, 0, "natural", "upload")
    condition(page, 1, "natural", "upload")
    page.locator("[data-part=keep]").click()
    expect(page.locator("[data-error=title]")).to_be_visible()
    field(page, "title").fill("Uploads")
    page.locator("[data-part=keep]").click()
    expect(page.locator("[data-error=conditions]")).to_contain_text("natural")
    condition(page, 1, "copied", "upload")
    field(page, "reference").select_option("natural")
    page.locator("[data-part=keep]").click()
    expect(page.locator(".problems")).to_contain_text("There are no clips yet")
    files = {name: tmp_path / name for name in ("s01.wav", "s02.wav", "broken.wav")}
    for name, file in files.items():
        file.write_bytes(b"RIFFxxxxWAVE" if name == "broken.wav" else tone(400))
    page.locator("[data-upload=natural]").set_input_files([files["s01.wav"], files["broken.wav"]])
    expect(page.locator(".listening-said")).to_contain_text("broken.wav")
    page.locator("[data-upload=natural]").set_input_files([files["s01.wav"], files["s02.wav"]])
    expect(page.locator("tbody tr").first).to_contain_text("s02")
    page.locator("[data-upload=copied]").set_input_files([files["s01.wav"]])
    expect(page.locator(".problems [data-level=error]")).to_contain_text("s02")
    page.locator("[data-part=open]").click()
    expect(page.locator(".listening-said")).to_contain_text("s02")
    page.locator("[data-upload=copied]").set_input_files([files["s01.wav"], files["s02.wav"]])
    expect(page.locator(".problems [data-level=error]")).to_have_count(0)
    page.locator("[data-part=open]").click()
    expect(page.locator("h2 .badge")).to_have_attribute("data-state", "open")


def test_owner_of_an_arena_chooses_when_its_visitors_see_the_leaderboard(open_owner: OpenOwner) -> None:
    page = open_owner()
    begin_design(page, "ab", "Arena")
    expect(field(page, "leaderboard")).to_be_hidden()
    field(page, "arena").check()
    field(page, "leaderboard").select_option("always")
    field(page, "leaderboard_votes").fill("7")
    for place, heat in enumerate(("0.5", "1.2")):
        setting(condition(page, place, f"heat {heat}", "speech"), "settings/temperature").fill(heat)
    page.locator("[data-part=keep]").click()
    page.locator("[data-part=edit]").click()
    expect(field(page, "leaderboard")).to_have_value("always")
    expect(field(page, "leaderboard_votes")).to_have_value("7")


def test_deleting_asks_for_the_title_and_offers_the_export(open_owner: OpenOwner) -> None:
    page = open_owner()
    begin_design(page, "mos", "To go")
    condition(page, 0, "one", "upload")
    condition(page, 1, "two", "upload")
    page.locator("[data-part=keep]").click()
    page.locator("[data-part=delete]").click()
    page.locator("[data-part=really]").click()
    expect(page.locator("dialog .field-error")).to_contain_text("To go")
    page.locator("dialog input").fill("To go")
    page.locator("[data-part=really]").click()
    with page.expect_download() as export:
        page.locator("[data-part=deleted] a").click()
    assert export.value.path().read_bytes().startswith(b"PK")
    page.get_by_role("button", name="All tests").click()
    expect(page.locator(".listening")).to_have_attribute("data-state", "empty")


def test_the_tab_speaks_chinese_fits_a_phone_and_has_no_faults_of_access(open_owner: OpenOwner) -> None:
    for theme in ("light", "dark"):
        page = open_owner(locale="zh-CN", viewport=PHONE, theme=theme)
        begin_design(page, "mushra", "盲听")
        page.locator(".condition [data-part=source]").first.select_option("takes")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        shown = page.locator(".listening").locator("fieldset, .condition, .field, select").all()
        edges = [box["x"] + box["width"] for one in shown if (box := one.bounding_box())]
        assert edges and max(edges) <= PHONE["width"]  # a form may be cut off without the page scrolling
        assert faults(page, ".listening") == set()
