"""Blind means blind: everything that a rater's browser receives is read, and nothing in it tells the conditions."""

from __future__ import annotations

import re
from collections import Counter

import httpx
import pytest

from studio.listening.answers import Kind
from tests.api.test_listening import DESIGNS
from tests.simulated_rater import Owner, SimulatedRater, fingerprint, higher_is_better, pitch_of

SECRETS = {"quick brown fox": 300.0, "lazy dog": 900.0}
DESIGN_SECRETS = ("Secret title", "c1", "c2", "anchor35", "anchor70", "s01", "s02", "gold", "987654321", "trap")
REFERENCES = {"reference": "lazy dog"}
PLAIN_HEADERS = {
    "server", "date", "vary", "content-type", "content-length", "cache-control", "referrer-policy", "x-robots-tag",
}  # fmt: skip
RANDOM = re.compile(r"[\w-]{22,32}")
"""Tokens, addresses and keys, in which any two signs may stand by chance."""


@pytest.fixture
def owner(service):
    return Owner(service.url)


def answer_all(service, token: str) -> SimulatedRater:
    def pass_time(seconds: float) -> None:
        service.clock.ahead_s += seconds

    rater = SimulatedRater(service.url, token, pass_time, higher_is_better)
    assert rater.finish()["phase"] == "finished"
    return rater


def design_of(kind: Kind) -> dict[str, object]:
    how = dict(DESIGNS[kind])
    if "reference" in how:
        how |= REFERENCES
    how |= {"traps": 1, "gold": 1 if kind in (Kind.MOS, Kind.CMOS, Kind.AB, Kind.ABX) else 0}
    return how | {"kind": kind.value, "title": "Secret title", "seed": 987654321}


def clips(rater: SimulatedRater) -> list[httpx.Response]:
    return [reply for reply in rater.traffic if "/clip/" in reply.url.path]


@pytest.mark.parametrize("kind", list(Kind))
def test_all_traffic_of_a_rater_names_no_condition_item_file_or_seed(service, owner, kind: Kind) -> None:
    test, token = owner.opened(SECRETS, items=2, **design_of(kind))
    rater = answer_all(service, token)
    rater.http.post("/draft", json={"number": 1, "scores": [1.0]})
    secret = re.compile("|".join([*SECRETS, test, *(rf"\b{word}\b" for word in DESIGN_SECRETS)]), re.IGNORECASE)
    assert len(clips(rater)) > 2
    for reply in rater.traffic:
        page = reply.request.url.path.endswith(f"/listen/{token}")
        body = "" if page or reply.headers["content-type"] == "audio/wav" else reply.text
        told = RANDOM.sub("", f"{reply.url} {dict(reply.headers)} {body}")
        assert not secret.search(told), told
        if not page:  # that file is the same for everybody
            assert "etag" not in reply.headers and "last-modified" not in reply.headers


@pytest.mark.parametrize("kind", list(Kind))
def test_clips_of_a_trial_have_equal_sizes_and_headers_and_come_once(service, owner, kind: Kind) -> None:
    _, token = owner.opened(SECRETS, items=2, **design_of(kind))
    rater = answer_all(service, token)
    assert all(reply.status_code == 200 for reply in clips(rater))
    for reply in clips(rater):
        assert set(reply.headers) <= PLAIN_HEADERS
        assert rater.http.get(reply.url).status_code == 404  # an address is good once
        assert re.fullmatch(r"[\w-]{22}", reply.url.path.rsplit("/", 1)[1])
    sounds = {reply.url.path.rsplit("/", 1)[1]: reply for reply in clips(rater) if reply.status_code == 200}
    for trial in trials_of(rater):
        heard = [sounds.pop(a) for a in [*trial["slots"], trial["reference"], trial["x"]] if a in sounds]
        shapes = {frozenset((k, v) for k, v in reply.headers.items() if k != "date") for reply in heard}
        assert len(shapes) <= 1, shapes
        assert len({len(reply.content) for reply in heard}) <= 1
    assert not sounds


def trials_of(rater: SimulatedRater) -> list[dict[str, object]]:
    """Every trial that the rater was shown."""
    shown = [reply.json() for reply in rater.traffic if reply.headers["content-type"] == "application/json"]
    return [view["trial"] for view in shown if "trial" in view]


def test_one_clip_served_twice_never_has_the_same_bytes(service, owner) -> None:
    """Else the hidden reference, X of ABX and repeats could be found by comparing files."""
    for kind in (Kind.MUSHRA, Kind.ABX):
        _, token = owner.opened(SECRETS, items=2, **design_of(kind))
        rater = answer_all(service, token)
        prints = [fingerprint(reply.content) for reply in clips(rater)]
        assert len(prints) == len(set(prints))
        starts = {reply.content[:44] for reply in clips(rater) if len(reply.content) == len(clips(rater)[0].content)}
        assert len(starts) == 1


def test_order_says_nothing_about_the_condition(service, owner) -> None:
    """Over raters each condition is as often first as last; what is fetched first follows the buttons."""
    _, token = owner.opened(SECRETS, items=3, kind="ab", title="t", seed=5)
    first = Counter()
    for _ in range(4):
        rater = answer_all(service, token)
        for one in clips(rater)[::2]:
            first[round(pitch_of(one.content), -2)] += 1
    assert first == {300.0: 6, 900.0: 6}


def test_an_address_of_one_rater_is_no_use_to_another(service, owner) -> None:
    _, token = owner.opened(SECRETS, items=2, kind="ab")
    make = lambda: SimulatedRater(service.url, token, lambda _s: None, higher_is_better)  # noqa: E731
    one, other = make(), make()
    trial = one.join()["trial"]
    other.join()
    assert other.http.get(f"/clip/{trial['slots'][0]}").status_code == 404
    assert httpx.get(f"{service.url}/listen/{token}/clip/{trial['slots'][0]}").status_code == 404
    assert one.http.get(f"/clip/{trial['slots'][0]}").status_code == 200
