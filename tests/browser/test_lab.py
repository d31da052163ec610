"""The Lab of the Admin tab: a sweep that restarts the (scripted) engine, its curves, its table and its CSV."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, expect

from studio.backends.fake import Finish, Say, WaitFor
from tests.api.conftest import Service, serve, stop
from tests.browser.conftest import opening
from tests.browser.test_admin import enter
from tests.real_studio import ADMIN_PASSWORD


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    running: list[tuple[uvicorn.Server, threading.Thread]] = []
    service = serve(tmp_path_factory.mktemp("lab"), running, "--admin-password", ADMIN_PASSWORD)
    service.in_loop(service.forget)  # which gives it a voice
    yield service
    stop(running)


@pytest.fixture
def admin(chromium: Browser, service: Service) -> Iterator[Page]:
    with opening(chromium, service.url) as open_one:
        page = enter(open_one())
        expect(page.locator("#admin [name=lab_sweep]")).to_have_value("load")
        yield page


def ask_for(page: Page, sweep: str, values: str) -> None:
    page.locator("#admin [name=lab_sweep]").select_option(sweep)
    page.locator("#admin [name=lab_values]").fill(values)
    page.locator("#admin [name=lab_seconds]").fill("1")
    page.locator("#admin [data-part=lab-start]").click()


def test_sweep_is_started_followed_and_drawn(admin: Page, service: Service, tmp_path: Path) -> None:
    admin.locator("#admin [name=lab_sweep]").select_option("block_size")
    admin.locator("#admin [name=lab_listeners]").fill("1")
    ask_for(admin, "block_size", "64, 96")
    run = admin.locator("#admin [data-part=lab-runs] details").first
    expect(run.locator("summary")).to_contain_text("finished")
    expect(admin.locator("#admin [data-part=lab-stop]")).to_be_hidden()
    expect(run.locator("svg")).to_have_count(2)
    measured = run.locator("polyline[data-curve=audio_s_per_s]")
    expect(measured).to_have_attribute("points", re.compile(r"^[\d.,-]+ [\d.,-]+$"))
    expect(run.locator("tbody tr")).to_have_count(2)
    with admin.expect_download() as download:
        run.locator("[data-part=lab-csv]").click()
    download.value.save_as(tmp_path / "run.csv")
    lines = (tmp_path / "run.csv").read_text().splitlines()
    assert lines[0].startswith("block_size,") and [line.split(",")[0] for line in lines[1:]] == ["64", "96"]
    assert service.office.tuning.settings.block_size == 32
    expect(admin.locator("#admin [data-part=log] tbody tr").first).to_contain_text("block_size")


def test_run_is_stopped_from_the_tab(admin: Page, service: Service) -> None:
    never = asyncio.Event()
    service.lm.enqueue(Say(5), WaitFor(never), Finish())
    ask_for(admin, "load", "1")
    expect(admin.locator("#admin [data-part=lab-status]")).to_contain_text("Load test")
    admin.locator("#admin [data-part=lab-stop]").click()
    expect(admin.locator("#admin [data-part=lab-runs] details summary").first).to_contain_text("stopped")
    service.until(service.is_idle)


def test_sweep_that_cannot_run_here_says_why(admin: Page) -> None:
    admin.locator("#admin [name=lab_sweep]").select_option("quantization")
    expect(admin.locator("#admin [data-part=lab] [role=alert]")).to_contain_text("GPU")
    expect(admin.locator("#admin [data-part=lab-start]")).to_be_disabled()
    admin.locator("#admin [name=lab_sweep]").select_option("streams")
    expect(admin.locator("#admin [name=lab_values]")).to_have_value("1, 2, 4, 8")
    expect(admin.locator("#admin [data-part=lab-start]")).to_be_enabled()
