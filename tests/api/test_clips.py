"""/v1/audio/clips: the clip doctor, the mended clip and the clip's words, over HTTP."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradio_client
import httpx
import numpy as np
import pytest
import soundfile
from gradio_client.exceptions import AppError

from studio.audio import ffmpeg
from studio.audio.check import usable_clip
from studio.audio.decode import decode_clip
from studio.speech import SPEAKER_DIM
from tests.api.conftest import Service, clip_bytes
from tests.faulty_clips import clean, clips_with, noisy, wav
from tests.real_studio import ROOT

TYPED = "The harbor was calm at dawn, and a few small boats were already heading out to sea."


def post(service: Service, what: str, data: bytes, language: str = "en", **fields: str) -> httpx.Response:
    return httpx.post(
        f"{service.url}/v1/audio/clips/{what}",
        files={"audio_sample": ("clip", data)},
        data=fields,
        headers={"Accept-Language": language},
        timeout=60,
    )


def severities(service: Service, data: bytes) -> dict[str, str]:
    return {found["topic"]: found["severity"] for found in post(service, "check", data).json()["findings"]}


def test_clip_doctor_answers_each_topic_with_what_to_do_in_both_languages(service: Service) -> None:
    data = wav(*noisy("af_kore_en", 15))
    told = {language: post(service, "check", data, language).json() for language in ("en", "zh")}
    assert told["en"]["severity"] == "amber" and told["en"]["usable"] and told["en"]["mendable"]
    topics = {f["topic"] for f in told["en"]["findings"]}
    assert topics == {"speech", "level", "clipping", "noise", "silence", "speakers"}
    noise = {language: next(f for f in told[language]["findings"] if f["topic"] == "noise") for language in told}
    assert noise["en"]["values"]["snr"] == pytest.approx(15, abs=3)
    assert "Fix the clip" in noise["en"]["message"] and "修复语音" in noise["zh"]["message"]


def test_mended_clip_is_good_and_can_be_cloned(service: Service) -> None:
    for fault in ("level", "snr 15 dB", "silence", "antiphase"):
        mended = post(service, "mend", next(clips_with(fault)).data)
        assert mended.headers["content-type"] == "audio/wav"
        assert set(severities(service, mended.content).values()) == {"green"}
    samples, rate_hz = soundfile.read(io.BytesIO(mended.content))
    assert rate_hz == 24000 and 3 <= len(samples) / rate_hz <= 10


def test_clips_are_decoded_in_threads_of_their_own(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def noted(work: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
        def run(data: bytes) -> Any:
            threads.append(threading.current_thread().name)
            return work(data)

        return run

    monkeypatch.setattr("studio.checks.clip.decode_clip", noted(decode_clip))
    monkeypatch.setattr("studio.api.clips.decode_clip", noted(decode_clip))
    monkeypatch.setattr("studio.api.clips.usable_clip", noted(usable_clip))
    for what in ("check", "mend", "transcript"):
        assert post(service, what, clip_bytes()).status_code == 200
    assert len(threads) == 3 and all(name.startswith("clips") for name in threads)


def test_two_voices_in_a_clip_are_told(service: Service) -> None:
    data = wav(*clean("af_kore_en"))
    assert severities(service, data)["speakers"] == "green"
    service.ears.voices = np.eye(2, SPEAKER_DIM, dtype=np.float32)
    assert severities(service, data)["speakers"] == "amber"


def test_clip_that_cannot_be_cloned_is_judged_and_not_refused(service: Service) -> None:
    told = post(service, "check", clip_bytes(35)).json()
    assert (told["usable"], told["severity"], told["mendable"]) == (False, "red", True)
    told = post(service, "check", clip_bytes(4, 8000)).json()
    assert (told["usable"], told["mendable"]) == (False, False)


@pytest.mark.parametrize("what", ["check", "mend", "transcript"])
@pytest.mark.parametrize("data", [b"", b"no sound at all " * 99], ids=["empty", "text"])
def test_file_that_is_no_clip_is_refused_at_its_field(service: Service, what: str, data: bytes) -> None:
    reply = post(service, what, data)
    assert (reply.status_code, reply.json()["error"]["param"]) == (422, "audio_sample")


def test_missing_and_huge_clips_are_refused(start_service) -> None:
    service = start_service("--max-clip-mb", "0.1")
    assert post(service, "check", clip_bytes(4)).status_code == 413
    reply = httpx.post(f"{service.url}/v1/audio/clips/check")
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "audio_sample")


def test_transcript_is_heard_and_scored_against_what_is_typed(service: Service) -> None:
    service.ears.enqueue(*["the harbour was calm at dawn and a few small boats were already heading out to see"] * 3)
    data = wav(*clean("af_kore_en"))
    assert post(service, "transcript", data).json()["text"].startswith("the harbour")
    same = post(service, "transcript", data, ref_text=TYPED).json()
    assert (same["agreement"], same["differs"]) == (1.0, False)
    other = post(service, "transcript", data, ref_text="Please leave the keys on the kitchen table.").json()
    assert other["agreement"] < 0.4 and other["differs"] is True


def test_without_a_recogniser_the_transcript_says_how_to_get_one_and_the_doctor_still_answers(service: Service) -> None:
    service.ears.recogniser = ""
    reply = post(service, "transcript", wav(*clean("af_kore_en")))
    assert (reply.status_code, reply.json()["error"]["code"]) == (501, "asr_unavailable")
    assert "--asr-model" in reply.json()["error"]["message"]
    assert severities(service, wav(*clean("af_kore_en")))["noise"] == "green"


@pytest.mark.parametrize("audio_format", ["WAV", "FLAC", "OGG", "MP3"])
@pytest.mark.parametrize("rate_hz", [16000, 44100, 48000])
def test_clip_doctor_reads_formats_of_any_rate(service: Service, audio_format: str, rate_hz: int) -> None:
    assert post(service, "check", clip_bytes(4, rate_hz, audio_format)).json()["usable"]


@pytest.mark.parametrize("present", [False, True])
def test_absent_ffmpeg_is_said_at_start_with_the_remedy(tmp_path: Path, present: bool) -> None:
    """By app.py itself, before all else; it ends here since there is no checkpoint to go on with."""
    if present:
        (tmp_path / "ffmpeg").write_text("#!/bin/sh\n")
        (tmp_path / "ffmpeg").chmod(0o755)
    command = [sys.executable, "app.py", "--model-dir", str(tmp_path), "--data-dir", str(tmp_path / "data")]
    run = subprocess.run(
        command, env={**os.environ, "PATH": str(tmp_path)}, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 1 and "cosyvoice2.yaml is missing" in run.stderr
    said = "ffmpeg is not installed, so m4a and webm clips cannot be read: apt-get install ffmpeg. wav, flac"
    assert (said in run.stderr) is not present


def test_absent_ffmpeg_is_said_on_the_page_and_wav_and_flac_still_work(start_service, monkeypatch) -> None:
    monkeypatch.setattr(ffmpeg.shutil, "which", lambda name, path=None: None)
    service = start_service()
    page = httpx.get(f"{service.url}/config").text
    assert "ffmpeg-note" in page
    assert post(service, "check", clip_bytes(4)).json()["usable"]
    assert post(service, "check", clip_bytes(4, audio_format="FLAC")).json()["usable"]
    m4a = b"\0\0\0\x20ftypM4A " + bytes(400)
    sent = {"files": {"audio_sample": ("clip.m4a", m4a)}, "data": {"ref_text": "hello", "name": "M", "consent": "yes"}}
    for reply in post(service, "check", m4a), httpx.post(f"{service.url}/v1/audio/voices", **sent):
        assert reply.status_code == 422
        assert "apt-get install ffmpeg). wav and flac work without it" in reply.json()["error"]["message"]


def test_clip_functions_of_gradio_client_have_stable_names(service: Service, tmp_path: Path) -> None:
    file = tmp_path / "noisy.wav"
    file.write_bytes(wav(*noisy("af_kore_en", 15)))
    (tmp_path / "text.wav").write_text("no sound")
    service.ears.enqueue("what is said")
    client = gradio_client.Client(service.url, verbose=False, download_files=str(tmp_path))
    try:
        clip = gradio_client.handle_file(str(file))
        told = client.predict(clip, api_name="/check_clip")
        assert told["topics"]["noise"]["severity"] == "amber" and told["mendable"]
        mended = client.predict(clip, api_name="/mend_clip")
        assert set(severities(service, Path(mended).read_bytes()).values()) == {"green"}
        assert client.predict(clip, api_name="/transcribe_clip") == "what is said"
        with pytest.raises(AppError, match="not audio"):
            client.predict(gradio_client.handle_file(str(tmp_path / "text.wav")), api_name="/check_clip")
    finally:
        client.close()
