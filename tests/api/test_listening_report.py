"""Reports of listening tests over HTTP: what simulated raters answered, as page, PDF, pictures and figures."""

from __future__ import annotations

import itertools

import pytest

from studio.listening.companion import Clip, to_json
from tests.simulated_rater import Owner, SimulatedRater, higher_is_better

PITCHES = {"low tone": 300.0, "high tone": 900.0}


@pytest.fixture
def owner(service):
    return Owner(service.url)


def rated(service, owner: Owner, raters: int = 3, taste=higher_is_better, **design) -> str:
    """A test with the answers of so many raters."""
    test, token = owner.opened(PITCHES, **({"kind": "mos"} | design))
    rate(service, token, raters, taste)
    return test


def rate(service, token: str, raters: int, taste) -> None:
    def pass_time(seconds: float) -> None:
        service.clock.ahead_s += seconds

    for _ in range(raters):
        assert SimulatedRater(service.url, token, pass_time, taste).finish()["phase"] == "finished"


def got(owner: Owner, test: str, what: str, **options):
    return owner.http.get(f"/v1/listening/tests/{test}/{what}", params=options)


def figures(owner: Owner, test: str, **options):
    reply = got(owner, test, "report.json", **options)
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_a_report_is_a_page_a_pdf_pictures_and_figures_in_two_languages(service, owner) -> None:
    test = rated(service, owner)
    for language, word in (("en", "How it was computed"), ("zh", "计算方法")):
        page = got(owner, test, "report", language=language)
        assert page.status_code == 200 and word in page.text and "low tone" in page.text
        assert page.headers["content-security-policy"].startswith("default-src 'none'")
        assert got(owner, test, "report.pdf", language=language).content.startswith(b"%PDF-")
    assert got(owner, test, "pictures/values.png").content.startswith(b"\x89PNG")
    assert b"<svg" in got(owner, test, "pictures/values.svg").content
    assert figures(owner, test)["pictures"] == ["values", "answers", "differences"]
    first, second = figures(owner, test)["everyone"]["cells"]
    assert (first["value"]["value"], first["value"]["raters"]) == (2.0, 3)
    assert second["value"]["value"] == 4.0


def test_abx_is_tested_exactly_and_differences_by_holm(service, owner) -> None:
    [row] = figures(owner, rated(service, owner, kind="abx", rounds=2))["everyone"]["contrasts"]
    assert row["test"] == "binomial"
    assert row["p"] == row["corrected_p"] == 0.5 ** (3 * 3 * 2)  # raters, sentences, rounds: all right


def test_raters_who_fail_traps_are_left_out_and_both_results_are_shown(service, owner) -> None:
    def careless(kind, trial, slots, extra):
        told = higher_is_better(kind, trial | {"check": None}, slots, extra)
        return {"scores": [score - 1 for score in told["scores"]]}

    test, token = owner.opened(PITCHES, kind="mos", traps=2)
    rate(service, token, 2, higher_is_better)
    rate(service, token, 1, careless)
    found = figures(owner, test)
    assert (found["everyone"]["raters"], found["screened"]["raters"]) == (3, 2)
    [left_out] = found["screening"]["exclusions"]
    assert (left_out["rule"], left_out["limit"]) == ("traps", 0.25)
    assert (
        found["everyone"]["cells"][0]["value"]["value"]
        < found["screened"]["cells"][0]["value"]["value"]
        == 2.0
    )
    assert "after screening" in got(owner, test, "report", language="en").text
    assert figures(owner, test, trap_share=1)["screened"]["raters"] == 3  # the owner may switch the rule off


def test_pairs_are_ranked_by_bradley_terry_and_the_mixed_model_is_an_option(service, owner) -> None:
    pitches = PITCHES | {"middle tone": 600.0}
    test, token = owner.opened(pitches, kind="ab")
    rate(service, token, 2, higher_is_better)
    ranking = figures(owner, test)["everyone"]["ranking"]
    assert [row["condition"] for row in ranking["rows"]] == ["c2", "c3", "c1"] and ranking["separated"]
    trials = itertools.count()

    def unsteady(kind, trial, slots, extra):
        """Every third score one lower: without chance in them there is nothing to fit."""
        told = higher_is_better(kind, trial, slots, extra)
        return {"scores": [score - (next(trials) % 3 == 0) for score in told["scores"]]}

    scored = rated(service, owner, taste=unsteady)
    assert figures(owner, scored)["everyone"]["mixed"] is None
    assert figures(owner, scored, mixed=True)["everyone"]["mixed"]["rows"]


def test_only_the_owner_sees_a_report_and_not_before_enough_raters_have_finished(service, owner) -> None:
    test = rated(service, owner, raters=1, min_results=2)
    for what in ("report", "report.pdf", "report.json", "pictures/values.png"):
        assert got(owner, test, what).status_code == 409
        assert got(Owner(service.url), test, what).status_code == 404
    assert owner.do(test, "close").status_code == 200
    assert got(owner, test, "report").status_code == 200


def test_a_picture_or_an_option_that_does_not_exist_is_refused_with_what_there_is(service, owner) -> None:
    test = rated(service, owner, raters=1)
    reply = got(owner, test, "pictures/ranking.png")
    assert reply.status_code == 404 and "values" in reply.json()["error"]["message"]
    assert got(owner, test, "pictures/values.exe").status_code == 404
    assert got(owner, test, "report", trap_share=2).status_code == 400
    assert got(owner, test, "report", colour="red").status_code == 400


def test_measures_made_elsewhere_stand_beside_the_answers(service, owner) -> None:
    test = rated(service, owner)
    address = f"/v1/listening/tests/{test}/measures"
    assert owner.http.get(address).status_code == 404
    for broken in ("", "{}", '{"clips": [{"x": 1}], "absent": {}}', '{"clips": 7, "absent": {}}'):
        reply = owner.http.put(address, content=broken)
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "body")
    clips = [
        Clip(f"s{n:02}", c, dnsmos=3.0 + n / 10 + k) for n in (1, 2, 3) for k, c in enumerate(("c1", "c2"))
    ]
    absent = {"similarity": "the test has no reference clip"}
    reply = owner.http.put(address, content=to_json(clips, absent))
    assert reply.json() == {"clips": 6, "absent": absent}
    assert len(owner.http.get(address).json()["clips"]) == 6
    page = got(owner, test, "report", language="en").text
    assert "DNSMOS overall" in page and "Spearman" in page
    assert "Speaker similarity (cosine) was left out: the test has no reference clip" in page


def test_the_studio_measures_the_clips_of_a_test_itself(service, owner) -> None:
    """The real judges, over tones: what they hear is no speech, but each of them says something."""
    test, _ = owner.opened(PITCHES, items=1, kind="mushra", reference="high tone", texts=["hello there"])
    reply = owner.http.post(f"/v1/listening/tests/{test}/measures", timeout=300)
    assert reply.status_code == 200, reply.text
    assert reply.json() == {"clips": 4, "absent": {}}
    page = got(owner, test, "report", language="en").text
    for measure in (
        "Word error rate (recogniser)",
        "Speaker similarity",
        "DNSMOS overall",
        "LUFS",
        "Speech rate",
    ):
        assert measure in page


def vote(service, token: str, buttons: list[float]) -> None:
    """A visitor of the arena, who types a text for each pair and takes these buttons."""

    def pass_time(seconds: float) -> None:
        service.clock.ahead_s += seconds

    visitor = SimulatedRater(service.url, token, pass_time, lambda *_: {"scores": [buttons.pop(0)]})
    view = visitor.join()
    while buttons:
        assert view["phase"] == "text"
        view = visitor.http.post("/text", json={"text": "one two three four"}).json()
        view = visitor.answer(view)


def test_the_arena_ranks_with_intervals_and_does_not_count_who_always_takes_one_button(
    service, owner
) -> None:
    sources = [{"kind": "speech", "voice": "Ada", "settings": {"temperature": t}} for t in (0.5, 0.8, 1.1)]
    conditions = [{"name": f"setting {n}", "source": source} for n, source in enumerate(sources)]
    test = owner.create(kind="ab", title="arena", conditions=conditions, arena=True, headphones="off")["id"]
    assert owner.do(test, "open").status_code == 200
    [token] = owner.invite(test)
    service.clock.ahead_s += 3601  # the hour of other tests is over
    for buttons in ([0, 1] * 3, [1, 0] * 3, [0] * 10):
        vote(service, token, buttons)
    found = figures(owner, test)["everyone"]
    assert (found["raters"], found["answers"]) == (2, 12)
    ranked = {row["condition"]: row for row in found["ranking"]["rows"]}
    assert ranked.keys() == {"c1", "c2", "c3"}
    # Which pairs they heard is chance: now and then so few votes bound nothing.
    assert all(row["low"] is None or row["low"] <= row["strength"] <= row["high"] for row in ranked.values())
    assert got(owner, test, "pictures/ranking.png").content.startswith(b"\x89PNG")


def test_a_report_says_how_many_listeners_are_missing_for_a_difference_worth_finding(service, owner) -> None:
    heard = iter([2, 3, 4, 5, 3, 5] * 3)

    def wavering(kind, trial, slots, extra):
        return {"scores": [next(heard)]}

    test = rated(service, owner, raters=3, taste=wavering)
    [row] = figures(owner, test)["everyone"]["contrasts"]
    [coarse] = figures(owner, test, difference=3)["everyone"]["contrasts"]
    assert row["more"] > coarse["more"] >= 0
    assert (
        "More listeners: about how many are missing to find a difference of 0.20"
        in got(owner, test, "report", language="en").text
    )
