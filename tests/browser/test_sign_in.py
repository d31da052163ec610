"""An administrator signs in by an OpenID provider on another site, also where the studio stands within another page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.api.conftest import clip_samples, serve, stop
from tests.browser.conftest import PHONE, OpenPage, opening
from tests.openid_provider import CLIENT_ID, CLIENT_SECRET, Provider, running_provider


@pytest.fixture(scope="module")
def shared_provider() -> Iterator[Provider]:
    with running_provider("localhost") as provider:  # the studio is 127.0.0.1, so its cookies meet another site
        yield provider


@pytest.fixture(scope="module")
def studio_url(shared_provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    flags = (
        "--oidc-issuer", shared_provider.issuer, "--oidc-client-id", CLIENT_ID,
        f"--oidc-client-secret={CLIENT_SECRET}", "--oidc-admins=preferred_username=ada",
    )  # fmt: skip
    running: list = []
    service = serve(tmp_path_factory.mktemp("signed-in"), running, *flags)
    service.in_loop(lambda: service.store.add(clip_samples(), 24000, "hello there", name="Ada"))
    yield service.url
    stop(running)


@pytest.fixture
def provider(shared_provider: Provider) -> Provider:
    shared_provider.forget()
    return shared_provider


@pytest.fixture
def open_studio(chromium: Browser, studio_url: str, provider: Provider) -> Iterator[OpenPage]:
    with opening(chromium, studio_url) as open_one:
        yield open_one


def test_administrator_signs_in_works_and_leaves(open_studio: OpenPage) -> None:
    opened = open_studio(viewport=PHONE)
    page = opened.page
    opened.open_tab("Admin", "管理")
    sign_in = page.get_by_role("link", name="Sign in with localhost")
    sign_in.click()
    page.locator("#agree").click()
    inside = page.locator("#admin [name=max_num_seqs]")
    expect(inside).to_be_visible()  # the tab is open, and shows what /admin gave
    assert page.evaluate("document.cookie") == ""
    page.get_by_role("button", name="Leave").click()
    expect(sign_in).to_be_visible()
    page.reload()
    expect(sign_in).to_be_visible()
    expect(inside).to_be_hidden()


def test_who_is_no_administrator_is_told_and_finds_back(open_studio: OpenPage, provider: Provider) -> None:
    provider.claims["preferred_username"] = "eve"
    opened = open_studio(locale="zh-CN")
    page = opened.page
    opened.open_tab("Admin", "管理")
    page.locator("#admin [data-part=sign-in]").click()
    page.locator("#agree").click()
    expect(page.get_by_role("alert")).to_contain_text("eve")
    page.get_by_role("link", name="回到工作室").click()
    expect(page.locator("#admin input[name=password]")).to_be_visible()


def test_within_another_site_the_way_leads_to_a_tab_of_its_own(
    open_studio: OpenPage, studio_url: str, provider: Provider
) -> None:
    outside: Page = open_studio().page
    outside.goto(f"{provider.issuer}/elsewhere")
    outside.set_content(f"<iframe src='{studio_url}/#admin' width=900 height=700></iframe>")
    framed = outside.frame_locator("iframe").locator("#admin")
    expect(framed.get_by_text("Within another page")).to_be_visible()
    with outside.context.expect_page() as tab:
        framed.get_by_role("link", name="Open the Admin tab").click()
    expect(tab.value.locator("#admin input[name=password]")).to_be_visible()
    with outside.context.expect_page() as tab:
        framed.get_by_role("link", name="Sign in with localhost").click()
    tab.value.locator("#agree").click()
    expect(tab.value.locator("#admin [name=max_num_seqs]")).to_be_visible()
