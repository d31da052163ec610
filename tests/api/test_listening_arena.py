"""The arena over HTTP: blind pairs on a visitor's own text, safeguarded votes, a leaderboard."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from studio.listening.answers import read_csv
from studio.listening.leaderboard import vote_weights
from tests.api.conftest import clip_samples
from tests.simulated_rater import Owner, SimulatedRater, higher_is_better, pitch_of

VOICES = {"first voice": 0.5, "second voice": 1.2}


TEXT = {"text": "one two three four"}


def visitor_of(service, token: str, taste=higher_is_better) -> SimulatedRater:
    def pass_time(seconds: float) -> None:
        service.clock.ahead_s += seconds

    return SimulatedRater(service.url, token, pass_time, taste)


def opened(owner: Owner, **how: object) -> tuple[str, str]:
    """An open arena of two settings: its id and a link's token."""
    conditions = [
        {"name": name, "source": {"kind": "speech", "voice": "Ada", "settings": {"temperature": heat}}}
        for name, heat in VOICES.items()
    ]
    design = {"kind": "ab", "title": "arena", "arena": True, "conditions": conditions, "headphones": "off"}
    test = owner.create(**(design | how))["id"]
    reply = owner.do(test, "open")
    assert reply.status_code == 200, reply.text
    return test, owner.invite(test)[0]


def vote(visitor: SimulatedRater, times: int = 1) -> None:
    for _ in range(times):
        reply = visitor.http.post("/text", json=TEXT)
        assert reply.status_code == 200, reply.text
        assert visitor.answer(reply.json())["phase"] == "text"


@pytest.fixture
def owner(service) -> Owner:
    service.clock.ahead_s += 3601  # the hour of other tests is over
    return Owner(service.url)


@pytest.fixture
def arena(service, owner):
    """An open arena of two settings: its owner, id and a visitor's page."""
    test, token = opened(owner)
    return owner, test, visitor_of(service, token)


def test_visitor_hears_own_text_blind_and_the_vote_is_kept(service, arena) -> None:
    owner, test, visitor = arena
    assert visitor.join()["phase"] == "text"
    view = visitor.http.post("/text", json={"text": "one two three four"}).json()
    assert view["phase"] == "trial" and len(view["trial"]["slots"]) == 2
    assert {s.seed for s in service.lm.samplings[-2:]} == {service.lm.samplings[-1].seed}
    assert {s.temperature for s in service.lm.samplings[-2:]} == set(VOICES.values())
    assert visitor.answer(view)["phase"] == "text"
    [vote] = read_csv(owner.http.get(f"/v1/listening/tests/{test}/answers.csv").text)
    assert {vote.condition, vote.against} == {"c1", "c2"}
    texts = [reply for reply in visitor.traffic if "audio" not in reply.headers["content-type"]]
    told = " ".join(f"{reply.text}{reply.headers}" for reply in texts)
    assert not any(name in told for name in VOICES)
    room = service.app.state.listening
    assert room.store.clips(test, "ready") == {}  # the sound goes after the vote


def test_vote_counts_only_when_both_were_heard(service, arena) -> None:
    _, _, visitor = arena
    visitor.join()
    trial = visitor.http.post("/text", json={"text": "one two three four"}).json()["trial"]
    visitor.http.get(f"/clip/{trial['slots'][0]}")
    service.clock.ahead_s += 60
    assert visitor.http.post("/answer", json={"number": 1, "scores": [0]}).status_code == 409


def test_next_text_waits_for_the_vote_and_bad_texts_are_refused(arena) -> None:
    _, _, visitor = arena
    visitor.join()
    for text in ("", "x" * 301):
        assert visitor.http.post("/text", json={"text": text}).json()["error"]["param"] == "text"
    visitor.http.post("/text", json={"text": "one two three four"})
    assert visitor.http.post("/text", json={"text": "five six seven eight"}).status_code == 409


def test_an_address_gets_so_many_pairs_an_hour_whatever_its_cookie(service, arena, monkeypatch) -> None:
    monkeypatch.setattr("studio.listening.arena.PAIRS_PER_HOUR", 2)
    _, _, visitor = arena
    view = visitor.join()
    for _ in range(2):
        view = visitor.answer(visitor.http.post("/text", json={"text": "one two three four"}).json())
    refused = visitor.http.post("/text", json={"text": "one two three four"})
    assert refused.status_code == 429 and int(refused.headers["retry-after"]) > 0
    visitor.http.cookies.clear()
    visitor.http.get(service.url)  # the cookie of the page
    visitor.join()
    assert visitor.http.post("/text", json={"text": "one two three four"}).status_code == 429
    service.clock.ahead_s += 3601
    assert visitor.http.post("/text", json={"text": "one two three four"}).status_code == 200
    assert view["phase"] == "text"


def test_pair_without_a_vote_is_given_up_after_an_hour(service, arena) -> None:
    _, test, visitor = arena
    visitor.join()
    visitor.http.post("/text", json={"text": "one two three four"})
    service.clock.ahead_s += 3601
    other = SimulatedRater(service.url, visitor.token, visitor.pass_time, higher_is_better)
    other.join()
    view = other.http.post("/text", json={"text": "one two three four"}).json()
    assert len(service.app.state.listening.store.clips(test, "ready")) == 2  # the other's
    assert visitor.http.get("/state").json()["phase"] == "text"
    assert other.answer(view)["phase"] == "text"


def test_pair_that_was_given_up_is_no_vote(service, arena) -> None:
    _, _, visitor = arena
    visitor.join()
    visitor.http.post("/text", json=TEXT)
    service.clock.ahead_s += 3601
    other = visitor_of(service, visitor.token)
    other.join()
    vote(other)  # whoever asks clears away what nobody votes on
    assert visitor.http.get("/state").json() | {"phase": "text", "voted": 0, "leaderboard": False} == (
        visitor.http.get("/state").json()
    )


def test_what_kept_a_pair_from_being_made_is_not_told_since_it_names_a_condition(service, arena) -> None:
    _, _, visitor = arena
    visitor.join()
    for voice in service.store.all():
        service.in_loop(lambda one=voice: service.store.delete(one.id))
    refused = visitor.http.post("/text", json=TEXT)
    assert refused.status_code == 409 and "Ada" not in refused.text and "voice" not in refused.text
    assert visitor.http.get("/state").json()["phase"] == "text"


def test_studio_that_cannot_speak_now_takes_no_pair_from_the_hour(service, arena, monkeypatch) -> None:
    monkeypatch.setattr("studio.listening.arena.PAIRS_PER_HOUR", 1)
    _, _, visitor = arena
    visitor.join()
    service.in_loop(lambda: service.worker.to("starting", "stage.waiting"))
    for _ in range(2):
        assert visitor.http.post("/text", json=TEXT).status_code == 503
    service.in_loop(lambda: service.worker.to("ready", "stage.ready"))
    vote(visitor)


def test_order_of_the_two_is_drawn_anew_for_each_pair(service, owner, monkeypatch) -> None:
    """Of 24 pairs each condition comes first at least once; by chance that fails once in eight million runs."""
    monkeypatch.setattr("studio.listening.arena.PAIRS_PER_HOUR", 1000)
    test, token = opened(owner)
    visitor = visitor_of(service, token)
    visitor.join()
    vote(visitor, 24)
    [rater] = service.app.state.listening.raters.of_test(test)
    assert {trial.slots for trial in rater.plan} == {("c1", "c2"), ("c2", "c1")}


def test_leaderboard_is_shown_once_somebody_voted_and_never_beside_a_pair(service, owner) -> None:
    _, token = opened(owner, leaderboard_votes=2)
    visitor = visitor_of(service, token)
    assert visitor.join()["leaderboard"] is False
    assert visitor.http.get("/leaderboard").status_code == 404
    vote(visitor)
    assert visitor.http.get("/state").json()["leaderboard"] is True
    assert visitor.http.get("/leaderboard").json() == {"votes": 1, "wanted": 2, "rows": []}
    view = visitor.http.post("/text", json=TEXT).json()
    beside = visitor.http.get("/leaderboard")
    assert beside.status_code == 409 and not any(name in beside.text for name in VOICES)
    visitor.answer(view)
    board = visitor.http.get("/leaderboard").json()
    assert {row["name"] for row in board["rows"]} == set(VOICES) and board["votes"] == 2
    assert visitor_of(service, token).http.get("/leaderboard").status_code == 404  # not joined


@pytest.mark.parametrize(("chosen", "status"), [("always", 200), ("never", 404)])
def test_owner_chooses_whether_visitors_see_the_leaderboard(service, owner, chosen: str, status: int) -> None:
    _, token = opened(owner, leaderboard=chosen, leaderboard_votes=1)
    visitor = visitor_of(service, token)
    assert visitor.join()["leaderboard"] is (chosen == "always")
    assert visitor.http.get("/leaderboard").status_code == status
    vote(visitor)
    assert visitor.http.get("/leaderboard").status_code == status


def test_other_tests_have_no_leaderboard(service, owner) -> None:
    _, token = owner.opened({"low tone": 300.0, "high tone": 900.0}, kind="ab")
    rater = visitor_of(service, token)
    rater.join()
    assert rater.http.get("/leaderboard").status_code == 404


def test_whoever_always_takes_one_button_does_not_move_the_leaderboard(service, owner, monkeypatch) -> None:
    """And whoever votes very often counts for 20 votes, however many they gave."""
    monkeypatch.setattr("studio.listening.arena.PAIRS_PER_HOUR", 1000)
    monkeypatch.setattr("studio.listening.leaderboard.FULL_WEIGHT_VOTES", 5)
    _, token = opened(owner, leaderboard_votes=1)

    def taste_of(scores):
        return lambda *_shown: {"scores": [next(scores)]}

    lazy = visitor_of(service, token, taste_of(itertools.repeat(0)))
    torn = visitor_of(service, token, taste_of(itertools.cycle([0, 1])))
    even = visitor_of(service, token, taste_of(itertools.repeat(0.5)))
    for visitor in (lazy, torn, even):
        visitor.join()
    vote(even, 2)
    shares = lambda: {row["name"]: row["share"] for row in even.http.get("/leaderboard").json()["rows"]}  # noqa: E731
    assert shares() == pytest.approx(dict.fromkeys(VOICES, 0.5))
    vote(lazy, 12)
    assert shares() == pytest.approx(dict.fromkeys(VOICES, 0.5))
    vote(torn, 10)
    room = service.app.state.listening
    test = room.store.invitation(token).test
    weights = vote_weights(room.raters.of_test(test), room.raters.answers(test))
    assert sorted(weights.values()) == [0.0, 0.5, 1.0]


def test_leaderboard_ranks_what_visitors_prefer_first_with_intervals(service, owner) -> None:
    """Visitors like high voices; Bradley-Terry finds the order of the pitches out of blind pairs."""
    names = ("Ada", "Bob", "Cleo")
    for seconds, name in ((3.0, "Bob"), (3.5, "Cleo")):
        service.in_loop(lambda s=seconds, n=name: service.store.add(clip_samples(s), 24000, "good day", name=n))
    spoken = {}
    for name in names:
        body = {"input": "one two three four", "voice": name, "response_format": "wav"}
        spoken[name] = pitch_of(owner.http.post("/v1/audio/speech", json=body).content)
    assert len({round(pitch) for pitch in spoken.values()}) == 3
    conditions = [{"name": name, "source": {"kind": "speech", "voice": name}} for name in names]
    test, token = opened(owner, conditions=conditions, leaderboard_votes=18)
    visitors = [visitor_of(service, token) for _ in range(3)]
    for visitor in visitors:
        visitor.join()
        assert visitor.http.get("/leaderboard").status_code == 404
        vote(visitor, 6)
    ranking = owner.http.get(f"/v1/listening/tests/{test}/report.json").json()["everyone"]["ranking"]
    found = [names[int(row["condition"][1:]) - 1] for row in ranking["rows"]]
    assert found == sorted(names, key=lambda name: -spoken[name])
    assert all(row["low"] is None or row["low"] <= row["strength"] <= row["high"] for row in ranking["rows"])
    board = visitors[0].http.get("/leaderboard").json()["rows"]
    assert [row["name"] for row in board] == found
    for row, told in zip(ranking["rows"], board, strict=True):
        assert told["share"] == pytest.approx(1 / (1 + np.exp(-row["strength"])))
        assert told["low"] is None or 0 <= told["low"] <= told["share"] <= told["high"] <= 1
