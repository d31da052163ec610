"""The arena over HTTP: blind pairs on a visitor's own text, safeguarded votes, a leaderboard."""

from __future__ import annotations

import pytest

from studio.listening.answers import read_csv
from tests.api.conftest import clip_samples
from tests.simulated_rater import Owner, SimulatedRater, higher_is_better, pitch_of

VOICES = {"first voice": 0.5, "second voice": 1.2}


@pytest.fixture
def arena(service):
    """An open arena of two settings: its owner, id and a visitor's page."""
    owner = Owner(service.url)
    conditions = [
        {"name": name, "source": {"kind": "speech", "voice": "Ada", "settings": {"temperature": heat}}}
        for name, heat in VOICES.items()
    ]
    test = owner.create(kind="ab", title="arena", arena=True, conditions=conditions, headphones="off")["id"]
    reply = owner.do(test, "open")
    assert reply.status_code == 200, reply.text
    token = owner.invite(test)[0]

    def pass_time(seconds: float) -> None:
        service.clock.ahead_s += seconds

    return owner, test, SimulatedRater(service.url, token, pass_time, higher_is_better)


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
    service.clock.ahead_s += 3601  # the hour of other tests is over
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
    service.clock.ahead_s += 3601  # the hour of other tests is over
    visitor.join()
    visitor.http.post("/text", json={"text": "one two three four"})
    service.clock.ahead_s += 3601
    other = SimulatedRater(service.url, visitor.token, visitor.pass_time, higher_is_better)
    other.join()
    view = other.http.post("/text", json={"text": "one two three four"}).json()
    assert len(service.app.state.listening.store.clips(test, "ready")) == 2  # the other's
    assert visitor.http.get("/state").json()["phase"] == "text"
    assert other.answer(view)["phase"] == "text"


def test_leaderboard_ranks_what_visitors_prefer_first_with_intervals(service, arena) -> None:
    """Visitors like high voices; Bradley-Terry finds the order of the pitches out of blind pairs."""
    owner, _, _ = arena
    names = ("Ada", "Bob", "Cleo")
    for seconds, name in ((3.0, "Bob"), (3.5, "Cleo")):
        service.in_loop(lambda s=seconds, n=name: service.store.add(clip_samples(s), 24000, "good day", name=n))
    spoken = {}
    for name in names:
        body = {"input": "one two three four", "voice": name, "response_format": "wav"}
        spoken[name] = pitch_of(owner.http.post("/v1/audio/speech", json=body).content)
    assert len({round(pitch) for pitch in spoken.values()}) == 3
    conditions = [{"name": name, "source": {"kind": "speech", "voice": name}} for name in names]
    test = owner.create(kind="ab", title="voices", arena=True, conditions=conditions, headphones="off")["id"]
    owner.do(test, "open")
    token = owner.invite(test)[0]

    def pass_time(seconds: float) -> None:
        service.clock.ahead_s += seconds

    for _ in range(3):
        visitor = SimulatedRater(service.url, token, pass_time, higher_is_better)
        visitor.join()
        for _ in range(6):
            visitor.answer(visitor.http.post("/text", json={"text": "one two three four"}).json())
    ranking = owner.http.get(f"/v1/listening/tests/{test}/report.json").json()["everyone"]["ranking"]
    found = [names[int(row["condition"][1:]) - 1] for row in ranking["rows"]]
    assert found == sorted(names, key=lambda name: -spoken[name])
    assert all(row["low"] is None or row["low"] <= row["strength"] <= row["high"] for row in ranking["rows"])
