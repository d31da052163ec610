"""The official gradio_client by the page's stable names: what the routes do and say, and nothing else."""

from __future__ import annotations

import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gradio as gr
import gradio_client
import httpx
import pytest
import soundfile
from gradio_client.exceptions import AppError

from studio.ui.client_files import ClientFiles
from tests.api.conftest import clip_bytes
from tests.api.test_speech import SAMPLES, WORDS, body

NAMES = {
    "speak", "preview_text",
    "list_voices", "clone_voice", "edit_voice", "design_voice", "delete_voice", "restore_voice",
    "export_voices", "import_voices",
    "check_clip", "mend_clip", "transcribe_clip", "convert_clip",
    "list_pronunciations", "add_pronunciation", "delete_pronunciation",
    "start_job", "list_jobs", "show_job", "stop_job", "job_file",
    "list_takes", "take_settings", "take_file", "star_take", "delete_take",
    "make_script", "list_scripts", "show_script", "speak_script", "stop_script", "export_script", "delete_script",
}  # fmt: skip


class Caller:
    """What a program of a user does, by name."""

    def __init__(self, url: str, folder: Path) -> None:
        self.client = gradio_client.Client(url, download_files=str(folder), verbose=False)

    def __getattr__(self, name: str):
        return lambda *given, **named: self.client.predict(*given, **named, api_name=f"/{name}")


@pytest.fixture
def ask(service, tmp_path: Path) -> Iterator[Caller]:
    caller = Caller(service.url, tmp_path)
    yield caller
    caller.client.close()


@pytest.fixture
def clip(tmp_path: Path) -> dict[str, object]:
    (tmp_path / "clip.wav").write_bytes(clip_bytes(4.0))
    return gradio_client.handle_file(str(tmp_path / "clip.wav"))


def samples_of(file: str) -> bytes:
    samples, rate_hz = soundfile.read(file, dtype="int16")
    assert rate_hz == 24000
    return samples.tobytes()


def test_names_are_all_stable_english_and_nothing_of_the_page_is_among_them(ask: Caller) -> None:
    found = ask.client.view_api(return_format="dict", print_info=False)
    assert set(found["named_endpoints"]) == {f"/{name}" for name in NAMES}
    assert found["unnamed_endpoints"] == {}
    assert all(about["description"] for about in found["named_endpoints"].values())


def test_speech_is_that_of_the_same_request_over_http(service, ask: Caller) -> None:
    samples = samples_of(ask.speak(WORDS, "Ada", 1.0, "balanced", 7, "wav"))
    plain = httpx.post(f"{service.url}/v1/audio/speech", json=body(seed=7)).content
    assert samples == plain and len(samples) == 2 * SAMPLES
    assert soundfile.info(ask.speak(WORDS, "Ada", audio_format="flac", language="zh")).format == "FLAC"


def test_preview_and_voices_are_those_of_the_service(ask: Caller) -> None:
    found = ask.preview_text("one [pause 1s] 3", language="zh")
    assert found["characters"] == 16 and found["said"] == ["one ", " 三"] and found["seconds"] > 1
    assert found["changes"] == [{"typed": "3", "said": "三"}]
    assert [voice["name"] for voice in ask.list_voices()] == ["Ada"]


def test_voice_is_cloned_designed_edited_deleted_and_restored_by_name(service, ask: Caller, clip) -> None:
    cloned = ask.clone_voice(clip, "what is said", "Cleo", "agreed in writing")
    assert (cloned["name"], cloned["ref_text"]) == ("Cleo", "what is said")
    made = ask.design_voice({"Ada": 1.0, "Cleo": 2.0}, "Ada", {"pitch": -2}, "Deep", "agreed")
    assert (made["name"], made["defaults"]) == ("Deep", {"pitch": -2.0})
    assert ask.edit_voice("Deep", {"tags": ["low"]})["tags"] == ["low"]
    ask.delete_voice("Deep")
    assert {v.name for v in service.store.all()} == {"Ada", "Cleo"}
    assert ask.restore_voice(made["id"])["name"] == "Deep"


def test_voices_leave_in_a_bundle_and_come_back(service, ask: Caller) -> None:
    bundle = ask.export_voices(["Ada"])
    assert zipfile.is_zipfile(bundle)
    ask.delete_voice("Ada")
    taken = ask.import_voices(gradio_client.handle_file(bundle), "agreed in writing")
    assert [voice["name"] for voice in taken["data"]] == ["Ada"] == [v.name for v in service.store.all()]


def test_pronunciation_is_added_listed_and_deleted(ask: Caller) -> None:
    added = ask.add_pronunciation("two", "too")
    assert ask.preview_text("one two")["said"] == ["one too"]
    assert [entry["word"] for entry in ask.list_pronunciations()] == ["two"]
    ask.delete_pronunciation(added["id"])
    assert ask.list_pronunciations() == []


def test_job_is_started_shown_heard_and_stopped(service, ask: Caller) -> None:
    job = ask.start_job(WORDS, "Ada", {"seed": 7, "quality": "fast"})
    assert len(samples_of(ask.job_file(job["id"]))) == 2 * SAMPLES
    assert ask.show_job(job["id"])["state"] == "done" and job["id"] in [j["id"] for j in ask.list_jobs()]
    assert ask.stop_job(job["id"])["state"] == "done"
    service.until(service.is_idle)


def test_take_is_listed_read_starred_and_deleted(ask: Caller) -> None:
    ask.speak("Only this lighthouse", "Ada", seed=5)
    (take,) = ask.list_takes("lighthouse")
    assert ask.take_settings(take["id"])["request"]["sampling"]["seed"] == 5
    assert "cosyvoice_studio" in soundfile.SoundFile(ask.take_file(take["id"], "wav")).comment
    assert ask.star_take(take["id"])["starred"] and [t["id"] for t in ask.list_takes(starred=True)] == [take["id"]]
    ask.delete_take(take["id"])
    assert ask.list_takes("lighthouse") == []


def test_script_is_made_spoken_exported_and_deleted(service, ask: Caller) -> None:
    script = ask.make_script("Ada: one two\nAda: three", title="Two lines")
    assert [line["input"] for line in script["lines"]] == ["one two", "three"]
    assert ask.speak_script(script["id"])["id"] == script["id"]
    service.until(service.is_idle)
    while {line["status"] for line in ask.show_script(script["id"])["lines"]} != {"done"}:
        service.until(service.is_idle)
    with zipfile.ZipFile(ask.export_script(script["id"], "zip")) as exported:
        assert any(name.endswith(".wav") for name in exported.namelist())
    assert "one two" in Path(ask.export_script(script["id"], "srt")).read_text()
    assert [s["title"] for s in ask.list_scripts()] == ["Two lines"]
    assert {line["status"] for line in ask.stop_script(script["id"])["lines"]} == {"done"}
    ask.delete_script(script["id"])
    assert ask.list_scripts() == []


def test_clip_is_said_in_another_voice(ask: Caller, clip) -> None:
    assert len(samples_of(ask.convert_clip(clip, "Ada"))) > 24000


@pytest.mark.parametrize(
    ("name", "given", "sentence"),
    [
        ("speak", (" ", "Ada", 1.0, "balanced", None, "wav"), "no text to speak"),
        ("speak", (WORDS, "Nobody", 1.0, "balanced", None, "wav"), "no voice named"),
        ("speak", (WORDS, "Ada", 9.0, "balanced", None, "wav"), "speed"),
        ("speak", (WORDS, "Ada", 1.0, "balanced", None, "midi"), "not supported"),
        ("speak", (WORDS, "Ada", 1.0, "balanced", None, "wav", "tlh"), "does not speak"),
        ("delete_voice", ("Nobody",), "no voice named"),
        ("edit_voice", ("Ada", {"defaults": {"speed": 9}}), "speed"),
        ("edit_voice", ("Ada", {"origin": "starter"}), "origin"),
        ("design_voice", ({"Ada": 1.0}, "Ada", {}, "X", " "), "agrees"),
        ("clone_voice", (None, "words", "X", "agreed"), "No clip was sent"),
        ("import_voices", (None, "agreed"), "bundle"),
        ("add_pronunciation", ("...", "x"), "at least one letter"),
        ("start_job", (WORDS, "Ada", {"tempo": 3}), "tempo"),
        ("show_job", ("nobody's",), "no job"),
        ("take_file", ("none", "wav"), "no such take"),
        ("make_script", ("",), "no line to speak"),
        ("export_script", ("none", "zip"), "no such script"),
    ],
)
def test_what_is_wrong_is_said_in_the_sentences_of_the_routes(
    service, ask: Caller, name: str, given: tuple, sentence: str
) -> None:
    with pytest.raises(AppError, match=sentence):
        getattr(ask, name)(*given)
    assert service.is_idle()


def test_refusals_are_in_the_language_of_the_caller_and_takes_are_the_callers_own(service, tmp_path: Path) -> None:
    session = httpx.get(f"{service.url}/").cookies["studio_session"]
    headers = {"Accept-Language": "zh-CN", "Cookie": f"studio_session={session}"}
    client = gradio_client.Client(service.url, headers=headers, download_files=str(tmp_path), verbose=False)
    try:
        with pytest.raises(AppError, match="没有"):
            client.predict(" ", "Ada", api_name="/speak")
        client.predict("Only mine", "Ada", api_name="/speak")
        mine = httpx.get(f"{service.url}/v1/audio/takes", headers=headers).json()["data"]
        assert [take["text"] for take in mine] == ["Only mine"]
    finally:
        client.close()


def test_file_that_was_not_uploaded_is_not_read_and_no_address_is_fetched(service, tmp_path: Path) -> None:
    (tmp_path / "kept.wav").write_bytes(clip_bytes(4.0))
    address = f"{service.url}/gradio_api/call/clone_voice"
    told = []
    for path in (str(tmp_path / "kept.wav"), "https://example.com/a.wav"):
        clip = {"path": path, "meta": {"_type": "gradio.FileData"}}
        event = httpx.post(address, json={"data": [clip, "what is said", "Cleo", "agreed"]}).json()["event_id"]
        told.append(httpx.get(f"{address}/{event}").text)
    assert all("event: error" in reply for reply in told) and "from uploads only" in told[1]
    assert [voice.name for voice in service.store.all()] == ["Ada"]


async def test_files_are_read_and_written_beside_the_loop_that_voices_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    def noted(do: Callable[..., object]) -> Callable[..., object]:
        def done(path: Path, *data: bytes) -> object:
            if tmp_path in path.parents:  # others of this process read and write files too
                threads.append(threading.get_ident())
            return do(path, *data)

        return done

    for name in ("read_bytes", "write_bytes"):
        monkeypatch.setattr(Path, name, noted(getattr(Path, name)))

    async def routes(caller: object, method: str, path: str, **content: Any) -> httpx.Response:
        assert content["files"] == {"audio_sample": ("clip.wav", b"clip")}
        return httpx.Response(200, content=b"\0\0")

    (tmp_path / "clip.wav").write_bytes(b"clip")
    threads.clear()
    made = await ClientFiles(routes, str(tmp_path)).convert_clip(
        str(tmp_path / "clip.wav"), "Ada", gr.Request(None)
    )
    assert samples_of(made) == b"\0\0"
    assert len(threads) == 2 and threading.get_ident() not in threads
