"""Scripts and batches over HTTP, on the scripted engine: lines in order of hearing, one failure, restarts, exports."""

from __future__ import annotations

import asyncio
import io
import json
import zipfile
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile

from studio.api import scripts
from studio.backends.fake import Finish, Raise, Say, WaitFor
from studio.engine.engine import EngineLimits
from studio.errors import SpeechLMError
from tests.api.conftest import Service, Start, clip_samples

PLAY = "Ada: One two three.\nBob: Four five.\n[pause 1s]\nAda: Six."
Script = dict[str, Any]


@pytest.fixture
def http(service: Service) -> httpx.Client:
    service.in_loop(lambda: service.store.add(clip_samples(3.0), 24000, "hello", name="Bob"))
    return person(service)


def person(service: Service) -> httpx.Client:
    client = httpx.Client(base_url=service.url, timeout=120)
    client.get("/")
    return client


def made(http: httpx.Client, path: str = "scripts", **body: object) -> Script:
    reply = http.post(f"/v1/audio/{path}", json=body)
    assert reply.status_code in (200, 202), reply.text
    return reply.json()


def spoken(service: Service, http: httpx.Client, script: Script, *lines: str) -> Script:
    """Speak and wait until no line waits."""
    http.post(f"/v1/audio/scripts/{script['id']}/speak", json={"lines": list(lines)})
    return ended(service, http, script)


def ended(service: Service, http: httpx.Client, script: Script) -> Script:
    while (now := http.get(f"/v1/audio/scripts/{script['id']}").json())["status"] == "running":
        pass
    service.until(service.is_idle)
    return now


def states(script: Script) -> list[str]:
    return [line["status"] for line in script["lines"]]


def export(http: httpx.Client, script: Script, what: str, **query: str) -> httpx.Response:
    reply = http.get(f"/v1/audio/scripts/{script['id']}/export", params={"what": what, **query})
    assert reply.status_code == 200, reply.text
    return reply


def test_script_pasted_play_becomes_lines_with_voices_of_its_speakers(http: httpx.Client) -> None:
    script = made(http, content=PLAY, title="Three lines")
    assert [(line["speaker"], line["voice"]["name"], line["input"]) for line in script["lines"]] == [
        ("Ada", "Ada", "One two three."), ("Bob", "Bob", "Four five."), ("Ada", "Ada", "Six."),
    ]  # fmt: skip
    assert [line["pause_s"] for line in script["lines"]] == [0.3, 1.0, 0.3]
    assert states(script) == ["new"] * 3 and script["status"] == "idle"
    assert http.get("/v1/audio/scripts").json()["data"][0]["title"] == "Three lines"


def test_script_of_csv_or_srt_file_is_read_from_its_bytes(http: httpx.Client) -> None:
    rows = "voice;text;pause\nBob;你好;0,5\n".encode("gb18030")
    script = http.post("/v1/audio/scripts?title=rows", content=rows, headers={"Content-Type": "text/csv"}).json()
    line = script["lines"][0]
    assert (line["input"], line["voice"]["name"], line["pause_s"]) == ("你好", "Bob", 0.5)
    subtitles = b"1\n00:00:05,000 --> 00:00:06,000\nAda: Hello.\n"
    timed = http.post("/v1/audio/scripts", content=subtitles, headers={"Content-Type": "application/x-subrip"}).json()
    assert timed["lines"][0]["at_s"] == 5.0
    refused = http.post("/v1/audio/scripts", content=b"\x7fELF\0\0", headers={"Content-Type": "text/plain"})
    assert refused.status_code == 400 and "UTF-8" in refused.json()["error"]["message"]


def test_script_all_lines_are_spoken_in_parallel_in_order_of_hearing(service: Service, http: httpx.Client) -> None:
    go = asyncio.Event()
    for _ in range(4):
        service.lm.enqueue(WaitFor(go), Say(20), Finish())
    script = made(http, items=[{"input": "word " * (n + 1), "voice": "Ada"} for n in range(6)])
    with service.in_one_thread():  # texts are read in threads, of which any may be the first
        http.post(f"/v1/audio/scripts/{script['id']}/speak", json={})
        service.until(lambda: len(service.lm.prompts) == 4)  # as many as one script may have at once
        assert [len(prompt.text_ids) for prompt in service.lm.prompts] == [1, 2, 3, 4]
        now = http.get(f"/v1/audio/scripts/{script['id']}").json()
        assert states(now) == ["running"] * 4 + ["waiting"] * 2 and now["counts"]["running"] == 4
        service.in_loop(go.set)
        done = ended(service, http, script)
    assert states(done) == ["done"] * 6 and done["with_take"] == 6
    assert [len(prompt.text_ids) for prompt in service.lm.prompts[4:]] == [5, 6]


def test_script_export_one_file_has_the_lines_in_order_with_exact_pauses(service: Service, http: httpx.Client) -> None:
    script = spoken(service, http, made(http, content=PLAY))
    sound = soundfile.read(io.BytesIO(export(http, script, "wav").content), dtype="float32")[0]
    lengths = [round(line["takes"][0]["seconds"] * 24000) for line in script["lines"]]
    assert len(sound) == sum(lengths) + round((0.3 + 1.0) * 24000)
    silence = sound[lengths[0] : lengths[0] + 7200]
    assert not silence.any() and sound[lengths[0] + 7300 : lengths[0] + 7400].any()
    assert [line["start_s"] for line in script["lines"]] == pytest.approx(
        [0, lengths[0] / 24000 + 0.3, (lengths[0] + lengths[1]) / 24000 + 1.3], abs=1e-3
    )


def test_script_export_subtitles_and_zip_have_the_times_of_the_sound(service: Service, http: httpx.Client) -> None:
    script = spoken(service, http, made(http, content=PLAY, title="Drei Zeilen / 1"))
    srt = export(http, script, "srt").text
    assert srt.startswith("1\r\n00:00:00,000 --> ") and "Bob: Four five." in srt
    start = script["lines"][2]["start_s"]
    assert f"00:00:{int(start):02},{round(start * 1000) % 1000:03} -->" in srt
    assert export(http, script, "vtt").text.startswith("WEBVTT")
    reply = export(http, script, "zip")
    assert "/" not in reply.headers["content-disposition"].split("''")[1]
    with zipfile.ZipFile(io.BytesIO(reply.content)) as archive:
        assert archive.read("whole.srt").decode() == srt
        names = set(archive.namelist())
        assert {"whole.wav", "lines/002_Bob.wav", "stems/01_Ada.wav", "stems/02_Bob.wav", "script.json"} <= names
        stems = [soundfile.read(archive.open(f"stems/{name}.wav"), dtype="float32")[0] for name in ("01_Ada", "02_Bob")]
        whole = soundfile.read(archive.open("whole.wav"), dtype="float32")[0]
        assert np.abs(stems[0] + stems[1] - whole).max() < 1e-4


def test_script_export_too_large_is_refused_before_any_is_written(
    service: Service, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = spoken(service, http, made(http, items=[{"input": "a b", "voice": "Ada", "at_s": 4 * 3600}]))
    monkeypatch.setattr(scripts, "write", None)
    refused = http.get(f"/v1/audio/scripts/{script['id']}/export", params={"what": "zip"})
    assert refused.status_code == 400 and "Divide the script" in refused.json()["error"]["message"]
    assert export(http, script, "srt").text.startswith("1\r\n04:00:00")
    too_late = http.post("/v1/audio/scripts", json={"items": [{"input": "a", "at_s": 4 * 3600 + 1}]})
    assert too_late.status_code == 400


def test_script_one_line_is_rolled_again_and_its_neighbours_stay(service: Service, http: httpx.Client) -> None:
    script = spoken(service, http, made(http, items=[{"input": "a b", "voice": "Ada", "seed": 5}] * 3))
    middle = script["lines"][1]
    again = spoken(service, http, script, middle["id"])
    assert [len(line["takes"]) for line in again["lines"]] == [1, 2, 1]
    assert again["lines"][1]["take"] == again["lines"][1]["takes"][1]["id"] != middle["take"]
    assert service.lm.samplings[0].seed == 5 != service.lm.samplings[3].seed
    back = http.patch(
        f"/v1/audio/scripts/{script['id']}/lines/{middle['id']}", json={"take": middle["take"]}
    ).json()
    assert back["lines"][1]["take"] == middle["take"]
    other = http.patch(
        f"/v1/audio/scripts/{script['id']}/lines/{middle['id']}", json={"take": script["lines"][0]["take"]}
    )
    assert other.status_code == 400


def test_failure_in_one_line_loses_nothing_else(service: Service, http: httpx.Client) -> None:
    service.lm.enqueue(Say(20), Finish())
    service.lm.enqueue(Say(20), Raise(SpeechLMError("speech.lm_failed", reason="scripted")))
    script = spoken(service, http, made(http, items=[{"input": f"line {n}", "voice": "Ada"} for n in range(4)]))
    assert sorted(states(script)) == ["done", "done", "done", "failed"]
    failed = next(line for line in script["lines"] if line["status"] == "failed")
    assert "scripted" in failed["error"]["message"]
    sound = soundfile.read(io.BytesIO(export(http, script, "wav").content))[0]
    assert len(sound) == (20 + 10 + 10) * 960 + 2 * 7200
    mended = spoken(service, http, script)  # what has no take is tried again
    assert states(mended) == ["done"] * 4


def test_line_that_gives_no_speech_is_tried_once_more_with_another_seed(service: Service, http: httpx.Client) -> None:
    service.lm.enqueue(Finish())
    script = spoken(service, http, made(http, items=[{"input": "hello", "voice": "Ada"}]))
    assert states(script) == ["done"] and len({sampling.seed for sampling in service.lm.samplings}) == 2


def test_batch_of_csv_rows_tells_progress_and_errors_per_row(service: Service, http: httpx.Client) -> None:
    rows = "text,voice,pause,seed\ngood one,Ada,,\n,Ada,,\nno voice,Nobody,,\nbad pause,Ada,soon,\n!!!,Ada,,\n"
    rows += "last,Bob,0,9\n"
    reply = http.post("/v1/audio/batch?title=rows", content=rows.encode(), headers={"Content-Type": "text/csv"})
    assert reply.status_code == 202 and reply.json()["total"] == 6
    script = ended(service, http, reply.json())
    assert states(script) == ["done", "failed", "failed", "failed", "failed", "done"]
    assert [line["error"] and line["error"]["code"] for line in script["lines"]] == [
        None, "script.row_empty", "script.row_voice", "script.row_pause", "text.only_marks", None,
    ]  # fmt: skip
    assert "Nobody" in script["lines"][2]["error"]["message"]
    assert script["counts"] == {"new": 0, "waiting": 0, "running": 0, "done": 2, "failed": 4}
    chinese = http.get(f"/v1/audio/scripts/{script['id']}", headers={"Accept-Language": "zh"}).json()
    assert "没有名为" in chinese["lines"][2]["error"]["message"]


def test_batch_goes_on_after_a_restart(start_service: Start) -> None:
    first = start_service()
    first.in_loop(first.forget)
    http = person(first)
    first.lm.enqueue(Say(20), Finish())
    never = asyncio.Event()
    for _ in range(4):
        first.lm.enqueue(WaitFor(never))
    script = made(http, "batch", items=[{"input": f"row {n}", "voice": "Ada"} for n in range(6)])
    while http.get(f"/v1/audio/scripts/{script['id']}").json()["counts"]["done"] < 1:
        pass
    second = start_service()
    again = httpx.Client(base_url=second.url, cookies=http.cookies, timeout=120)
    done = ended(second, again, script)
    assert states(done) == ["done"] * 6 and len(second.lm.prompts) == 5


def test_batch_waits_while_the_line_is_full_and_the_engine_restarts(start_service: Start) -> None:
    service = start_service(limits=EngineLimits(max_running=1, queue_size=0))
    service.in_loop(service.forget)
    http = person(service)
    service.in_loop(lambda: service.worker.to("starting", "stage.waiting"))
    script = made(http, "batch", items=[{"input": f"row {n}", "voice": "Ada"} for n in range(3)])
    assert states(http.get(f"/v1/audio/scripts/{script['id']}").json()) == ["waiting"] * 3
    service.in_loop(lambda: service.worker.to("ready", "stage.ready"))
    assert states(ended(service, http, script)) == ["done"] * 3


def test_script_stop_frees_everything_and_keeps_what_was_made(service: Service, http: httpx.Client) -> None:
    never = asyncio.Event()
    service.lm.enqueue(Say(20), Finish())
    for _ in range(4):
        service.lm.enqueue(WaitFor(never))
    script = made(http, "batch", items=[{"input": f"row {n}", "voice": "Ada"} for n in range(6)])
    while http.get(f"/v1/audio/scripts/{script['id']}").json()["counts"]["done"] < 1:
        pass
    stopped = http.post(f"/v1/audio/scripts/{script['id']}/stop").json()
    service.until(service.is_idle)
    assert sorted(states(stopped)) == ["done"] + ["new"] * 5 and stopped["status"] == "idle"


def test_script_lines_are_edited_added_and_deleted(service: Service, http: httpx.Client) -> None:
    script = spoken(service, http, made(http, content=PLAY))
    lines = f"/v1/audio/scripts/{script['id']}/lines"
    first = script["lines"][0]["id"]
    edited = http.patch(f"{lines}/{first}", json={"pause_s": 2.0}).json()["lines"][0]
    assert (edited["status"], edited["pause_s"]) == ("done", 2.0)
    edited = http.patch(f"{lines}/{first}", json={"input": "Another text."}).json()["lines"][0]
    assert (edited["status"], edited["take"], len(edited["takes"])) == ("new", None, 1)
    added = http.post(lines, json={"input": "Between.", "voice": "Bob", "position": 1}).json()
    assert [line["number"] for line in added["lines"]] == [1, 2, 3, 4] and added["lines"][1]["input"] == "Between."
    left = http.delete(f"{lines}/{first}").json()
    assert [line["input"] for line in left["lines"]] == ["Between.", "Four five.", "Six."]
    recast = http.post(f"/v1/audio/scripts/{script['id']}/cast", json={"speaker": "Ada", "voice": "Bob"}).json()
    assert {line["voice"]["name"] for line in recast["lines"]} == {"Bob"}
    assert http.patch(f"{lines}/{first}", json={"input": "x"}).status_code == 404


def test_script_edit_that_says_nothing_changes_nothing(service: Service, http: httpx.Client) -> None:
    script = made(http, items=[{"input": "!!!", "voice": "Ada"}])
    failed = spoken(service, http, script)
    line = f"/v1/audio/scripts/{script['id']}/lines/{script['lines'][0]['id']}"
    reply = http.patch(line, json={})
    assert reply.status_code == 200 and reply.json()["lines"] == failed["lines"]
    assert states(reply.json()) == ["failed"]


@pytest.mark.parametrize(
    ("path", "change"),
    [("lines/{line}", {"input": "Another longer text."}), ("cast", {"speaker": "Ada", "voice": "Bob"})],
)
def test_script_line_changed_while_it_is_made_is_made_as_it_is_now(
    service: Service, http: httpx.Client, path: str, change: dict[str, str]
) -> None:
    service.lm.enqueue(WaitFor(asyncio.Event()))
    script = made(http, "batch", content="Ada: One two.")
    service.until(lambda: len(service.lm.prompts) == 1)
    change_it = http.post if path == "cast" else http.patch
    where = f"/v1/audio/scripts/{script['id']}/{path.format(line=script['lines'][0]['id'])}"
    changed = change_it(where, json=change).json()
    assert states(changed) == ["new"] and changed["status"] == "idle"
    service.until(service.is_idle)  # nobody makes the old one any more
    done = spoken(service, http, changed)
    (take,) = done["lines"][0]["takes"]
    kept = http.get(f"/v1/audio/takes/{take['id']}").json()
    assert states(done) == ["done"] and len(service.lm.prompts) == 2
    assert (kept["text"], kept["voice"]["name"]) == (changed["lines"][0]["input"], changed["lines"][0]["voice"]["name"])


def test_script_belongs_to_who_made_it_and_its_takes_stay_while_it_needs_them(
    service: Service, http: httpx.Client
) -> None:
    script = spoken(service, http, made(http, content=PLAY))
    other = person(service)
    for attempt in (other.get, other.delete):
        assert attempt(f"/v1/audio/scripts/{script['id']}").status_code == 404
    assert other.get("/v1/audio/scripts").json()["data"] == []
    take = script["lines"][0]["take"]
    assert http.delete(f"/v1/audio/takes/{take}").status_code == 400
    assert http.delete(f"/v1/audio/scripts/{script['id']}").json()["deleted"]
    assert http.get(f"/v1/audio/takes/{take}").json()["line"] is None
    assert http.delete(f"/v1/audio/takes/{take}").json()["deleted"]


@pytest.mark.parametrize(
    ("body", "field"),
    [({}, "content"), ({"items": [{"voice": "Ada"}]}, "items.0.input"), ({"content": "a", "form": "pdf"}, "form"),
     ({"items": [{"input": "a", "pause_s": 99}]}, "items.0.pause_s"), ({"content": "\ud800: a"}, None)],
)  # fmt: skip
def test_bad_script_is_refused_at_its_field(http: httpx.Client, body: Script, field: str | None) -> None:
    refused = http.post("/v1/audio/scripts", content=json.dumps(body))
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, field), refused.text


def test_broken_characters_in_a_line_are_refused(http: httpx.Client) -> None:
    script = made(http, content=PLAY)
    line = f"/v1/audio/scripts/{script['id']}/lines/{script['lines'][0]['id']}"
    for body in ({"input": "\ud800"}, {"speaker": "\udfff"}):
        headers = {"Content-Type": "application/json"}
        assert http.patch(line, content=json.dumps(body), headers=headers).status_code == 400


def test_script_without_takes_has_nothing_to_export(http: httpx.Client) -> None:
    script = made(http, content=PLAY)
    refused = http.get(f"/v1/audio/scripts/{script['id']}/export")
    assert refused.status_code == 400 and "Generate" in refused.json()["error"]["message"]
