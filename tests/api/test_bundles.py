"""/v1/audio/voice-bundles: voices travel as a zip file without pickles, and hostile ones are refused whole."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest
from safetensors.numpy import load, save

from tests.api.conftest import Service, clip_samples

Files = dict[str, bytes]


def export(service: Service, *voices: str) -> httpx.Response:
    return httpx.get(f"{service.url}/v1/audio/voice-bundles", params={"voice": list(voices)})


def take(service: Service, data: bytes, consent: str = "agreed") -> httpx.Response:
    url = f"{service.url}/v1/audio/voice-bundles"
    return httpx.post(url, files={"bundle": ("../../x.zip", data)}, data={"consent": consent}, timeout=120)


def names(service: Service) -> list[str]:
    return sorted(httpx.get(f"{service.url}/v1/audio/voices").json()["voices"])


def files_of(data: bytes) -> Files:
    with zipfile.ZipFile(io.BytesIO(data)) as bundle:
        return {name: bundle.read(name) for name in bundle.namelist()}


def zip_of(files: Files, compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as bundle:
        for name, data in files.items():
            bundle.writestr(name, data)
    return buffer.getvalue()


def speak(service: Service, voice: str) -> bytes:
    spoken = {"input": "hi you", "voice": voice, "response_format": "pcm"}
    reply = httpx.post(f"{service.url}/v1/audio/speech", json=spoken)
    assert reply.status_code == 200, reply.text
    return reply.content


@pytest.fixture
def blend(service: Service) -> Service:
    """Ada with all that can be written, Bob, and Mix made of both."""
    written = {"tags": ["warm"], "notes": "n", "audition": "Hi.", "language": "en", "defaults": {"seed": 4}}
    httpx.patch(f"{service.url}/v1/audio/voices/Ada", json=written)
    service.store.add(clip_samples(3.0), 24000, "bob speaks", name="Bob", consent="Bob agreed")
    both = [{"voice": "Ada"}, {"voice": "Bob", "weight": 2}]
    body = {"voices": both, "name": "Mix", "consent": "both agreed"}
    assert httpx.post(f"{service.url}/v1/audio/voice-designs", json=body).status_code == 200
    return service


def test_all_voices_leave_and_come_back_as_they_were(blend: Service) -> None:
    spoken = {name: speak(blend, name) for name in names(blend)}
    before = {v["name"]: v for v in httpx.get(f"{blend.url}/v1/audio/voices").json()["data"]}
    data = export(blend)
    assert data.headers["content-type"] == "application/zip"
    kinds = {name.split("/")[0] for name in files_of(data.content)}
    assert kinds == {"bundle.json", "clips", "prompts"}
    for name in names(blend):
        httpx.delete(f"{blend.url}/v1/audio/voices/{name}?forever=true")
    reply = take(blend, data.content)
    assert reply.status_code == 200 and reply.json()["present"] == []
    after = {v["name"]: v for v in httpx.get(f"{blend.url}/v1/audio/voices").json()["data"]}
    same = before["Ada"].keys() - {"id", "created_at"}
    assert {n: {k: v[k] for k in same} for n, v in after.items()} == {
        n: {k: v[k] for k in same} for n, v in before.items()
    }
    assert {name: speak(blend, name) for name in names(blend)} == spoken
    assert blend.store.find("Bob").consent == "Bob agreed; agreed"


def test_one_voice_leaves_alone_and_a_blend_with_its_parts(blend: Service) -> None:
    ada, mix = files_of(export(blend, "Ada").content), files_of(export(blend, "Mix").content)
    assert [v["name"] for v in json.loads(ada["bundle.json"])["voices"]] == ["Ada"]
    assert [len([n for n in files if n.startswith("clips/")]) for files in (ada, mix)] == [1, 2]
    assert export(blend, "Eve").status_code == 404


def test_voice_that_is_here_is_passed_over_and_a_name_in_use_gets_a_number(blend: Service) -> None:
    data = export(blend, "Ada").content
    assert take(blend, data).json() == {"data": [], "present": ["Ada"]}
    httpx.delete(f"{blend.url}/v1/audio/voices/Ada")
    blend.store.add(clip_samples(2.0), 24000, "another", name="Ada")
    assert [v["name"] for v in take(blend, data).json()["data"]] == ["Ada 2"]


def test_draft_has_to_be_named_before_it_leaves(blend: Service) -> None:
    draft = blend.store.add(clip_samples(2.5), 24000, "a draft")
    assert (export(blend, draft.id).status_code, export(blend, draft.id).json()["error"]["param"]) == (400, "voice")


def test_blend_of_other_shares_is_another_voice(blend: Service) -> None:
    files = files_of(export(blend, "Mix").content)
    listing = json.loads(files["bundle.json"])
    parts = [{**part, "weight": 0.5} for part in listing["voices"][0]["parts"]]
    taken = take(blend, zip_of({**files, "bundle.json": changed(listing, parts=parts)})).json()
    assert ([v["name"] for v in taken["data"]], taken["present"]) == (["Mix 2"], [])


def test_bundle_is_taken_in_with_consent_only(blend: Service) -> None:
    data = export(blend, "Ada").content
    reply = take(blend, data, consent=" ")
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "consent")
    reply = httpx.post(f"{blend.url}/v1/audio/voice-bundles", data={"consent": "x"})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "bundle")


def test_studio_without_voices_of_its_own_says_so(service: Service) -> None:
    httpx.delete(f"{service.url}/v1/audio/voices/Ada")
    assert (export(service).status_code, export(service).json()["error"]["param"]) == (400, "voice")


def test_prompt_of_the_same_models_is_not_encoded_again_and_a_damaged_one_is(blend: Service) -> None:
    speak(blend, "Bob")
    files = files_of(export(blend, "Bob").content)
    prompt = next(name for name in files if name.startswith("prompts/"))
    for spoil in (lambda t: {**t, "mel": t["mel"][:-1]}, lambda t: {**t, "mel": t["mel"] * np.float32("nan")},
                  lambda t: {"mel": t["mel"]}, lambda t: {**t, "speech_tokens": t["speech_tokens"] - 5}):  # fmt: skip
        httpx.delete(f"{blend.url}/v1/audio/voices/Bob?forever=true")
        httpx.delete(f"{blend.url}/v1/audio/voices/Mix?forever=true")
        damaged = {**files, prompt: save(spoil(load(files[prompt])))}
        assert take(blend, zip_of(damaged)).status_code == 200
        assert speak(blend, "Bob")


def changed(listing: dict[str, Any], **voice: Any) -> bytes:
    entry = {**listing["voices"][0], **voice}
    return json.dumps({**listing, "voices": [entry]}).encode()


def with_listing(**voice: Any) -> Callable[[Files], bytes]:
    return lambda f: zip_of({**f, "bundle.json": changed(json.loads(f["bundle.json"]), **voice)})


def bomb(files: Files) -> bytes:
    return zip_of({**files, "bundle.json": b" " * 50_000_000}, zipfile.ZIP_DEFLATED)


def lying_bomb(files: Files) -> bytes:
    """An entry that says it is short and goes on."""
    data = zip_of({"bundle.json": b" " * 9_000_000}, zipfile.ZIP_DEFLATED)
    return data.replace(struct.pack("<I", 9_000_000), struct.pack("<I", 1000))


def clip_name(files: Files) -> str:
    return next(name for name in files if name.startswith("clips/"))


def doubled(files: Files) -> bytes:
    buffer = io.BytesIO(zip_of(files))
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(buffer, "a") as bundle:
        bundle.writestr("bundle.json", b"{}")
    return buffer.getvalue()


def encrypted(files: Files) -> bytes:
    """The flag alone: nothing is asked for a password."""
    data = bytearray(zip_of(files))
    at = data.index(b"PK\x01\x02")
    data[at + 8] |= 1
    return bytes(data)


HOSTILE: dict[str, Callable[[Files], bytes]] = {
    "no zip": lambda f: b"this is no zip file" * 100,
    "nothing": lambda f: b"",
    "cut off": lambda f: zip_of(f)[:-200],
    "no listing": lambda f: zip_of({n: d for n, d in f.items() if n != "bundle.json"}),
    "no clip": lambda f: zip_of({"bundle.json": f["bundle.json"]}),
    "traversal": lambda f: zip_of({**f, "../../etc/cron.d/x": b"x"}),
    "absolute": lambda f: zip_of({**f, "/etc/passwd": b"x"}),
    "traversal in a folder": lambda f: zip_of({**f, "clips/../../x.flac": b"x"}),
    "pickle": lambda f: zip_of({**f, "prompts/voice.pt": b"\x80\x04."}),
    "script": lambda f: zip_of({**f, "clips/run.py": b"x"}),
    "twice the same": doubled,
    "encrypted": encrypted,
    "bomb": bomb,
    "bomb that lies": lying_bomb,
    "too many files": lambda f: zip_of({**f, **{f"clips/{n:032x}.flac": b"" for n in range(5001)}}),
    "clip of other bytes": lambda f: zip_of({**f, clip_name(f): f[clip_name(f)][:-9] + b"123456789"}),
    "clip that is none": lambda f: zip_of({**f, clip_name(f): b"RIFF" + b"\0" * 99}),
    "listing is no JSON": lambda f: zip_of({**f, "bundle.json": b"\xff{"}),
    "listing is a list": lambda f: zip_of({**f, "bundle.json": b"[1]"}),
    "deep listing": lambda f: zip_of({**f, "bundle.json": b"[" * 100_000}),
    "later version": lambda f: zip_of(
        {**f, "bundle.json": f["bundle.json"].replace(b'"version": 1', b'"version": 2')}
    ),
    "name of a path": with_listing(clip="../../../etc/passwd"),
    "clip is a number": with_listing(clip=7),
    "no name": with_listing(name=None),
    "long name": with_listing(name="x" * 65),
    "bad tags": with_listing(tags="warm"),
    "bad defaults": with_listing(defaults={"voice": 1}),
    "parts are a word": with_listing(parts="Ada"),
    "weight is no number": with_listing(
        parts=[{"name": "A", "clip": "0" * 32, "transcript": "x", "weight": "nan"}]
    ),
    "weight beyond all numbers": with_listing(
        parts=[{"name": "A", "clip": "0" * 32, "transcript": "x", "weight": 10**400}]
    ),
    "no transcript": with_listing(transcript="..."),
}


@pytest.mark.parametrize("case", HOSTILE, ids=lambda case: case.replace(" ", "_"))
def test_hostile_bundle_is_refused_and_nothing_of_it_is_kept(blend: Service, case: str) -> None:
    files = files_of(export(blend, "Bob").content)
    for name in ("Mix", "Bob"):
        httpx.delete(f"{blend.url}/v1/audio/voices/{name}?forever=true")
    kept = sorted(p.name for p in blend.store.clip_file(blend.store.find("Ada")).parent.iterdir())
    reply = take(blend, HOSTILE[case](files))
    assert reply.status_code in (400, 413, 422), reply.text
    error = reply.json()["error"]
    assert error["message"] and error["param"] == "bundle" and names(blend) == ["Ada"]
    assert sorted(p.name for p in blend.store.clip_file(blend.store.find("Ada")).parent.iterdir()) == kept


def test_zip_file_of_millions_of_entries_is_refused_before_they_are_parsed(service: Service) -> None:
    directory = (b"PK\1\2" + bytes(42)) * 45_000
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 45_000, 45_000, len(directory), 0, 0)
    reply = take(service, directory + end)
    assert (reply.status_code, reply.json()["error"]["param"]) == (413, "bundle")
    assert "too many files" in reply.json()["error"]["message"]


def test_bundle_larger_than_the_library_has_room_for_is_refused_whole(start_service) -> None:
    service = start_service("--max-voices", "2")
    for n in range(2):
        service.store.add(clip_samples(2.0 + n), 24000, "hello", name=str(n))
    data = export(service).content
    httpx.delete(f"{service.url}/v1/audio/voices/0?forever=true")
    service.store.add(clip_samples(5.0), 24000, "hello", name="other")
    httpx.delete(f"{service.url}/v1/audio/voices/1?forever=true")
    reply = take(service, data)
    assert (reply.status_code, names(service)) == (400, ["other"])


def test_export_larger_than_what_can_be_taken_in_again_is_refused(
    blend: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = sum(map(len, files_of(export(blend).content).values()))
    monkeypatch.setattr("studio.api.bundles.LIMIT_BYTES", size - 1)
    refused = export(blend)
    assert (refused.status_code, refused.json()["error"]["param"]) == (413, "voice")
    assert "Export some of them at a time" in refused.json()["error"]["message"]
    monkeypatch.setattr("studio.api.bundles.LIMIT_BYTES", size)
    assert export(blend).status_code == 200 and take(blend, export(blend).content).status_code == 200


def torch_file(pickle: bytes = b"\x80\x02}.", compression: int = zipfile.ZIP_STORED) -> bytes:
    """What torch.save writes, as far as anybody looks who is not torch."""
    return zip_of({"archive/data.pkl": pickle, "archive/version": b"3"}, compression)


def test_voices_of_a_spk2info_are_taken_in_and_speak_without_a_clip(service: Service) -> None:
    taken = take(service, torch_file()).json()["data"]
    assert [v["name"] for v in taken] == ["Saved upstream"]
    assert speak(service, "Saved upstream")
    url = f"{service.url}/v1/audio/voices/Saved upstream"
    assert httpx.get(f"{url}/clip").status_code == 404
    assert httpx.patch(url, json={"tags": ["old"]}).json()["tags"] == ["old"]
    assert export(service, "Saved upstream").status_code == 400
    assert export(service).status_code == 200  # of the others
    httpx.delete(f"{url}?forever=true")
    assert names(service) == ["Ada"]


@pytest.mark.parametrize("case", ["packed tight", "too large"])
def test_spk2info_that_unpacks_to_more_than_it_is_reaches_no_worker(service: Service, case: str) -> None:
    tight = case == "packed tight"
    data = torch_file(compression=zipfile.ZIP_DEFLATED) if tight else torch_file(bytes(60_000_001))
    reply = take(service, data)
    assert reply.status_code == (400 if tight else 413) and reply.json()["error"]["param"] == "bundle"
    assert names(service) == ["Ada"]
