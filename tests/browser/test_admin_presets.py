"""Settings by name, from a file, and what the log says of a change, in the Admin tab on the scripted engine."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from studio.admin.access import ADMIN_COOKIE
from studio.admin.knobs import tunable
from tests.api.conftest import Service
from tests.browser.conftest import PHONE, OpenPage
from tests.browser.test_admin import enter


@pytest.fixture
def looked_after(fakes: Service) -> Iterator[Service]:
    """The settings of the start, before and after: the service is shared."""
    own = fakes.office.tuning.settings
    yield fakes
    fakes.until(lambda: fakes.office.tuning.phase == "idle")
    fakes.in_loop(lambda: fakes.office.tuning.apply(own))
    fakes.office.tuning.settings = own
    fakes.worker.refuses = lambda settings: False
    for name in fakes.office.log.presets():
        fakes.office.log.delete_preset(name)


@pytest.fixture
def admin(open_on_fakes: OpenPage, looked_after: Service) -> Page:
    return enter(open_on_fakes())


def part(page: Page, name: str) -> Locator:
    return page.locator(f"#admin [data-part={name}]")


def field(page: Page, name: str) -> Locator:
    return page.locator(f"#admin [data-part=knobs] [name={name}]")


def session(page: Page, service: Service) -> str:
    """By which the log knows who has entered here with the password."""
    (cookie,) = (c["value"] for c in page.context.cookies() if c["name"] == ADMIN_COOKIE)
    return service.office.access.who(cookie)


def newest(page: Page) -> Locator:
    """The cells of the latest change: when, who, before, after, outcome, planned / found."""
    return page.locator("#admin [data-part=log] tbody tr").first.locator("td")


def apply(page: Page, service: Service) -> None:
    """Apply what the fields hold; at its end the log has one more change."""
    logged = len(service.office.log.latest())
    part(page, "apply").click()
    expect(page.locator("#admin [data-part=log] tbody tr")).to_have_count(logged + 1)
    expect(part(page, "plan")).to_have_text("In force.")


def give(page: Page, text: str, name: str = "studio.toml") -> None:
    part(page, "import").set_input_files({"name": name, "mimeType": "text/plain", "buffer": text.encode()})


def test_preset_keeps_what_the_fields_hold_and_brings_it_back(
    admin: Page, looked_after: Service, open_on_fakes: OpenPage
) -> None:
    own = field(admin, "queue_size").input_value()
    for name, value in (("queue_size", "5"), ("top_p", "0.5")):
        field(admin, name).fill(value)
    field(admin, "lm_graphs").select_option("pieces")
    field(admin, "async_scheduling").check()
    part(admin, "preset-name").fill("night shift")
    part(admin, "save-preset").click()
    expect(part(admin, "preset-name")).to_have_value("")
    expect(part(admin, "presets").locator("option")).to_have_text(["Put into the fields", "night shift"])
    assert looked_after.office.log.presets()["night shift"]["queue_size"] == 5

    again = open_on_fakes(beside=admin)  # where nothing is typed
    again.open_tab("Admin", "管理")
    admin = again.page
    expect(field(admin, "queue_size")).to_have_value(own)
    field(admin, "queue_size").fill("7")
    part(admin, "presets").select_option("night shift")
    expect(field(admin, "queue_size")).to_have_value("5")
    expect(field(admin, "top_p")).to_have_value("0.5")
    expect(field(admin, "lm_graphs")).to_have_value("pieces")
    expect(field(admin, "async_scheduling")).to_be_checked()
    assert looked_after.office.tuning.settings.queue_size == int(own)
    apply(admin, looked_after)
    now = looked_after.office.tuning.settings
    assert (now.queue_size, now.top_p, now.lm_graphs, now.async_scheduling) == (5, 0.5, "pieces", True)


def test_log_says_who_changed_what_when_and_what_was_planned_and_found(
    admin: Page, looked_after: Service, open_on_fakes: OpenPage
) -> None:
    looked_after.in_loop(lambda: looked_after.worker.reports(kv_cache_blocks=100, block_size_tokens=32))
    began_s = time.time()
    field(admin, "queue_size").fill("6")
    apply(admin, looked_after)
    when, who, before, after, outcome, told = newest(admin).all_inner_texts()
    (change, *_) = looked_after.office.log.latest()
    assert began_s - 1 <= change["at_s"] <= time.time()
    assert when == admin.evaluate("at_s => new Date(1000 * at_s).toLocaleString()", change["at_s"])
    assert (before, after, outcome.strip()) == ("queue_size = 32", "queue_size = 6", "applied")
    assert who == session(admin, looked_after) != session(enter(open_on_fakes()), looked_after)
    planned = change["predicted"]
    assert told.split("; ")[:2] == [f"{planned['kv_blocks']} / 100", f"{planned['kv_tokens']} / 3200"]
    assert planned["kv_tokens"] == 32 * planned["kv_blocks"] > 0


def test_change_that_is_taken_back_is_logged_with_its_reason(admin: Page, looked_after: Service) -> None:
    looked_after.worker.refuses = lambda settings: settings["max_num_seqs"] == 3
    logged = len(looked_after.office.log.latest())
    field(admin, "max_num_seqs").fill("3")
    part(admin, "apply").click()
    expect(admin.locator("#admin [data-part=log] tbody tr")).to_have_count(logged + 1)
    cells = newest(admin)
    expect(cells.nth(1)).to_have_text(session(admin, looked_after))
    expect(cells.nth(2)).to_have_text("max_num_seqs = 16")
    expect(cells.nth(3)).to_have_text("max_num_seqs = 3")
    expect(cells.nth(4)).to_have_text("taken back The engine could not be started: no room for the KV cache")
    expect(field(admin, "max_num_seqs")).to_have_value("16")


def test_try_after_a_restart_is_beside_what_was_planned_of_it(admin: Page, looked_after: Service) -> None:
    field(admin, "max_num_seqs").fill("12")
    apply(admin, looked_after)
    (change, *_) = looked_after.office.log.latest()
    heads = admin.locator("#admin [data-part=log] th")
    expect(heads.last).to_have_text("planned / found: KV blocks, tokens, LM memory, first audio, sound a second")
    first_audio, sound = newest(admin).nth(5).inner_text().split("; ")[3:]
    assert first_audio.endswith(f" / {change['found']['first_audio_s']:.2f} s")
    assert sound.endswith(f" / {change['found']['audio_s_per_s']:.2f}")


def test_file_fills_the_fields_and_waits_to_be_applied(admin: Page, looked_after: Service) -> None:
    url = part(admin, "export").get_attribute("href")
    exported = admin.request.get(str(url)).text()
    give(admin, exported, "as it is.toml")
    expect(part(admin, "plan")).to_have_text(
        f"Settings read from as it is.toml: {len(tunable())}, all as they are now."
    )
    field(admin, "hop_growth").fill("3")
    give(admin, "queue_size = 4\ntop_k = 9\n")
    expect(part(admin, "plan")).to_have_text(
        "Settings read from studio.toml: 2; nothing is applied yet. Other than now: queue_size, top_k."
    )
    expect(field(admin, "queue_size")).to_have_value("4")
    expect(field(admin, "hop_growth")).to_have_value("3")  # which the file does not name
    assert looked_after.office.tuning.settings.queue_size == 32
    part(admin, "preview").click()
    expect(part(admin, "plan")).to_contain_text("Nothing restarts.")
    apply(admin, looked_after)
    expect(newest(admin).nth(3)).to_have_text("hop_growth = 3, top_k = 9, queue_size = 4")
    give(admin, exported, "as it is.toml")  # and all of it back, with what was unset
    apply(admin, looked_after)
    expect(newest(admin).nth(3)).to_have_text("hop_growth = 2, top_k = –, queue_size = 32")


def test_what_a_file_has_of_no_use_is_told_by_name(admin: Page, looked_after: Service) -> None:
    field(admin, "max_running").fill("5")
    give(admin, "STUDIO_QUEUE_SIZE=3\nSTUDIO_PORT=1\nSTUDIO_QUUE_SIZE=2\nSTUDIO_TOP_P=7\n", "studio.env")
    expect(part(admin, "knob-error")).to_have_text(
        "Not taken from studio.env:\nUnknown setting STUDIO_QUUE_SIZE. Did you mean STUDIO_QUEUE_SIZE?\n"
        "port cannot be changed while the studio runs.\ntop_p: Input should be less than or equal to 1",
        use_inner_text=True,
    )
    expect(field(admin, "queue_size")).to_have_value("3")
    expect(field(admin, "top_p")).to_have_value("")
    give(admin, "not of this kind", "notes.txt")
    expect(part(admin, "knob-error")).to_contain_text("This is no file of settings")
    expect(field(admin, "queue_size")).to_have_value("3")
    expect(field(admin, "max_running")).to_have_value("5")
    give(admin, "max_num_seqs = 200\nmax_num_batched_tokens = 100\n")  # each in its bounds
    expect(field(admin, "max_num_batched_tokens")).to_have_value("100")  # read, before it is applied
    part(admin, "apply").click()
    expect(part(admin, "knob-error")).to_contain_text("max_num_batched_tokens: less than max_num_seqs, 200.")
    assert looked_after.office.tuning.settings.max_num_seqs == 16


def test_file_is_chosen_by_keyboard_and_on_a_phone_in_chinese(
    open_on_fakes: OpenPage, looked_after: Service
) -> None:
    page = enter(open_on_fakes(locale="zh-CN", theme="dark", viewport=PHONE))
    part(page, "export-env").focus()
    page.keyboard.press("Tab")
    expect(part(page, "import")).to_be_focused()
    with page.expect_file_chooser() as chosen:
        page.get_by_text("从文件读取").click()
    chosen.value.set_files({"name": "s.toml", "mimeType": "text/plain", "buffer": b"queue_size = 4\nport = 1\n"})
    expect(part(page, "plan")).to_have_text("s.toml：已读取 1 项设置，尚未应用。与现在不同的有：queue_size。")
    expect(part(page, "knob-error")).to_contain_text("工作室运行时不能更改 port。")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
