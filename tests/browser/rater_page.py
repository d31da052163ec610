"""What raters do on their page in every kind of test, and what the owner then has."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, Response, expect

from studio.listening.answers import Answer, read_csv
from tests.simulated_rater import Owner

PITCHES = {"low tone": 300.0, "high tone": 900.0}
"""The conditions of the tests, and the tones that they are."""
OpenRater = Callable[..., Page]


def begin(page: Page) -> None:
    """Agree where that is asked, and begin."""
    if page.locator("#agree").count():
        page.locator("#agree").check()
    page.locator("[data-part=begin]").click()
    expect(page.locator("body")).to_have_attribute("data-phase", "trial")


def hear_all(page: Page) -> None:
    """Play every sound until the page counts it as heard."""
    for button in page.locator("button.sound").all():
        expect(button).to_be_enabled()
        button.click()
        expect(button).to_have_attribute("data-heard", "true")


def is_draft(reply: Response, slider: int, score: float) -> bool:
    """Whether a reply confirms a draft with that score."""
    sent = reply.request.post_data_json if reply.url.endswith("/draft") else None
    return bool(sent) and sent["scores"][slider] == score


def answers_of(owner: Owner, test: str) -> list[Answer]:
    return read_csv(owner.http.get(f"/v1/listening/tests/{test}/answers.csv").text)
