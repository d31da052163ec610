"""The Listening tests tab as its tests use it: fields of the form, and links for raters."""

from __future__ import annotations

from playwright.sync_api import Locator, Page, expect

from tests.api.conftest import Service


def field(page: Page, name: str) -> Locator:
    return page.locator(f"[data-field={name}]")


def begin_design(page: Page, kind: str, title: str) -> None:
    page.locator("[data-part=new]").click()
    field(page, "title").fill(title)
    field(page, "kind").select_option(kind)


def condition(page: Page, place: int, name: str, source: str) -> Locator:
    row = page.locator(".condition").nth(place)
    row.locator("[data-part=name]").fill(name)
    row.locator("[data-part=source]").select_option(source)
    return row


def setting(row: Locator, name: str) -> Locator:
    """Add a setting to a condition, such as studio/flow_steps; gives its field."""
    row.locator("[data-part=add-setting]").select_option(name)
    return row.locator(f"[data-setting='{name}']").locator("input, select")


def open_test(page: Page, fakes: Service) -> None:
    """Its last clip may be told before the making of it has ended, until when it cannot be opened."""
    fakes.until(lambda: not fakes.app.state.listening.generation._tasks)
    page.locator("[data-part=open]").click()
    expect(page.locator("h2 .badge")).to_have_attribute("data-state", "open")


def link_of(page: Page) -> str:
    page.locator("[data-part=invite]").click()
    token = page.locator("[data-link]").first.get_attribute("data-link")
    assert token
    return token
