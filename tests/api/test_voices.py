"""/v1/audio/voices: saving, listing and deleting voices, and every clip that cannot be one."""

from __future__ import annotations

import io
import struct

import httpx
import numpy as np
import pytest
import soundfile

from studio.api import web
from studio.errors import VoiceNotFound
from tests.api.conftest import clip_bytes, clip_samples


def save(
    service,
    data: bytes | None,
    name: str | None = "Bob",
    ref_text: str = "what is said",
    filename: str = "clip.wav",
    consent: str = "agreed in writing",
) -> httpx.Response:
    files = {} if data is None else {"audio_sample": (filename, data)}
    fields = {"ref_text": ref_text, "consent": consent} | ({} if name is None else {"name": name})
    return httpx.post(f"{service.url}/v1/audio/voices", data=fields, files=files, timeout=120)


def names(service) -> list[str]:
    return httpx.get(f"{service.url}/v1/audio/voices").json()["voices"]


def test_saved_voice_is_listed_spoken_and_deleted(service) -> None:
    made = save(service, clip_bytes())
    assert made.status_code == 200 and made.json()["name"] == "Bob" and "Bob" in names(service)
    spoken = httpx.post(
        f"{service.url}/v1/audio/speech",
        json={"input": "hello you", "voice": "Bob", "response_format": "pcm"},
    )
    assert spoken.status_code == 200 and spoken.content
    assert httpx.delete(f"{service.url}/v1/audio/voices/Bob").json()["deleted"] is True
    assert "Bob" not in names(service)
    assert httpx.delete(f"{service.url}/v1/audio/voices/Bob").status_code == 404


def test_voice_without_a_name_is_a_draft_that_can_be_kept(service) -> None:
    draft = save(service, clip_bytes(), name=None).json()
    assert draft["name"] is None and names(service) == ["Ada"]
    assert (
        httpx.post(
            f"{service.url}/v1/audio/speech",
            json={"input": "hi you", "voice": draft["id"], "response_format": "pcm"},
        ).status_code
        == 200
    )
    kept = httpx.post(
        f"{service.url}/v1/audio/voices/{draft['id']}/name", data={"name": "Kept", "consent": "yes"}
    )
    assert kept.status_code == 200 and "Kept" in names(service)


def test_name_in_use_is_409_and_changes_nothing(service) -> None:
    reply = save(service, clip_bytes(), name="ada")
    assert (reply.status_code, reply.json()["error"]["code"]) == (409, "voice_exists")
    assert names(service) == ["Ada"]


def float_wav(samples: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, 24000, format="WAV", subtype="FLOAT")
    return buffer.getvalue()


def broken_header() -> bytes:
    return b"RIFF" + struct.pack("<I", 99) + b"WAVEfmt " + b"\xff" * 60


BAD = {
    "no clip": (None, 400),
    "empty file": (b"", 422),
    "not audio": (b"this is text, not sound " * 200, 422),
    "broken header": (broken_header(), 422),
    "silent": (float_wav(np.zeros(72000, np.float32)), 422),
    "under one second": (clip_bytes(0.5), 422),
    "over thirty seconds": (clip_bytes(35), 422),
    "8 kHz": (clip_bytes(4, 8000), 422),
    "NaN": (float_wav(np.where(np.arange(96000) == 50000, np.nan, clip_samples())), 422),
}


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.replace(" ", "_"))
def test_unusable_clip_is_told_and_nothing_is_kept(service, case: str) -> None:
    data, status = BAD[case]
    reply = save(service, data)
    assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert error["message"] and error["param"] == "audio_sample" and names(service) == ["Ada"]


def test_clip_of_a_voice_comes_back_as_wav(service) -> None:
    voice = httpx.get(f"{service.url}/v1/audio/voices").json()["data"][0]
    reply = httpx.get(f"{service.url}/v1/audio/voices/{voice['id']}/clip")
    samples, rate_hz = soundfile.read(io.BytesIO(reply.content))
    assert reply.headers["content-type"] == "audio/wav"
    assert len(samples) / rate_hz == pytest.approx(voice["clip_seconds"], abs=0.01)
    assert httpx.get(f"{service.url}/v1/audio/voices/nobody/clip").status_code == 404


def test_too_long_clip_names_its_best_part(service) -> None:
    assert "best part is from" in save(service, clip_bytes(35)).json()["error"]["message"]


def test_huge_upload_is_413(start_service) -> None:
    service = start_service("--max-clip-mb", "0.1")
    reply = save(service, clip_bytes(4))
    assert (reply.status_code, reply.json()["error"]["code"]) == (413, "clip_too_large")


@pytest.mark.parametrize(
    ("audio_format", "filename"),
    [("FLAC", "clip.mp3"), ("OGG", "clip"), ("WAV", "clip.txt"), ("WAV", "../../evil.wav")],
)
def test_content_counts_and_not_the_file_name(service, audio_format: str, filename: str) -> None:
    assert save(service, clip_bytes(audio_format=audio_format), filename=filename).status_code == 200


def test_stereo_clip_of_44100_hz_is_mixed_down(service) -> None:
    buffer = io.BytesIO()
    mono = clip_samples(4, 44100)
    soundfile.write(buffer, np.stack([mono, 0.5 * mono], axis=1), 44100, format="WAV")
    assert save(service, buffer.getvalue()).status_code == 200


@pytest.mark.parametrize("ref_text", ["", "  ", "?!", "\ue000", "x" * 801, "好" * 401])
def test_missing_or_endless_transcript_is_told_at_its_field(service, ref_text: str) -> None:
    reply = save(service, clip_bytes(), ref_text=ref_text)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "ref_text")


@pytest.mark.parametrize("name", ["", "   ", "x" * 65])
def test_unusable_name_is_told_at_its_field(service, name: str) -> None:
    reply = save(service, clip_bytes(), name=name)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "name")


def test_name_like_a_path_is_only_a_label(start_service, tmp_path) -> None:
    service = start_service()
    assert save(service, clip_bytes(), name="../../escape").status_code == 200
    assert "../../escape" in names(service)
    assert not any("escape" in p.name for p in tmp_path.rglob("*"))
    assert httpx.delete(f"{service.url}/v1/audio/voices/..%2F..%2Fescape").status_code == 200


@pytest.mark.parametrize("consent", ["", "  "])
def test_voice_is_kept_only_with_consent_and_a_draft_needs_none(service, consent: str) -> None:
    for language, said in (("en", "agrees"), ("zh", "同意")):
        reply = httpx.post(
            f"{service.url}/v1/audio/voices",
            data={"ref_text": "what is said", "name": "Bob", "consent": consent},
            files={"audio_sample": clip_bytes()},
            headers={"Accept-Language": language},
        )
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "consent")
        assert said in reply.json()["error"]["message"]
    draft = save(service, clip_bytes(), name=None, consent="")
    assert draft.status_code == 200 and names(service) == ["Ada"]
    rename = f"{service.url}/v1/audio/voices/{draft.json()['id']}/name"
    refused = httpx.post(rename, data={"name": "Bob", "consent": consent})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "consent")


def test_voice_that_has_a_name_is_not_renamed(service) -> None:
    rename = f"{service.url}/v1/audio/voices/Ada/name"
    assert httpx.post(rename, data={"name": "Eve", "consent": "yes"}).status_code == 409
    assert names(service) == ["Ada"]


@pytest.mark.parametrize("field", ["name", "ref_text", "consent", "language", "speaker_description"])
def test_broken_characters_in_a_field_are_told_at_it(service, field: str) -> None:
    fields = {"name": "Bob", "ref_text": "what is said", "consent": "yes"} | {field: "\\ud800"}
    parts = "".join(
        f'--X\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n' for k, v in fields.items()
    )
    clip = b'--X\r\nContent-Disposition: form-data; name="audio_sample"; filename="c"\r\n\r\n' + clip_bytes()
    # The one way in for them: a form in a charset that can write them.
    kind = "multipart/form-data; boundary=X; charset=raw_unicode_escape"
    reply = httpx.post(
        f"{service.url}/v1/audio/voices",
        content=parts.encode() + clip + b"\r\n--X--\r\n",
        headers={"Content-Type": kind},
    )
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, field)


def test_deleting_a_voice_deletes_the_draft_it_was_made_from(service) -> None:
    draft = save(service, clip_bytes(), name=None).json()
    save(service, clip_bytes())
    httpx.delete(f"{service.url}/v1/audio/voices/Bob?forever=true")
    assert httpx.get(f"{service.url}/v1/audio/voices/{draft['id']}/clip").status_code == 404


def test_old_drafts_go_while_the_service_runs_and_their_prompts_with_them(
    start_service, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "SWEEP_S", 0.01)
    service = start_service()
    draft = save(service, clip_bytes(), name=None).json()["id"]
    spoken = {"input": "hi you", "voice": draft, "response_format": "pcm"}
    assert httpx.post(f"{service.url}/v1/audio/speech", json=spoken).status_code == 200
    assert list(tmp_path.glob("prompts/*/*.safetensors")) and service.store.find(draft)
    service.store._now = lambda: 2e10  # in the year 2603

    def gone() -> bool:
        try:
            return not service.store.find(draft)
        except VoiceNotFound:
            return True

    service.until(gone)
    assert not list(tmp_path.glob("prompts/*/*.safetensors"))


def voice_url(service, voice: str = "Ada") -> str:
    return f"{service.url}/v1/audio/voices/{voice}"


def test_voice_is_renamed_tagged_noted_and_given_defaults(service) -> None:
    edit = {
        "name": "Ada/L.", "tags": ["warm", "Low"], "notes": "for the book", "language": "en",
        "audition": "Good day to you.", "ref_text": "hello here", "defaults": {"seed": 5, "top_k": 3},
    }  # fmt: skip
    reply = httpx.patch(voice_url(service), json=edit)
    assert reply.status_code == 200 and edit.items() <= reply.json().items()
    assert httpx.get(voice_url(service, "ada/l.")).json() == reply.json()
    kept = httpx.patch(voice_url(service, reply.json()["id"]), json={"tags": []}).json()
    assert (kept["tags"], kept["notes"]) == ([], "for the book")


def test_voices_are_searched_and_filtered_by_tag(service) -> None:
    save(service, clip_bytes())
    httpx.patch(voice_url(service, "Bob"), json={"tags": ["Warm"], "notes": "audio book"})
    for query in ({"q": "BOOK"}, {"tag": "warm"}, {"q": "bob", "tag": "Warm"}):
        assert httpx.get(f"{service.url}/v1/audio/voices", params=query).json()["voices"] == ["Bob"]
    assert httpx.get(f"{service.url}/v1/audio/voices", params={"q": "bob", "tag": "cold"}).json()["data"] == []


BAD_EDITS = {
    "empty name": ({"name": " "}, 400, "name"),
    "no name": ({"name": None}, 400, "name"),
    "name in use": ({"name": "BOB"}, 409, "name"),
    "no transcript": ({"ref_text": "?"}, 400, "ref_text"),
    "tag with comma": ({"tags": ["a,b"]}, 400, "tags"),
    "long notes": ({"notes": "x" * 2001}, 400, "notes"),
    "unknown default": ({"defaults": {"voice": "x"}}, 400, "defaults"),
    "speed out of range": ({"defaults": {"speed": 9}}, 400, "defaults.speed"),
    "unknown field": ({"clip": "x"}, 400, "clip"),
}


@pytest.mark.parametrize("case", BAD_EDITS, ids=lambda case: case.replace(" ", "_"))
def test_bad_edit_is_told_at_its_field_and_changes_nothing(service, case: str) -> None:
    edit, status, param = BAD_EDITS[case]
    save(service, clip_bytes())
    before = httpx.get(voice_url(service)).json()
    reply = httpx.patch(voice_url(service), json={"tags": ["x"], **edit})
    assert (reply.status_code, reply.json()["error"]["param"]) == (status, param), reply.text
    assert reply.json()["error"]["message"] and httpx.get(voice_url(service)).json() == before


def test_deleted_voice_is_restored_as_it_was(service) -> None:
    before = httpx.get(voice_url(service)).json()
    gone = httpx.delete(voice_url(service)).json()
    assert gone["deleted"] is True and gone["restore_until"] > gone["created_at"] and names(service) == []
    spoken = {"input": "hi you", "voice": "Ada", "response_format": "pcm"}
    assert httpx.post(f"{service.url}/v1/audio/speech", json=spoken).status_code == 404
    binned = httpx.get(f"{service.url}/v1/audio/voices?deleted=true").json()["data"]
    assert [v["id"] for v in binned] == [before["id"]]
    assert httpx.post(f"{voice_url(service, before['id'])}/restore").json() == before
    assert names(service) == ["Ada"]
    again = httpx.post(f"{voice_url(service, before['id'])}/restore")
    assert (again.status_code, again.json()["error"]["code"]) == (404, "voice_not_found")


def test_voice_deleted_for_good_takes_its_clip_along(service) -> None:
    voice = httpx.get(voice_url(service)).json()["id"]
    clip = service.store.clip_file(service.store.find(voice))
    httpx.delete(voice_url(service))
    assert clip.exists()
    assert httpx.delete(voice_url(service, voice), params={"forever": True}).status_code == 200
    assert not clip.exists() and httpx.post(f"{voice_url(service, voice)}/restore").status_code == 404


def test_defaults_of_a_voice_fill_what_a_request_does_not_name(service) -> None:
    httpx.patch(voice_url(service), json={"defaults": {"seed": 5, "top_k": 3, "temperature": 0.5}})
    spoken = {"input": "hi you", "voice": "Ada", "response_format": "pcm", "top_k": 9}
    assert httpx.post(f"{service.url}/v1/audio/speech", json=spoken).headers["X-Seed"] == "5"
    sampling = service.lm.samplings[-1]
    assert (sampling.top_k, sampling.temperature) == (9, 0.5)
