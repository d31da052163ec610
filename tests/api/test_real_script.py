"""Takes and scripts on the real engine: exact replay, and an export whose words stand where its subtitles say."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

import httpx
import numpy as np
import pytest
import soundfile

from studio.audio.resample import resample
from studio.evaluate.asr import ASR_RATE_HZ, Listener
from tests.real_studio import RealStudio

PLAY = """speaker,text,pause,seed
Clara,"Good evening, is this seat free?",,1
Owen,"Yes, please sit down.",0.8,1
Clara,Thank you very much.,,1
"""
ONE_STEP = 1


@pytest.fixture
def http(studio: RealStudio) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{studio.url}/v1/audio", timeout=240) as client:
        yield client


def test_exact_replay_gives_the_kept_samples_again(http: httpx.Client) -> None:
    """Other hops make other sums of float32, which round to the same 16 bits but for a step now and then."""
    body = {"input": "The same words, twice.", "voice": "Clara", "seed": 3, "response_format": "pcm"}
    take = http.post("/speech", json=body).headers["X-Request-Id"]
    again = http.post(f"/takes/{take}/replay")
    assert again.status_code == 200 and int(again.headers["X-Replay-Difference"]) <= ONE_STEP


def test_script_export_has_the_words_in_line_order_at_the_times_of_its_subtitles(
    http: httpx.Client, studio: RealStudio
) -> None:
    script = http.post("/batch", json={"content": PLAY, "title": "seat"}).json()
    url = f"/scripts/{script['id']}"
    studio.until(lambda: http.get(url).json()["status"] == "idle", "the lines of a script")
    assert [line["status"] for line in http.get(url).json()["lines"]] == ["done"] * 3
    sound, rate_hz = soundfile.read(io.BytesIO(http.get(f"{url}/export?what=wav").content), dtype="float32")
    cues = cues_of(http.get(f"{url}/export?what=srt").text)
    assert [text.split(": ")[0] for *_, text in cues] == ["Clara", "Owen", "Clara"]
    inside = np.zeros(len(sound), bool)
    for start_s, end_s, _ in cues:
        inside[round(start_s * rate_hz) : round(end_s * rate_hz)] = True
    assert np.abs(sound[~inside]).max() < 0.02 < np.abs(sound[inside]).max()
    for (start_s, end_s, text), heard in zip(cues, hear(sound, rate_hz, cues), strict=True):
        wanted = words(text.split(": ", 1)[1])
        assert len(wanted & words(heard)) >= len(wanted) / 2, (start_s, end_s, text, heard)


def hear(sound: np.ndarray, rate_hz: int, cues: list[tuple[float, float, str]]) -> list[str]:
    """What a recogniser hears between the times of each cue."""
    listener = Listener()
    parts = [sound[round(start_s * rate_hz) : round(end_s * rate_hz)] for start_s, end_s, _ in cues]
    return [listener.transcribe(resample(part, rate_hz, ASR_RATE_HZ), "en") for part in parts]


def words(text: str) -> set[str]:
    return set(re.findall(r"[a-z']+", text.lower()))


def cues_of(srt: str) -> list[tuple[float, float, str]]:
    clock = r"(\d\d):(\d\d):(\d\d),(\d{3})"
    found = re.findall(rf"{clock} --> {clock}\r\n(.*)\r\n", srt)
    times = [[3600 * int(h) + 60 * int(m) + int(s) + int(ms) / 1000 for h, m, s, ms in (c[:4], c[4:8])] for c in found]
    return [(start, end, cue[8]) for (start, end), cue in zip(times, found, strict=True)]
