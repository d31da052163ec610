"""Raters who do what the page never does: nothing is lost, nothing counts twice, nothing is told."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from studio.listening.answers import Answer, read_csv
from tests.simulated_rater import Owner, SimulatedRater, higher_is_better

PITCHES = {"low tone": 300.0, "high tone": 900.0}


@pytest.fixture
def owner(service) -> Owner:
    return Owner(service.url)


def rater(service, token: str) -> SimulatedRater:
    def pass_time(seconds: float) -> None:
        service.clock.ahead_s += seconds

    return SimulatedRater(service.url, token, pass_time, higher_is_better)


def answers_of(owner: Owner, test: str) -> list[Answer]:
    return read_csv(owner.http.get(f"/v1/listening/tests/{test}/answers.csv").text)


def test_beginning_twice_at_once_is_beginning_once(service, owner) -> None:
    test, token = owner.opened(PITCHES, kind="ab")
    them = rater(service, token)
    them.http.get("/state")
    with ThreadPoolExecutor(4) as hands:
        replies = list(hands.map(lambda _: them.http.post("/join", json={"consent": True}), range(4)))
    assert [reply.status_code for reply in replies] == [200] * 4
    assert owner.show(test)["counts"]["joined"] == 1


def test_key_that_could_be_guessed_is_not_taken(service, owner) -> None:
    test, token = owner.opened(PITCHES, kind="ab")
    path = f"{service.url}/listen/{token}"
    for _ in range(2):
        reply = httpx.post(f"{path}/join", json={"consent": True}, headers={"Cookie": "studio_rater=1"})
        assert reply.status_code == 200 and len(reply.cookies["studio_rater"]) >= 24
    assert owner.show(test)["counts"]["joined"] == 2
    assert httpx.get(f"{path}/state", headers={"Cookie": "studio_rater=1"}).json()["phase"] == "join"


def test_keys_of_owners_and_raters_never_go_by_http_behind_tls(service, owner) -> None:
    _, token = owner.opened(PITCHES, kind="ab")
    for headers, secure in (({}, False), ({"X-Forwarded-Proto": "https"}, True)):
        for reply in (
            httpx.post(f"{service.url}/v1/listening/owner", json={"key": "k" * 24}, headers=headers),
            httpx.get(f"{service.url}/listen/{token}/state", headers=headers),
        ):
            assert ("Secure" in reply.headers["set-cookie"].split("; ")) == secure


def test_answer_sent_many_times_at_once_counts_once(service, owner) -> None:
    test, token = owner.opened(PITCHES, items=2, kind="ab")
    them = rater(service, token)
    them.hear(them.join()["trial"])
    with ThreadPoolExecutor(6) as hands:
        send = lambda k: them.http.post("/answer", json={"number": 1, "scores": [k % 2]})  # noqa: E731
        replies = list(hands.map(send, range(6)))
    assert {reply.status_code for reply in replies} == {200}
    assert {reply.json()["trial"]["number"] for reply in replies} == {2}
    assert len(answers_of(owner, test)) == 1


def test_second_page_of_a_rater_is_behind_the_first_and_changes_nothing(service, owner) -> None:
    test, token = owner.opened(PITCHES, items=2, kind="mos")
    one = rater(service, token)
    view = one.join()
    other = rater(service, token)
    other.http.cookies.update(one.http.cookies)
    stale = other.http.get("/state").json()["trial"]
    assert one.http.get(f"/clip/{view['trial']['slots'][0]}").status_code == 404  # the newer page has the sounds
    one.answer(one.http.get("/state").json())
    assert other.http.get(f"/clip/{stale['slots'][0]}").status_code == 404
    assert other.http.post("/draft", json={"number": 1, "scores": [1]}).json() == {"kept": True}
    assert other.http.post("/answer", json={"number": 1, "scores": [1]}).json()["trial"]["number"] == 2
    assert other.http.get("/state").json()["trial"]["draft"] == {}
    assert [answer.position for answer in answers_of(owner, test)] == [1]


@pytest.mark.parametrize("number", [-1, 0, 2, 4, 99_999, 10**9])
def test_answer_to_another_trial_than_the_one_shown_is_refused(service, owner, number: int) -> None:
    test, token = owner.opened(PITCHES, kind="ab")
    them = rater(service, token)
    them.hear(them.join()["trial"])
    assert them.http.post("/answer", json={"number": number, "scores": [1]}).status_code in (400, 409)
    assert them.http.post("/draft", json={"number": number, "scores": [1]}).status_code in (200, 400)
    assert answers_of(owner, test) == [] and them.http.get("/state").json()["trial"]["number"] == 1


def test_link_that_is_withdrawn_during_a_trial_ends_it_and_nothing_is_kept(service, owner) -> None:
    test, token = owner.opened(PITCHES, kind="ab")
    them = rater(service, token)
    them.hear(them.join()["trial"])
    owner.http.delete(f"/v1/listening/tests/{test}/invitations/{token}")
    for reply in (them.http.post("/answer", json={"number": 1, "scores": [1]}), them.http.get("/state")):
        assert reply.status_code == 404 and "link" in reply.json()["error"]["message"]
    assert answers_of(owner, test) == []


def test_test_that_is_closed_during_a_trial_takes_no_answer_and_says_so(service, owner) -> None:
    test, token = owner.opened(PITCHES, kind="ab")
    them = rater(service, token)
    them.hear(them.join()["trial"])
    owner.do(test, "close")
    assert them.http.post("/answer", json={"number": 1, "scores": [1]}).status_code == 409
    assert them.http.get("/state").json()["phase"] == "closed" and answers_of(owner, test) == []


def test_comments_are_bounded_in_signs_and_bytes(service, owner) -> None:
    test, token = owner.opened(PITCHES, items=2, kind="ab")
    them = rater(service, token)
    them.hear(them.join()["trial"])
    send = lambda comment: them.http.post("/answer", json={"number": 1, "scores": [1], "comment": comment})  # noqa: E731
    assert send("x" * 1001).status_code == 400
    assert send("x" * 2_000_000).status_code == 413
    assert send("𝄞" * 1000).status_code == 200
    [kept] = answers_of(owner, test)
    assert kept.comment == "𝄞" * 1000


HOSTILE = {
    'a,"b"\n=c': 'a,"b"\n=c',
    "=HYPERLINK(1)": "=HYPERLINK(1)",
    "one\r\ntwo\rthree": "one\ntwo\nthree",  # a bare CR would end the row of a CSV file
    "nul\x00 bell\x07 escape\x1b[31m": "nul bell escape[31m",
    "<script>alert(1)</script>": "<script>alert(1)</script>",
    "\u202eטקסט e\u0301 👩‍👩‍👧 中文": "\u202eטקסט e\u0301 👩‍👩‍👧 中文",
}


def test_any_words_come_back_whole_in_csv_export_and_page(service, owner) -> None:
    test, token = owner.opened(PITCHES, items=len(HOSTILE), kind="ab")
    them = rater(service, token)
    view = them.join()
    for words in HOSTILE:
        them.taste = lambda *_shown, said=words: {"scores": [1], "comment": said}
        view = them.answer(view)
    assert view["phase"] == "finished"
    assert [answer.comment for answer in answers_of(owner, test)] == list(HOSTILE.values())
    everything = "\n".join(HOSTILE)
    assert them.http.post("/comment", json={"comment": everything}).status_code == 200
    assert them.http.get("/state").json()["comment"] == "\n".join(HOSTILE.values())
    assert owner.http.get(f"/v1/listening/tests/{test}/export.zip").status_code == 200
    assert "<script>alert" not in owner.http.get(f"/v1/listening/tests/{test}/report").text


def test_clip_address_is_no_use_twice_nor_after_the_trial(service, owner) -> None:
    _, token = owner.opened(PITCHES, items=2, kind="ab")
    them = rater(service, token)
    trial = them.join()["trial"]
    assert them.http.get(f"/clip/{trial['slots'][0]}").status_code == 200
    assert them.http.get(f"/clip/{trial['slots'][0]}", headers={"Range": "bytes=0-99"}).status_code == 404
    them.http.get("/state")  # other addresses now
    assert them.http.get(f"/clip/{trial['slots'][1]}").status_code == 404
    for path in ("/clip/..%2F..%2Ftests.sqlite", "/clip/" + "x" * 5000, "/clip/%00"):
        assert them.http.get(path).status_code == 404


def test_clip_is_sent_whole_whatever_part_is_asked_for(service, owner) -> None:
    """A reply in parts would tell its length otherwise than the other clips do."""
    _, token = owner.opened(PITCHES, items=2, kind="ab")
    them = rater(service, token)
    first, second = them.join()["trial"]["slots"]
    part = them.http.get(f"/clip/{first}", headers={"Range": "bytes=0-99"})
    whole = them.http.get(f"/clip/{second}")
    assert (part.status_code, len(part.content)) == (whole.status_code, len(whole.content))


def test_headphone_rounds_are_neither_skipped_nor_chosen_twice(service, owner) -> None:
    _, token = owner.opened(PITCHES, kind="ab", headphones="require")
    them = rater(service, token)
    them.join()
    choose = lambda number, place: them.http.post("/headphones", json={"number": number, "chosen": place})  # noqa: E731
    assert choose(2, 0).status_code == 409
    assert choose(1, 3).status_code == 400
    assert choose(1, 0).json()["number"] == 2
    assert choose(1, 1).json()["number"] == 2
    assert them.http.get("/headphones/1").status_code == 409
    assert them.http.post("/headphones/again").json()["number"] == 2  # nothing to be taken again
    assert them.http.post("/answer", json={"number": 1, "scores": [1]}).status_code == 409


def test_drafts_hold_numbers_and_few_of_them(service, owner) -> None:
    _, token = owner.opened(PITCHES, kind="mushra_nmr")
    them = rater(service, token)
    them.join()
    for body in ({"scores": [1.0] * 41}, {"typed": "x" * 1001}, {"scores": ["1e999x"]}, {"more": 1}):
        assert them.http.post("/draft", content=json.dumps({"number": 1} | body)).status_code in (400, 422)
    assert them.http.get("/state").json()["trial"]["draft"] == {}
