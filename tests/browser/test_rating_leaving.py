"""Raters who leave their page: back, closed tabs, second tabs, links that end; on the scripted engine."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.rater_page import PITCHES, OpenRater, answers_of, begin, hear_all, is_draft
from tests.simulated_rater import Owner


def test_back_and_forward_come_to_the_same_trial_with_what_was_set(owner: Owner, open_rater: OpenRater) -> None:
    test, token = owner.opened(PITCHES, items=2, kind="mushra_nmr")
    page = open_rater(token)
    begin(page)
    hear_all(page)
    with page.expect_response(lambda reply: is_draft(reply, 0, 63)):
        page.locator("#slider-0").fill("63")
    page.goto("about:blank")
    page.go_back()
    expect(page.locator("#slider-0")).to_have_value("63")
    for button in page.locator("button.sound").all():
        expect(button).to_have_attribute("data-heard", "true")
    page.locator("#slider-1").fill("12")
    page.locator("[data-part=next]").click()
    expect(page.locator("[data-part=progress]")).to_have_text("2 of 2")
    page.go_forward()
    page.go_back()  # to the trial that is due, not to the one that was left
    expect(page.locator("[data-part=progress]")).to_have_text("2 of 2")
    assert sorted(answer.score for answer in answers_of(owner, test)) == [12, 63]


def test_page_from_the_browsers_memory_catches_up_with_what_another_page_did(
    owner: Owner, open_rater: OpenRater
) -> None:
    test, token = owner.opened(PITCHES, items=2, kind="mos")
    page = open_rater(token)
    begin(page)
    expect(page.locator("[data-part=play-0]")).to_be_enabled()
    second = page.context.new_page()
    second.goto(page.url)
    expect(second.locator("body")).to_have_attribute("data-phase", "trial")
    hear_all(second)
    second.locator("[data-part=score4] input").check()
    second.locator("[data-part=next]").click()
    expect(second.locator("[data-part=progress]")).to_have_text("2 of 4")
    expect(second.locator("[data-part=play-0]")).to_be_enabled()  # the newest page alone has addresses
    expect(page.locator("[data-part=progress]")).to_have_text("1 of 4")
    hear_all(page)
    page.locator("[data-part=score1] input").check()
    page.locator("[data-part=next]").click()  # that trial is answered: this one is not counted
    expect(page.locator("[data-part=progress]")).to_have_text("2 of 4")
    assert [answer.score for answer in answers_of(owner, test)] == [4]
    hear_all(second)
    second.locator("[data-part=score4] input").check()
    second.locator("[data-part=next]").click()
    expect(second.locator("[data-part=progress]")).to_have_text("3 of 4")
    page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))")
    expect(page.locator("[data-part=progress]")).to_have_text("3 of 4")


def test_answer_that_had_not_arrived_when_the_page_was_closed_is_sent_by_the_next_one(
    owner: Owner, open_rater: OpenRater
) -> None:
    test, token = owner.opened(PITCHES, items=2, kind="mos")
    page = open_rater(token)
    begin(page)
    hear_all(page)
    page.locator("[data-part=score2] input").check()
    page.route(re.compile("/answer$"), lambda route: route.abort())
    page.locator("[data-part=next]").click()
    expect(page.locator("[data-part=connection]")).to_be_visible()
    page.close()
    assert answers_of(owner, test) == []
    again = page.context.new_page()
    again.goto(page.url)
    expect(again.locator("[data-part=progress]")).to_have_text("2 of 4")
    assert [answer.score for answer in answers_of(owner, test)] == [2]


def test_link_that_ends_during_a_trial_is_said_and_what_was_set_stays(owner: Owner, open_rater: OpenRater) -> None:
    test, token = owner.opened(PITCHES, items=1, kind="ab")
    page = open_rater(token)
    begin(page)
    hear_all(page)
    page.locator("[data-part=score1] input").check()
    owner.http.delete(f"/v1/listening/tests/{test}/invitations/{token}")
    page.locator("[data-part=next]").click()
    expect(page.locator("[data-part=refused]")).to_contain_text("link")
    expect(page.locator("[data-part=score1] input")).to_be_checked()
    page.reload()
    expect(page.locator("body")).to_have_attribute("data-phase", "refused")
    assert answers_of(owner, test) == []
