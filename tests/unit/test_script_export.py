"""A script's times are those of its sound: subtitles, stems and the whole agree to the sample."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
import soundfile

from studio.audio.loudness import loudness_of
from studio.errors import InvalidRequest
from studio.script.export import FORMATS, TARGET_LUFS, Export, TakenLine
from studio.script.subtitles import Cue, to_srt, to_vtt
from studio.script.timing import Voiced, audible, starts

RATE_HZ = 24_000


def tone(seconds: float, level: float, silent_s: float = 0.0) -> np.ndarray:
    sound = level * np.sin(np.arange(int(seconds * RATE_HZ)) * 0.2)
    silence = np.zeros(int(silent_s * RATE_HZ))
    return np.concatenate([silence, sound, silence]).astype(np.float32)


def taken(number: int, speaker: str, sound: np.ndarray, pause_s: float = 0.5, at_s: float | None = None) -> TakenLine:
    text = f"line {number}"
    return TakenLine(number, speaker, text, pause_s, at_s, len(sound), loudness_of(sound, RATE_HZ), lambda: sound)


LINES = [
    taken(1, "Anna", tone(1.0, 0.5)),
    taken(2, "../Ben", tone(2.0, 0.05, silent_s=0.2)),
    taken(3, "Anna", tone(1.0, 0.2), at_s=10.0),
]


def test_lines_follow_each_other_after_their_pauses_and_wait_for_their_cues() -> None:
    voiced = [Voiced(24_000, 0.5), Voiced(12_000, 0.0), Voiced(2_400, 0.3, at_s=1.0), Voiced(2_400, 0.0, at_s=9.0)]
    assert starts(voiced) == [0, 36_000, 48_000, 216_000]
    assert starts([]) == []


def test_audible_part_is_without_the_silence_round_it() -> None:
    first, last = audible(tone(1.0, 0.3, silent_s=0.5))
    assert first == pytest.approx(12_000, abs=480) and last == pytest.approx(36_000, abs=480)
    assert audible(np.zeros(999, np.float32)) == (0, 999) and audible(np.zeros(0, np.float32)) == (0, 0)


def test_script_export_times_are_those_of_the_sound(tmp_path: Path) -> None:
    export = Export(LINES)
    export.write_sound(tmp_path / "whole", "wav")
    sound = soundfile.read(tmp_path / "whole", dtype="float32")[0]
    assert len(sound) == export.samples == 11 * RATE_HZ
    cues = export.cues()
    assert [cue.start_s for cue in cues] == pytest.approx([0.0, 1.7, 10.0], abs=0.021)
    heard = np.zeros(len(sound), bool)
    for cue in cues:
        heard[round(cue.start_s * RATE_HZ) : round(cue.end_s * RATE_HZ)] = True
        assert np.abs(sound[round(cue.start_s * RATE_HZ) :][:480]).max() > 0.01
    assert np.abs(sound[~heard]).max() < 1e-4


def test_script_lines_are_equally_loud(tmp_path: Path) -> None:
    export = Export(LINES)
    lufs = [loudness_of(export.line_sound(n), RATE_HZ).lufs for n in range(3)]
    assert lufs == pytest.approx([TARGET_LUFS] * 3, abs=0.1)
    as_they_came = Export(LINES, target_lufs=None)
    assert np.array_equal(as_they_came.line_sound(1), LINES[1].read())


@pytest.mark.parametrize("audio_format", FORMATS)
def test_script_is_one_file_of_every_format(tmp_path: Path, audio_format: str) -> None:
    Export(LINES).write_sound(tmp_path / "x", audio_format)
    assert soundfile.info(tmp_path / "x").duration == pytest.approx(11.0, abs=0.1)


def test_script_zip_holds_the_whole_lines_stems_subtitles_and_settings(tmp_path: Path) -> None:
    Export(LINES).write_zip(tmp_path / "x.zip", {"title": "Two voices"})
    with zipfile.ZipFile(tmp_path / "x.zip") as archive:
        names = archive.namelist()
        sounds = {
            name: soundfile.read(archive.open(name), dtype="float32")[0] for name in names if name.endswith("wav")
        }
        assert json.loads(archive.read("script.json")) == {"title": "Two voices"}
        assert archive.read("whole.srt").decode() == to_srt(Export(LINES).cues())
        assert archive.read("whole.vtt").decode() == to_vtt(Export(LINES).cues())
    assert {"lines/001_Anna.wav", "lines/002_Ben.wav", "lines/003_Anna.wav"} < set(names)
    stems = [sounds["stems/01_Anna.wav"], sounds["stems/02_Ben.wav"]]
    assert np.abs(sum(stems) - sounds["whole.wav"]).max() < 1e-4
    assert list(tmp_path.iterdir()) == [tmp_path / "x.zip"]


def test_script_export_that_would_fill_the_disk_is_refused() -> None:
    hour = 3600 * RATE_HZ
    lines = [TakenLine(n, str(n), "", 0.0, None, hour, loudness_of(tone(1.0, 0.5), RATE_HZ), dict) for n in range(4)]
    Export(lines[:2]).refuse_too_large("zip")  # 2 h each: the whole, the lines and 2 stems
    Export(lines).refuse_too_large("wav")
    with pytest.raises(InvalidRequest, match=r"240 minutes and take 4\.1 GB"):
        Export(lines).refuse_too_large("zip")


def test_subtitles_keep_every_text_in_one_cue() -> None:
    hostile = "one\n\n2\n00:00:01,000 --> 00:00:02,000\nnot a cue & more"
    cues = [Cue(0.0, 1.2345, "A<b>", hostile), Cue(3661, 3662, "", "二")]
    srt = to_srt(cues)
    assert srt.count("-->") == 2 and srt.startswith("1\r\n00:00:00,000 --> 00:00:01,234\r\nA<b>: one 2 ")
    assert srt.endswith("2\r\n01:01:01,000 --> 01:01:02,000\r\n二\r\n")
    vtt = to_vtt(cues)
    assert vtt.startswith("WEBVTT\n\n00:00:00.000 --> 00:00:01.234\n<v A&lt;b&gt;>one 2 ")
    assert vtt.count("-->") == 2 and "--&gt;" in vtt and "&amp; more" in vtt
