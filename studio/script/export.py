"""A script's takes as one sound, stems, subtitles and a zip. Reads one take at a time; knows no database."""

from __future__ import annotations

import json
import re
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile

from studio.audio.loudness import Loudness, matching_gains_db
from studio.errors import InvalidRequest
from studio.script.subtitles import Cue, to_srt, to_vtt
from studio.script.timing import Voiced, audible, starts
from studio.speech import SAMPLE_RATE_HZ, Float32

FORMATS = {"wav": ("WAV", "PCM_16"), "flac": ("FLAC", "PCM_16"), "opus": ("OGG", "OPUS"),
           "mp3": ("MP3", "MPEG_LAYER_III")}  # fmt: skip
TARGET_LUFS = -18.0
MAX_BYTES = 2_000_000_000
"""Of sound that one export writes, before it is compressed."""
_BLOCK_SAMPLES = 10 * SAMPLE_RATE_HZ


@dataclass(frozen=True, slots=True)
class TakenLine:
    """A line with its take. number: from 1, in the script; samples: of the take; read: gives them, float32."""

    number: int
    speaker: str
    text: str
    pause_s: float
    at_s: float | None
    samples: int
    loudness: Loudness
    read: Callable[[], Float32]


class Export:
    """The lines laid out in time and matched in loudness. target_lufs None: every take as loud as it came."""

    def __init__(self, lines: Sequence[TakenLine], target_lufs: float | None = TARGET_LUFS) -> None:
        self._lines = lines
        self._starts = starts([Voiced(line.samples, line.pause_s, line.at_s) for line in lines])
        sounds = [line.loudness for line in lines]
        gains_db = [0.0] * len(lines) if target_lufs is None else matching_gains_db(sounds, target_lufs)
        self._gains = [10 ** (gain_db / 20) for gain_db in gains_db]

    @property
    def samples(self) -> int:
        """Length of the whole, without the pause after the last line."""
        return self._starts[-1] + self._lines[-1].samples if self._lines else 0

    def refuse_too_large(self, what: str) -> None:
        """Refuse what would fill the disk, before any is written. Raises InvalidRequest script.export_large."""
        stems = len({line.speaker for line in self._lines})
        size_bytes = 2 * self.samples * (stems + 2 if what == "zip" else 1)
        if size_bytes > MAX_BYTES:
            raise InvalidRequest(
                "script.export_large", param="what", minutes=self.samples / SAMPLE_RATE_HZ / 60,
                size=size_bytes / 1e9, limit=MAX_BYTES / 1e9,
            )  # fmt: skip

    def cues(self) -> list[Cue]:
        """The times at which the lines can be heard in the whole."""
        found = []
        for line, start in zip(self._lines, self._starts, strict=True):
            first, last = audible(line.read())
            times = [(start + sample) / SAMPLE_RATE_HZ for sample in (first, last)]
            found.append(Cue(times[0], times[1], line.speaker, line.text))
        return found

    def write_sound(self, file: Path, audio_format: str, speaker: str | None = None) -> None:
        """The whole as one file; with a speaker, a stem of the same length in which only that one is heard."""
        container, codec = FORMATS[audio_format]
        with soundfile.SoundFile(file, "w", SAMPLE_RATE_HZ, 1, codec, format=container) as sound:
            written = 0
            for n, line in enumerate(self._lines):
                _silence(sound, self._starts[n] - written)
                if speaker is None or line.speaker == speaker:
                    sound.write(self.line_sound(n))
                else:
                    _silence(sound, line.samples)
                written = self._starts[n] + line.samples

    def line_sound(self, n: int) -> Float32:
        """The n-th line as it is in the whole."""
        return (self._lines[n].read() * np.float32(self._gains[n])).astype(np.float32)

    def write_zip(self, file: Path, about: dict[str, object]) -> None:
        """The whole, each line, each speaker's stem, subtitles, and `about` as script.json."""
        cues = self.cues()
        with tempfile.TemporaryDirectory(dir=file.parent) as folder, zipfile.ZipFile(file, "w") as archive:
            sound = Path(folder, "sound")

            def add(name: str, speaker: str | None = None) -> None:
                self.write_sound(sound, "wav", speaker)
                archive.write(sound, name)

            add("whole.wav")
            for n, line in enumerate(self._lines):
                soundfile.write(sound, self.line_sound(n), SAMPLE_RATE_HZ, format="WAV", subtype="PCM_16")
                archive.write(sound, f"lines/{line.number:03}{_part(line.speaker)}.wav")
            for number, speaker in enumerate(dict.fromkeys(line.speaker for line in self._lines), 1):
                add(f"stems/{number:02}{_part(speaker)}.wav", speaker)
            for name, text in (("whole.srt", to_srt(cues)), ("whole.vtt", to_vtt(cues))):
                archive.writestr(name, text)
            archive.writestr("script.json", json.dumps(about, ensure_ascii=False, indent=1))


def _part(speaker: str) -> str:
    """A speaker's part of a file name; a name is a label and never a path."""
    name = re.sub(r"[^\w-]+", "-", speaker)[:40].strip("-")
    return f"_{name}" if name else ""


def _silence(sound: soundfile.SoundFile, samples: int) -> None:
    while samples > 0:
        count = min(samples, _BLOCK_SAMPLES)
        sound.write(np.zeros(count, np.float32))
        samples -= count
