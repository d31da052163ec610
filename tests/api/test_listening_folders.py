"""Conditions from uploaded folders: one folder a condition, files matched by name, all of them or none."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Mapping

import httpx
import pytest

from tests.simulated_rater import Owner, tone

NEW, OLD = tone(300), tone(500)
GOOD = {f"takes/{folder}/{item}.wav": sound for folder, sound in (("new", NEW), ("old", OLD)) for item in ("a", "b")}


@pytest.fixture
def owner(service):
    return Owner(service.url)


def give(owner: Owner, test: str, files: Mapping[str, bytes]) -> httpx.Response:
    parts = [("files", (name, content)) for name, content in files.items()]
    return owner.http.post(f"/v1/listening/tests/{test}/folders", files=parts)


def draft(owner: Owner, **design) -> str:
    conditions = [{"name": "the new one", "source": {"folder": "new"}}, {"name": "old"}]
    return owner.create(**({"kind": "ab", "title": "folders", "conditions": conditions} | design))["id"]


def packed(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


@pytest.mark.parametrize("as_zip", [False, True])
def test_folders_become_the_clips_of_their_conditions_matched_by_name(owner, as_zip: bool) -> None:
    files = GOOD | {"takes/new/a.txt": b"Good morning.", "takes/.DS_Store": b"\0", "takes/old/Thumbs.db": b"\0"}
    test = draft(owner)
    reply = give(owner, test, {"all.zip": packed(files)} if as_zip else files)
    assert reply.status_code == 200, reply.text
    clips = {(c["condition"], c["item"]): c["text"] for c in reply.json()["clips"]}
    assert clips == {("c1", "a"): "Good morning.", ("c1", "b"): "", ("c2", "a"): "", ("c2", "b"): ""}
    assert owner.do(test, "open").status_code == 200


BAD = {
    "sentence missing": (["takes/old/b.wav"], {}, '"old" lacks 1 of the sentences: b.'),
    "sentence too many": ([], {"takes/new/c.wav": NEW}, '"old" lacks 1 of the sentences: c.'),
    "folder missing": (["takes/old/a.wav", "takes/old/b.wav"], {}, 'no folder "old"'),
    "folder unknown": ([], {"takes/other/a.wav": NEW}, 'no condition for the folder "other"'),
    "no folder": ([], {"a.wav": NEW}, '"a.wav" lies in no folder'),
    "not audio": ([], {"takes/old/a.wav": b"%PDF-1.4"}, '"takes/old/a.wav" cannot be used'),
    "too long": ([], {"takes/old/a.wav": tone(300, 61, rate_hz=8000)}, "lasts 61 s; at most 60 s"),
    "too short": ([], {"takes/old/a.wav": tone(300, 0.2)}, "0.4 s are needed"),
    "silent": ([], {"takes/old/a.wav": tone(300, level=0.0)}, "is silent"),
    "lengths far apart": ([], {"takes/old/a.wav": tone(300, 2.4)}, "Sentence a is 0.6 s in one condition and 2.4 s"),
    "sentence twice": ([], {"takes/old/a.flac": OLD}, 'two files for the sentence "a"'),
    "broken zip": ([], {"more.zip": b"PK\3\4 and no more"}, '"more.zip" is damaged'),
    "endless zip": (
        [],
        {"more.zip": b"PK\3\4" + (b"PK\1\2" + bytes(42)) * 30_000
         + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 30_000, 30_000, 30_000 * 46, 4, 0)},
        "At most 1000 files",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_folders_are_refused_whole_with_what_to_change(owner, case: str) -> None:
    without, more, said = BAD[case]
    test = draft(owner)
    reply = give(owner, test, {name: sound for name, sound in GOOD.items() if name not in without} | more)
    error = reply.json()["error"]
    assert (reply.status_code, error["param"]) == (400, "files") and said in error["message"], error
    assert owner.show(test)["clips"] == []


def test_folders_beside_spoken_conditions_hold_the_sentences_that_are_spoken(owner) -> None:
    conditions = [{"name": "new"}, {"name": "spoken", "source": {"kind": "speech", "voice": "Ada"}}]
    test = draft(owner, conditions=conditions, texts=["one two", "three four"])
    for names, said in (("ab", '"new" lacks 2 of the sentences: s01, s02'), (("s01", "s02", "x"), "none of them: x")):
        reply = give(owner, test, {f"new/{name}.wav": NEW for name in names})
        assert reply.status_code == 400 and said in reply.json()["error"]["message"]
    assert give(owner, test, {"new/s01.wav": NEW, "new/s02.wav": NEW}).status_code == 200


def test_sound_of_all_folders_is_limited_together(owner, monkeypatch) -> None:
    monkeypatch.setattr("studio.listening.intake.MAX_TOTAL_S", 60.0)
    test = draft(owner)
    reply = give(owner, test, {f"{folder}/{n}.wav": tone(300, 16) for folder in ("new", "old") for n in range(2)})
    assert reply.status_code == 400 and "1 minutes of sound" in reply.json()["error"]["message"]


def test_folders_of_an_open_test_are_refused(owner) -> None:
    test = draft(owner)
    assert give(owner, test, GOOD).status_code == 200
    assert owner.do(test, "open").status_code == 200
    assert give(owner, test, GOOD).status_code == 409
