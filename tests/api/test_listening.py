"""Listening tests over HTTP, from the design to the answers, with simulated raters on the scripted engine."""

from __future__ import annotations

import csv
import io
import json
import threading
import zipfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import soundfile

from studio.api import listening_material
from studio.audio.loudness import loudness_of
from studio.listening.answers import Kind, read_csv
from studio.listening.export import export
from studio.listening.headphones import softest
from studio.listening.opening import open_test
from tests.simulated_rater import Owner, SimulatedRater, higher_is_better, pitch_of, tone

PITCHES = {"low tone": 300.0, "high tone": 900.0}


@pytest.fixture
def owner(service):
    return Owner(service.url)


def rater(service, token: str, taste=higher_is_better) -> SimulatedRater:
    def pass_time(seconds: float) -> None:
        service.clock.ahead_s += seconds

    return SimulatedRater(service.url, token, pass_time, taste)


def answers_of(owner: Owner, test: str):
    reply = owner.http.get(f"/v1/listening/tests/{test}/answers.csv")
    assert reply.status_code == 200, reply.text
    return read_csv(reply.text)


DESIGNS = {
    Kind.MOS: {},
    Kind.CMOS: {},
    Kind.AB: {},
    Kind.ABX: {"rounds": 2},
    Kind.MUSHRA: {"reference": "high tone"},
    Kind.MUSHRA_NMR: {},
    Kind.SIMILARITY: {"reference": "high tone"},
    Kind.INTELLIGIBILITY: {"texts": ["good morning", "good evening", "hello"]},
}
RIGHT = {
    Kind.MOS: {"c1": {2.0}, "c2": {4.0}},
    Kind.CMOS: {"c1": {-2.0}},  # c1 is worse than c2, whatever was shown first
    Kind.AB: {"c1": {0.0}},
    Kind.ABX: {"c1": {1.0}},
    Kind.SIMILARITY: {"c1": {2.0}},
    Kind.MUSHRA_NMR: {"c1": {20.0}, "c2": {30.0}},
}


@pytest.mark.parametrize("kind", list(Kind))
def test_each_kind_runs_from_design_to_answers_and_undoes_its_blinding(service, owner, kind: Kind) -> None:
    test, token = owner.opened(PITCHES, kind=kind.value, **DESIGNS[kind])
    for _ in range(2):
        assert rater(service, token).finish()["phase"] == "finished"
    found = answers_of(owner, test)
    assert len({a.rater for a in found}) == 2 and {a.kind for a in found} == {kind}
    scores = {c: {a.score for a in found if a.condition == c} for c in {a.condition for a in found}}
    if kind in RIGHT:
        assert scores == RIGHT[kind]
    if kind is Kind.MUSHRA:
        assert set(scores) == {"c1", "c2", "anchor35", "anchor70"}
    if kind is Kind.INTELLIGIBILITY:
        errors = {a.item: (a.score, a.words) for a in found}
        assert errors == {"s01": (0.0, 2), "s02": (1.0, 2), "s03": (2.0, 1)}
    assert owner.show(test)["counts"]["finished"] == 2


def test_traps_gold_training_and_repeats_come_with_their_roles(service, owner) -> None:
    test, token = owner.opened(PITCHES, items=5, kind="ab", training=1, traps=2, gold=1, repeats=1)
    assert rater(service, token).finish()["phase"] == "finished"
    found = answers_of(owner, test)
    assert Counter(a.role.value for a in found) == {"training": 1, "test": 4, "trap": 2, "gold": 1, "repeat": 1}
    assert all(a.wanted_low == a.wanted_high == 1 == a.score for a in found if a.role == "trap")


def test_studio_makes_the_material_itself_with_the_same_texts_and_seeds(service, owner) -> None:
    voice = "Ada"
    conditions = [
        {"name": "calm", "source": {"kind": "speech", "voice": voice, "settings": {"temperature": 0.5}}},
        {"name": "lively", "source": {"kind": "speech", "voice": voice, "settings": {"temperature": 1.2}}},
    ]
    texts = ["one two three four", "five six seven eight"]
    made = owner.create(kind="ab", title="settings", conditions=conditions, texts=texts, seed=100, headphones="off")
    owner.do(made["id"], "make")
    room = service.app.state.listening
    service.until(lambda: not room.generation.is_busy(made["id"]))
    shown = owner.show(made["id"])
    assert shown["problem"] == "" and shown["made"] == shown["to_make"] == 4
    drawn = Counter((s.seed, s.temperature) for s in service.lm.samplings)
    assert drawn == {(100, 0.5): 1, (100, 1.2): 1, (101, 0.5): 1, (101, 1.2): 1}
    assert owner.do(made["id"], "open").status_code == 200


def test_condition_of_other_studio_settings_waits_for_a_studio_that_has_them(service, owner) -> None:
    conditions = [
        {"name": "now", "source": {"kind": "speech", "voice": "Ada", "studio": {"flow_steps": 10}}},
        {"name": "six", "source": {"kind": "speech", "voice": "Ada", "studio": {"flow_steps": 6}}},
    ]
    made = owner.create(kind="abx", title="steps", conditions=conditions, texts=["one two three four"])
    assert made["waiting"] == [{"condition": "six", "wanted": {"flow_steps": 6}}]
    owner.do(made["id"], "make")
    room = service.app.state.listening
    service.until(lambda: not room.generation.is_busy(made["id"]))
    assert [c["condition"] for c in owner.show(made["id"])["clips"]] == ["c1"]
    refused = owner.do(made["id"], "make")
    assert refused.status_code == 409 and "--flow-steps 6" in refused.json()["error"]["message"]


def test_takes_become_conditions(service, owner) -> None:
    owner.http.get("/")  # the page's cookie, by which takes are found
    takes = []
    for seed in (1, 2):
        body = {"input": "one two three four", "voice": "Ada", "seed": seed, "response_format": "wav"}
        assert owner.http.post("/v1/audio/speech", json=body).status_code == 200
    while len(takes) < 2:
        takes = owner.http.get("/v1/audio/takes").json()["data"]
    conditions = [{"name": f"take {n}", "source": {"kind": "takes", "takes": [t["id"]]}} for n, t in enumerate(takes)]
    made = owner.create(kind="ab", title="takes", conditions=conditions)
    assert [(c["item"], c["text"]) for c in made["clips"]] == [("s01", "one two three four")] * 2
    stranger = Owner(service.url).http.post(
        "/v1/listening/tests", json={"kind": "ab", "title": "theirs", "conditions": conditions}
    )
    assert stranger.status_code == 404


def test_a_zip_of_a_folder_is_taken_with_texts_beside_the_clips(owner) -> None:
    made = owner.create(kind="intelligibility", title="zip", conditions=[{"name": "only"}])
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("folder/one.wav", tone(400))
        archive.writestr("folder/one.txt", "Good morning.")
        archive.writestr("__MACOSX/._one.wav", b"junk")
    shown = owner.upload(made["id"], "only", {"all.zip": packed.getvalue()}).json()
    assert [(c["item"], c["text"]) for c in shown["clips"]] == [("one", "Good morning.")]


BAD_DESIGNS = {
    "too few conditions": ({"kind": "ab", "conditions": [{"name": "one"}]}, "conditions"),
    "names twice": ({"kind": "ab", "conditions": [{"name": "x1"}, {"name": "x1"}]}, "conditions"),
    "no reference": ({"kind": "mushra", "conditions": [{"name": "a"}, {"name": "b"}]}, "reference"),
    "unknown kind": ({"kind": "taste", "conditions": []}, "kind"),
    "no title": ({"kind": "mos", "title": " ", "conditions": [{"name": "a"}]}, "title"),
    "texts missing": (
        {"kind": "mos", "conditions": [{"name": "a", "source": {"kind": "speech", "voice": "Ada"}}]},
        "texts",
    ),
    "unknown setting": (
        {"kind": "mos", "texts": ["a b"], "conditions": [
            {"name": "a", "source": {"kind": "speech", "voice": "Ada", "settings": {"loud": 1}}}]},
        "conditions",
    ),
    "quality by load": (
        {"kind": "mos", "texts": ["a b"], "conditions": [
            {"name": "a", "source": {"kind": "speech", "voice": "Ada", "settings": {"quality": "auto"}}}]},
        "conditions",
    ),
    "secret of the studio": (
        {"kind": "mos", "conditions": [{"name": "a", "source": {"kind": "upload", "studio": {"admin_password": "a"}}}]},
        "conditions",
    ),
    "unknown voice": (
        {"kind": "mos", "texts": ["a b"], "conditions": [{"name": "a", "source": {"kind": "speech", "voice": "Bob"}}]},
        "voice",
    ),
    "results never shown": (
        {"kind": "mos", "raters": 3, "min_results": 9, "conditions": [{"name": "a"}]}, "min_results",
    ),
    "arena that waits": (
        {"kind": "ab", "arena": True, "min_results": 1, "conditions": [
            {"name": name, "source": {"kind": "speech", "voice": "Ada"}} for name in ("one", "two")]},
        "min_results",
    ),
    "sentences for an arena": (
        {"kind": "ab", "arena": True, "texts": ["a b"], "conditions": [
            {"name": name, "source": {"kind": "speech", "voice": "Ada"}} for name in ("one", "two")]},
        "texts",
    ),
    "seed for an arena": (
        {"kind": "ab", "arena": True, "seed": 7, "conditions": [
            {"name": name, "source": {"kind": "speech", "voice": "Ada"}} for name in ("one", "two")]},
        "seed",
    ),
    "settings of the studio for an arena": (
        {"kind": "ab", "arena": True, "conditions": [
            {"name": str(steps), "source": {"kind": "speech", "voice": "Ada", "studio": {"flow_steps": steps}}}
            for steps in (6, 10)]},
        "conditions",
    ),
    "settings for an upload": (
        {"kind": "mos", "conditions": [{"name": "a", "source": {"kind": "upload", "settings": {"temperature": 1}}}]},
        "conditions",
    ),
    "takes for speech": (
        {"kind": "mos", "texts": ["a b"], "conditions": [
            {"name": "a", "source": {"kind": "speech", "voice": "Ada", "takes": ["x"]}}]},
        "conditions",
    ),
    "leaderboard for a plain test": (
        {"kind": "mos", "leaderboard": "never", "conditions": [{"name": "a"}]},
        "leaderboard",
    ),
    "anchors without a reference": ({"kind": "mos", "anchors": True, "conditions": [{"name": "a"}]}, "anchors"),
    "endless": (
        {"kind": "abx", "rounds": 10, "texts": ["a"] * 200, "conditions": [{"name": f"n{n}"} for n in range(12)]},
        "texts",
    ),
    "consent unblinds": ({"kind": "mos", "consent": "We try FP8.", "conditions": [{"name": "fp8"}]}, "consent"),
    "unspeakable sentence": (
        {"kind": "mos", "texts": ["..."], "conditions": [{"name": "a", "source": {"kind": "speech", "voice": "Ada"}}]},
        "texts",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_DESIGNS)
def test_bad_design_is_refused_at_its_field(owner, case: str) -> None:
    body, param = BAD_DESIGNS[case]
    reply = owner.http.post("/v1/listening/tests", json={"title": "t", **body})
    assert reply.status_code in (400, 404)
    assert reply.json()["error"]["param"] == param and reply.json()["error"]["message"]


NO_EFFECT = [case for case in BAD_DESIGNS if " for " in case or case.startswith("anchors")]


@pytest.mark.parametrize("case", NO_EFFECT)
def test_field_that_has_no_effect_is_refused_with_the_reason(owner, case: str) -> None:
    body, _ = BAD_DESIGNS[case]
    reply = owner.http.post("/v1/listening/tests", json={"title": "t", **body})
    assert "would have no effect: " in reply.json()["error"]["message"]


def damaged_zip(compression: int) -> bytes:
    """An archive whose directory is whole and whose content is not."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", compression) as archive:
        archive.writestr("one.wav", tone(300))
    data = bytearray(packed.getvalue())
    begin = 30 + len("one.wav") + 9  # the local header, and LZMA's own
    data[begin : begin + 200] = b"\xff" * 200
    return bytes(data)


def test_broken_upload_is_named_and_keeps_nothing(owner) -> None:
    test = owner.create(kind="mos", title="t", conditions=[{"name": "a"}])["id"]
    for files, said in (
        ({"fine.wav": tone(300), "broken.wav": b"RIFF....WAVEjunk"}, "broken.wav"),
        ({"silent.wav": tone(300, level=0.0)}, "silent.wav"),
        ({"short.wav": tone(300, seconds=0.2)}, "short.wav"),
        ({"notes.pdf": b"%PDF-1.4"}, "notes.pdf"),
        ({"cut.zip": b"PK\x03\x04 and no more"}, "cut.zip"),
        ({"torn.zip": damaged_zip(zipfile.ZIP_DEFLATED)}, "torn.zip"),
        ({"worn.zip": damaged_zip(zipfile.ZIP_LZMA)}, "worn.zip"),
        ({"a/one.wav": tone(300), "b/one.wav": tone(300)}, "one"),
        ({"one.wav": tone(300), "one.txt": b"a " * 501}, "one.txt"),
    ):
        reply = owner.upload(test, "a", files)
        assert reply.status_code == 400 and said in reply.json()["error"]["message"], files
    assert owner.show(test)["clips"] == []


def test_sound_of_an_upload_is_limited_in_all(owner, monkeypatch) -> None:
    monkeypatch.setattr("studio.listening.intake.MAX_TOTAL_S", 60.0)
    test = owner.create(kind="mos", title="t", conditions=[{"name": "a"}])["id"]
    refused = owner.upload(test, "a", {f"{n}.wav": tone(300, 16) for n in range(4)})
    assert refused.status_code == 400 and "1 minutes" in refused.json()["error"]["message"]
    assert owner.upload(test, "a", {f"{n}.wav": tone(300, 16) for n in range(3)}).status_code == 200


def test_uploads_that_come_at_once_are_in_memory_one_after_the_other(owner, monkeypatch) -> None:
    test = owner.create(kind="ab", title="t", conditions=[{"name": "a"}, {"name": "b"}])["id"]
    arrived, go_on, reading, most = threading.Semaphore(0), threading.Event(), [], []

    def arriving(*given, judge=listening_material.draft_of):
        arrived.release()
        return judge(*given)

    def read(files, really=listening_material.uploads):
        reading.append(files)
        most.append(len(reading))
        assert go_on.wait(120)
        reading.remove(files)
        return really(files)

    monkeypatch.setattr(listening_material, "draft_of", arriving)
    monkeypatch.setattr(listening_material, "uploads", read)
    with ThreadPoolExecutor(2) as people:
        replies = people.map(lambda name: owner.upload(test, name, {"s01.wav": tone(300)}).status_code, "ab")
        for _ in "ab":
            assert arrived.acquire(timeout=120)
        owner.show(test)  # by whose reply the second one is read too, if nothing holds it back
        go_on.set()
    assert list(replies) == [200, 200] and most == [1, 1]
    assert len(owner.show(test)["clips"]) == 2


def test_lacking_sentences_lengths_and_few_raters_are_said_before_the_test_opens(owner) -> None:
    conditions = [{"name": "a"}, {"name": "b"}]
    test = owner.create(kind="ab", title="t", conditions=conditions, raters=3)["id"]
    owner.upload(test, "a", {"s01.wav": tone(300, 0.6), "s02.wav": tone(300, 0.6), "s03.wav": tone(300, 0.6)})
    shown = owner.upload(test, "b", {"s01.wav": tone(500, 2.4), "s02.wav": tone(500, 0.9)}).json()
    said = {(p["level"], p["param"]): p["message"] for p in shown["problems"]}
    errors = [p["message"] for p in shown["problems"] if p["level"] == "error"]
    assert any("s03" in message for message in errors) and any("s01" in message for message in errors)
    assert "3 raters" in said["note", "raters"]
    refused = owner.do(test, "open")
    assert refused.status_code == 400 and refused.json()["error"]["message"] in errors


def test_clips_stay_with_the_name_of_their_condition(owner) -> None:
    design = {"kind": "ab", "title": "t"}
    test = owner.create(conditions=[{"name": "a"}, {"name": "b"}, {"name": "c"}], **design)["id"]
    seconds = {"a": 0.6, "b": 0.8, "c": 1.0}
    for name, length in seconds.items():
        owner.upload(test, name, {"s01.wav": tone(300, length)})
    for names in (["c", "a", "new"], ["other", "c"]):
        conditions = [{"name": name} for name in names]
        shown = owner.http.put(f"/v1/listening/tests/{test}", json={"conditions": conditions, **design}).json()
        titles = {c["id"]: c["name"] for c in shown["design"]["conditions"]}
        kept = {titles[clip["condition"]]: clip["seconds"] for clip in shown["clips"]}
        assert list(titles.values()) == names
        assert kept == {name: seconds[name] for name in names if name in seconds}


def test_only_the_owner_sees_a_test(service, owner) -> None:
    test, token = owner.opened(PITCHES, kind="ab")
    other = Owner(service.url)
    assert other.http.get("/v1/listening/tests").json()["data"] == []
    for path in ("", "/answers.csv", "/webmushra.csv", "/export.zip"):
        assert other.http.get(f"/v1/listening/tests/{test}{path}").status_code == 404
    them = rater(service, token)
    them.finish()
    assert them.http.get(f"{service.url}/v1/listening/tests/{test}/answers.csv").status_code == 404
    key = owner.http.get("/v1/listening/owner").json()["key"]
    own = owner.http.get("/v1/listening/tests").json()["data"]
    assert other.http.post("/v1/listening/owner", json={"key": key}).json() == {"tests": len(own)}
    assert other.http.get(f"/v1/listening/tests/{test}").status_code == 200


def test_results_wait_for_enough_raters(service, owner) -> None:
    test, token = owner.opened(PITCHES, kind="ab", min_results=2)
    rater(service, token).finish()
    early = owner.http.get(f"/v1/listening/tests/{test}/answers.csv")
    assert early.status_code == 409 and "2" in early.json()["error"]["message"]
    rater(service, token).finish()
    assert len(answers_of(owner, test)) == 6


def test_links_expire_and_can_be_withdrawn(service, owner) -> None:
    test, token = owner.opened(PITCHES, kind="ab")
    brief = owner.invite(test, days=1)[0]
    state = lambda t: httpx.get(f"{service.url}/listen/{t}/state").status_code  # noqa: E731
    assert (state(token), state(brief), state("nonsense")) == (200, 200, 404)
    service.clock.ahead_s += 2 * 24 * 3600
    assert (state(token), state(brief)) == (200, 404)
    owner.http.delete(f"/v1/listening/tests/{test}/invitations/{token}")
    assert state(token) == 404


def test_whoever_joined_in_time_may_finish_after_the_link_expired(service, owner) -> None:
    test, _ = owner.opened(PITCHES, kind="ab")
    brief = owner.invite(test, days=1)[0]
    them = rater(service, brief)
    view = them.join()
    service.clock.ahead_s += 2 * 24 * 3600
    assert them.answer(view)["trial"]["number"] == 2
    assert httpx.post(f"{service.url}/listen/{brief}/join", json={"consent": True}).status_code == 404


def test_named_rater_goes_on_from_any_device(service, owner) -> None:
    test, _ = owner.opened(PITCHES, kind="ab")
    ada, bob = owner.invite(test, names=["Ada", "Bob"])
    assert rater(service, ada).finish(trials=1)["trial"]["number"] == 2
    elsewhere = rater(service, ada)
    assert elsewhere.http.get("/state").json()["trial"]["number"] == 2
    assert elsewhere.finish()["phase"] == "finished"
    assert rater(service, bob).join()["trial"]["number"] == 1
    assert len({a.rater for a in answers_of(owner, test)}) == 1


def test_consent_is_asked_for(service, owner) -> None:
    _, token = owner.opened(PITCHES, kind="ab", consent="Your answers are kept.")
    client = httpx.Client(base_url=f"{service.url}/listen/{token}")
    assert client.get("/state").json()["consent"] == "Your answers are kept."
    assert client.post("/join", json={"consent": False}).json()["error"]["param"] == "consent"
    assert client.post("/join", json={"consent": True}).json()["phase"] == "trial"


def test_headphones_are_checked_and_may_be_required(service, owner) -> None:
    _, token = owner.opened(PITCHES, kind="ab", headphones="require")
    them = rater(service, token)
    assert them.join()["phase"] == "headphones"
    assert them.http.get("/headphones/1").headers["content-type"] == "audio/wav"
    assert them.http.get("/headphones/2").status_code == 409
    room = service.app.state.listening
    test = room.store.invitation(token).test
    me = room.raters.of_test(test)[0].id

    def attempt(first: int, right: int) -> str:
        for number in range(first, first + 6):
            place = softest(me, number)[0] + (number - first >= right)
            view = them.http.post("/headphones", json={"number": number, "chosen": place % 3}).json()
        return view["phase"]

    assert attempt(1, right=4) == "no_headphones"
    assert them.http.post("/headphones/again").json()["number"] == 7
    assert attempt(7, right=5) == "trial"


def test_everything_must_be_heard_before_an_answer_counts(service, owner) -> None:
    service.clock.stand()
    test, token = owner.opened(PITCHES, kind="ab")
    them = rater(service, token)
    trial = them.join()["trial"]
    send = lambda: them.http.post("/answer", json={"number": 1, "scores": [1]})  # noqa: E731
    assert send().json()["error"]["code"] == "listening_conflict"
    them.http.get(f"/clip/{trial['slots'][0]}")
    service.clock.ahead_s += 60
    assert send().status_code == 409  # the second was never fetched
    them.http.get(f"/clip/{trial['slots'][1]}")
    assert send().json()["trial"]["number"] == 2
    trial = them.http.get("/state").json()["trial"]
    for address in trial["slots"]:
        them.http.get(f"/clip/{address}")
    too_fast = them.http.post("/answer", json={"number": 2, "scores": [1]})
    assert too_fast.status_code == 409  # both fetched, but no time to hear them
    assert len(answers_of(owner, test)) == 1


def test_impossible_answers_are_refused_and_nothing_is_lost(service, owner) -> None:
    _, token = owner.opened(PITCHES, kind="mos")
    them = rater(service, token)
    them.hear(them.join()["trial"])
    for scores in ([], [6], [0], [2.5], [1, 2]):
        assert them.http.post("/answer", json={"number": 1, "scores": scores}).status_code == 400
    assert them.http.post("/answer", json={"number": 2, "scores": [3]}).status_code == 409
    assert them.http.post("/answer", json={"number": 1, "scores": [3]}).json()["trial"]["number"] == 2
    assert them.http.post("/answer", json={"number": 1, "scores": [5]}).json()["trial"]["number"] == 2  # sent twice


def test_a_draft_is_kept_at_once_and_comes_back(service, owner) -> None:
    _, token = owner.opened(PITCHES, kind="mushra_nmr")
    them = rater(service, token)
    them.join()
    draft = {"scores": [40.0, None], "heard_s": [0.5, 0.0], "typed": "", "comment": "hm"}
    assert them.http.post("/draft", json={"number": 1, **draft}).json() == {"kept": True}
    assert them.http.get("/state").json()["trial"]["draft"] == draft


def test_a_trial_without_an_answer_in_time_is_passed_over(service, owner) -> None:
    service.clock.stand()
    test, token = owner.opened(PITCHES, kind="mos", timeout_s=20)
    them = rater(service, token)
    view = them.join()
    assert view["timeout_s"] == 20
    early = them.http.post("/answer", json={"number": 1, "timeout": True})
    assert early.status_code == 409
    service.clock.ahead_s += 20
    assert them.http.post("/answer", json={"number": 1, "timeout": True}).json()["trial"]["number"] == 2
    them.hear(them.http.get("/state").json()["trial"])
    service.clock.ahead_s += 100
    late = them.http.post("/answer", json={"number": 2, "scores": [3], "seconds": 100}).json()
    assert late["trial"]["number"] == 3 and answers_of(owner, test) == []
    assert owner.show(test)["counts"]["timeouts"] == 2


def test_an_answer_given_in_time_counts_though_the_server_was_away(service, owner) -> None:
    test, token = owner.opened(PITCHES, kind="mos", timeout_s=20)
    them = rater(service, token)
    them.hear(them.join()["trial"])
    service.clock.ahead_s += 100
    assert them.http.post("/answer", json={"number": 1, "scores": [3], "seconds": 12}).status_code == 200
    assert [a.score for a in answers_of(owner, test)] == [3]


def test_deleting_asks_for_the_title_and_keeps_an_export(service, owner) -> None:
    test, token = owner.opened(PITCHES, kind="ab", title="Two tones")
    rater(service, token).finish()
    path = f"/v1/listening/tests/{test}"
    refused = owner.http.request("DELETE", path, json={"title": "yes"})
    assert refused.status_code == 400 and "Two tones" in refused.json()["error"]["message"]
    gone = owner.http.request("DELETE", path, json={"title": "Two tones"}).json()
    assert owner.http.get(path).status_code == 404
    assert httpx.get(f"{service.url}/listen/{token}/state").status_code == 404
    kept = zipfile.ZipFile(io.BytesIO(owner.http.get(gone["export"]).content))
    assert len(read_csv(kept.read("answers.csv").decode())) == 3
    assert json.loads(kept.read("design.json"))["title"] == "Two tones"
    assert sum(name.startswith("given/") for name in kept.namelist()) == 6
    assert Owner(service.url).http.get(gone["export"]).status_code == 404


def test_zip_of_everything_is_streamed_and_kept_ones_are_bounded(service, owner, monkeypatch) -> None:
    monkeypatch.setattr("studio.listening.export.KEPT_MAX_BYTES", 0)
    kept = []
    for title in ("first", "second"):
        test, token = owner.opened(PITCHES, kind="ab", title=title)
        rater(service, token).finish()
        with owner.http.stream("GET", f"/v1/listening/tests/{test}/export.zip") as sent:
            assert "content-length" not in sent.headers  # it begins before its end is known
            assert zipfile.ZipFile(io.BytesIO(sent.read())).testzip() is None
        kept.append(owner.http.request("DELETE", f"/v1/listening/tests/{test}", json={"title": title}).json()["export"])
    assert [owner.http.get(path).status_code for path in kept] == [404, 200]


def test_answer_that_comes_while_its_test_is_deleted_is_not_confirmed(service, owner, monkeypatch) -> None:
    test, token = owner.opened(PITCHES, kind="mos", title="going")
    them = rater(service, token)
    them.hear(them.join()["trial"])
    replies = []

    def export_with_a_late_answer(*of):
        content = export(*of)
        replies.append(them.http.post("/answer", json={"number": 1, "scores": [3]}).status_code)
        return content

    monkeypatch.setattr("studio.api.listening.export", export_with_a_late_answer)
    path = f"/v1/listening/tests/{test}"
    assert owner.http.request("DELETE", path, json={"title": "going"}).status_code == 200
    assert replies == [409]


def test_nothing_else_happens_to_a_test_while_it_is_opened(service, owner, monkeypatch) -> None:
    design = {"kind": "mos", "title": "t", "conditions": [{"name": "a"}]}
    test = owner.create(**design)["id"]
    owner.upload(test, "a", {"s01.wav": tone(300)})
    path, replies = f"/v1/listening/tests/{test}", {}

    def open_slowly(*of):
        replies["open"] = owner.do(test, "open")
        replies["make"] = owner.do(test, "make")
        replies["design"] = owner.http.put(path, json=design)
        replies["upload"] = owner.upload(test, "a", {"s02.wav": tone(300)})
        replies["delete"] = owner.http.request("DELETE", path, json={"title": "t"})
        open_test(*of)

    monkeypatch.setattr("studio.api.listening.open_test", open_slowly)
    assert owner.do(test, "open").json()["state"] == "open"
    assert {name: reply.status_code for name, reply in replies.items()} == dict.fromkeys(replies, 409)
    assert len(replies) == 5 and len(owner.show(test)["clips"]) == 1


def test_webmushra_configuration_becomes_a_test_and_answers_its_csv(service, owner) -> None:
    page = """
    - type: mushra
      id: trial{0}
      reference: configs/audio/ref{0}.wav
      createAnchor35: true
      createAnchor70: true
      stimuli: {{C1: configs/audio/c1_{0}.wav, C2: configs/audio/c2_{0}.wav}}
    """
    config = "testname: Example\ntestId: e\npages:\n- type: generic\n- - random\n" + "".join(
        "".join(f"  {line[4:]}\n" for line in page.format(n).splitlines()[1:]) for n in (1, 2)
    )
    files = {"mushra.yaml": config.encode()}
    for n in (1, 2):
        files |= {f"audio/ref{n}.wav": tone(900), f"audio/c1_{n}.wav": tone(500), f"audio/c2_{n}.wav": tone(300)}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    reply = owner.http.post("/v1/listening/import", files=[("files", ("test.zip", packed.getvalue()))])
    assert reply.status_code == 200, reply.text
    made = reply.json()
    assert (made["design"]["kind"], made["design"]["title"], made["design"]["reference"]) == ("mushra", "Example", "c1")
    assert [c["name"] for c in made["design"]["conditions"]] == ["reference", "C1", "C2"]
    assert len(made["clips"]) == 6
    owner.do(made["id"], "open")
    them = rater(service, owner.invite(made["id"])[0])
    them.join()
    for number in range(1, 7):
        view = them.http.post("/headphones", json={"number": number, "chosen": 0}).json()
    assert view["phase"] == "trial"
    assert them.finish()["phase"] == "finished"
    rows = list(csv.DictReader(io.StringIO(owner.http.get(f"/v1/listening/tests/{made['id']}/webmushra.csv").text)))
    assert list(rows[0])[2:] == ["trial_id", "rating_stimulus", "rating_score", "rating_time", "rating_comment"]
    assert Counter(row["rating_stimulus"] for row in rows) == dict.fromkeys(
        ("reference", "C1", "C2", "anchor35", "anchor70"), 2
    )
    assert {row["trial_id"] for row in rows} == {"01 trial1", "02 trial2"}


def test_webmushra_file_that_is_not_there_is_named(owner) -> None:
    config = b"testname: e\npages:\n- {type: mushra, id: a, reference: x/ref.wav, stimuli: {C1: x/c1.wav}}\n"
    sent = [("files", ("m.yaml", config)), ("files", ("ref.wav", tone(300)))]
    reply = owner.http.post("/v1/listening/import", files=sent)
    assert reply.status_code == 400 and "x/c1.wav" in reply.json()["error"]["message"]


def test_raters_need_no_api_key_and_owners_do(start_service) -> None:
    service = start_service("--api-key", "secret")
    boss = Owner(service.url, headers={"Authorization": "Bearer secret"})
    _, token = boss.opened(PITCHES, kind="ab")
    assert rater(service, token).finish()["phase"] == "finished"
    assert httpx.get(f"{service.url}/v1/listening/tests").status_code == 401


def test_loudness_is_matched_and_silence_trimmed(service, owner) -> None:
    """Both conditions come equally loud, though one was uploaded 20 dB softer."""
    test = owner.create(kind="ab", title="t", headphones="off", conditions=[{"name": "a"}, {"name": "b"}])["id"]
    owner.upload(test, "a", {"s.wav": tone(900, level=0.5)})
    owner.upload(test, "b", {"s.wav": tone(600, level=0.05)})
    assert owner.do(test, "open").status_code == 200
    them = rater(service, owner.invite(test)[0])
    slots, _ = them.hear(them.join()["trial"])
    heard = {round(pitch_of(wav), -2): soundfile.read(io.BytesIO(wav), dtype="float32") for wav in slots}
    levels = {pitch: loudness_of(*sound).lufs for pitch, sound in heard.items()}
    assert set(levels) == {600.0, 900.0}
    assert abs(levels[600.0] - levels[900.0]) < 0.1 and abs(levels[600.0] + 23) < 0.1


def test_similarity_is_heard_against_the_clip_of_each_voice(service, owner) -> None:
    conditions = [
        {"name": name, "source": {"kind": "speech", "voice": "Ada", "settings": {"temperature": heat}}}
        for name, heat in (("cool", 0.5), ("hot", 1.2))
    ]
    design = {"kind": "similarity", "title": "like Ada", "reference": "voice", "headphones": "off"}
    made = owner.create(conditions=conditions, texts=["one two three four"], **design)
    owner.do(made["id"], "make")
    room = service.app.state.listening
    service.until(lambda: not room.generation.is_busy(made["id"]))
    assert owner.do(made["id"], "open").status_code == 200
    them = rater(service, owner.invite(made["id"])[0])
    trial = them.join()["trial"]
    slots, reference = them.hear(trial)
    seconds = (len(slots[0]) - 44) / 2 / 24_000  # that of the longer, the clip of the voice
    assert trial["hear_s"] == pytest.approx(seconds, abs=0.001)
    assert reference is not None and abs(pitch_of(reference) - 180) < 1  # the tone that Ada was made of
    assert abs(pitch_of(slots[0]) - 180) > 1 and len(reference) == len(slots[0])


def test_comments_on_a_trial_and_at_the_end_are_kept(service, owner) -> None:
    test, token = owner.opened(PITCHES, kind="mos")

    def taste(kind, trial, slots, extra):
        return {"scores": [3], "comment": f"heard {trial['number']} of {trial['total']}"}

    them = rater(service, token, taste)
    them.finish()
    assert them.http.post("/comment", json={"comment": "a hum"}).json() == {"kept": True}
    assert them.http.get("/state").json()["comment"] == "a hum"
    assert [a.comment for a in answers_of(owner, test)] == [f"heard {n} of 6" for n in range(1, 7)]
    kept = zipfile.ZipFile(io.BytesIO(owner.http.get(f"/v1/listening/tests/{test}/export.zip").content))
    assert json.loads(kept.read("raters.json"))[0]["comment"] == "a hum"


def test_broken_characters_and_numbers_are_refused_before_they_are_kept(service, owner) -> None:
    broken = "\ud800"
    head = {"content-type": "application/json"}
    design = json.dumps({"kind": "mos", "title": broken, "conditions": [{"name": "a"}]})
    assert owner.http.post("/v1/listening/tests", content=design, headers=head).status_code == 400
    test, token = owner.opened(PITCHES, kind="mos")
    names = json.dumps({"names": [broken]})
    path = f"/v1/listening/tests/{test}/invitations"
    assert owner.http.post(path, content=names, headers=head).status_code == 400
    them = rater(service, token)
    them.hear(them.join()["trial"])
    for path, body in (
        ("/answer", {"number": 1, "scores": [3], "comment": broken}),
        ("/answer", {"number": 1, "scores": [float("nan")]}),
        ("/draft", {"number": 1, "heard_s": [float("inf")]}),
        ("/comment", {"comment": broken}),
    ):
        assert them.http.post(path, content=json.dumps(body), headers=head).status_code == 400, path
    assert them.http.get("/state").json()["trial"]["number"] == 1


@pytest.mark.parametrize("pages", [
    "&a [*a]",
    "[&a [], &b [*a, *a], &c [*b, *b], &d [*c, *c], &e [*d, *d], &f [*e, *e], &g [*f, *f], &h [*g, *g], [*h, *h, *h]]",
    "[{type: mushra, stimuli: [1, 2]}]",
    "[{type: [mushra], stimuli: {}}]",
    "[{type: mushra, id: {a: 1}, reference: ref.wav, stimuli: {}}]",
    "[{type: mushra, stimuli: {? [a, b] : c.wav}}]",
    "[{type: mushra, stimuli: {C1: [c.wav]}}]",
    f"[&a {'lol' * 1000}, {', '.join(['*a'] * 1000)}]",
    "5",
])  # fmt: skip
def test_hostile_webmushra_configuration_is_refused(owner, pages: str) -> None:
    sent = [("files", ("m.yaml", f"testname: e\npages: {pages}\n".encode()))]
    reply = owner.http.post("/v1/listening/import", files=sent)
    assert reply.status_code == 400 and reply.json()["error"]["param"] == "files"
