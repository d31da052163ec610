"""`python -m studio.evaluate.companion EXPORT.zip`: measures the clips of a listening test, prints JSON for its report.

Reads the export of a test. A judge whose package is not installed is left out, and the JSON says which and why.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import soxr

from studio.audio.loudness import loudness_of
from studio.evaluate.asr import ASR_RATE_HZ, Listener, count_errors
from studio.evaluate.dnsmos import QualityJudge
from studio.evaluate.scoring import error_ratio
from studio.evaluate.similarity import VoiceJudge
from studio.evaluate.texts import Language
from studio.listening.companion import MEASURES, Clip, to_json
from studio.speech import Float32

# The clips as they came; anchors are made when the test opens, and are in the second folder only.
STAGES = ("given", "ready")
# How the export names the clips of conditions' own voices in a test of similarity.
VOICE_REFERENCE = "reference_"
NO_TEXTS = "the design has no texts"


@dataclass(frozen=True, slots=True)
class Sound:
    """A clip of the export: float32 [N], mono, and what is said in it ("" if that is not known)."""

    item: str
    condition: str
    samples: Float32
    rate_hz: int
    text: str = ""

    def at_16k(self) -> Float32:
        """The clip at the judges' rate."""
        return soxr.resample(self.samples, self.rate_hz, ASR_RATE_HZ)


Measure = Callable[[Sound], dict[str, float | None]]


def read_export(content: bytes) -> tuple[dict[str, Any], list[Sound]]:
    """The design and its clips, each item and condition once.

    Raises:  ValueError or KeyError if this is no export of a listening test.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        design = json.loads(archive.read("design.json"))
        texts = {f"s{n:02}": text for n, text in enumerate(design["texts"], 1)}
        found: dict[tuple[str, str], Sound] = {}
        for stage in STAGES:
            for name in sorted(archive.namelist()):
                parts = name.split("/")
                if parts[0] != stage or len(parts) != 3 or not name.endswith(".flac"):
                    continue
                # Folders are named "c1 Name", files "s01.7.flac": id first, for people's and programs' eyes.
                condition, item = parts[1].split(" ")[0], parts[2].split(".")[0]
                samples, rate_hz = soundfile.read(
                    io.BytesIO(archive.read(name)), dtype="float32", always_2d=True
                )
                sound = Sound(item, condition, samples.mean(axis=1), rate_hz, texts.get(item, ""))
                found.setdefault((item, condition), sound)
    return design, list(found.values())


def judges(
    design: dict[str, Any], sounds: list[Sound], reference: Float32 | None
) -> tuple[list[Measure], dict[str, str]]:
    """Everything that can be measured here, and why the rest cannot.

    Args:    reference: float32 [N] at 16 kHz, the voice to compare with where the test has no reference of its own.
    """
    measures: list[Measure] = [_loudness]
    absent: dict[str, str] = {}
    builders: dict[str, Callable[[], Measure]] = {
        "error_ratio": lambda: _hearing(design["language"], sounds),
        "similarity": lambda: _likeness(design["reference"], sounds, reference),
        "dnsmos": _quality,
    }
    for name, build in builders.items():
        try:
            measures.append(build())
        except (ImportError, LookupError) as reason:
            absent[name] = str(reason)
    measures.append(lambda sound: _rate(sound, design["language"]))
    return measures, absent


def measure(sounds: list[Sound], measures: list[Measure]) -> Iterator[Clip]:
    """Each clip's measures."""
    for sound in sounds:
        found: dict[str, float | None] = {}
        for one in measures:
            found |= one(sound)
        rounded = {name: None if value is None else round(value, 4) for name, value in found.items()}
        yield Clip(sound.item, sound.condition, **rounded)


def _loudness(sound: Sound) -> dict[str, float | None]:
    lufs = loudness_of(sound.samples, sound.rate_hz).lufs
    return {"loudness_lufs": lufs if np.isfinite(lufs) else None}


def _hearing(language: Language, sounds: list[Sound]) -> Measure:
    if not any(sound.text for sound in sounds):
        raise LookupError(NO_TEXTS)
    listener = Listener()
    listener.load(language)

    def heard(sound: Sound) -> dict[str, float | None]:
        if not sound.text:
            return {}
        found = count_errors(sound.text, listener.transcribe(sound.at_16k(), language), language)
        return {"error_ratio": error_ratio(found.errors, found.length)}

    return heard


def _likeness(condition: str, sounds: list[Sound], given: Float32 | None) -> Measure:
    """Likeness to the reference of the same sentence (or to the condition's own voice), else to the clip given."""
    own = {}
    for sound in sounds:
        if condition and sound.condition == condition:
            own[sound.item, ""] = sound
        elif sound.condition.startswith(VOICE_REFERENCE):
            own[sound.item, sound.condition.removeprefix(VOICE_REFERENCE)] = sound
    if not own and given is None:
        raise LookupError("the test has no reference clip")
    judge = VoiceJudge()
    known = {key: judge.embed(sound.at_16k()) for key, sound in own.items()}
    voice = None if given is None else judge.embed(given)

    def compared(sound: Sound) -> dict[str, float | None]:
        other = known.get((sound.item, sound.condition), known.get((sound.item, ""), voice))
        return {"similarity": None if other is None else float(judge.embed(sound.at_16k()) @ other)}

    return compared


def _quality() -> Measure:
    judge = QualityJudge()
    return lambda sound: {"dnsmos": judge.judge(sound.at_16k()).overall}


def _rate(sound: Sound, language: Language) -> dict[str, float | None]:
    """Words or Hanzi a second of the clip; it was trimmed where the studio made it."""
    length = (
        sum("\u4e00" <= c <= "\u9fff" for c in sound.text) if language == "zh" else len(sound.text.split())
    )
    return {"rate": length / (len(sound.samples) / sound.rate_hz)} if length else {}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m studio.evaluate.companion", description=__doc__)
    parser.add_argument("export", type=Path, help="export.zip of a listening test")
    parser.add_argument("--reference", type=Path, help="a clip of the voice, for similarity")
    options = parser.parse_args()
    given = None
    if options.reference:
        samples, rate_hz = soundfile.read(options.reference, dtype="float32", always_2d=True)
        given = soxr.resample(samples.mean(axis=1), rate_hz, ASR_RATE_HZ)
    design, sounds = read_export(options.export.read_bytes())
    measures, absent = judges(design, sounds, given)
    clips = list(measure([s for s in sounds if not s.condition.startswith(VOICE_REFERENCE)], measures))
    unmeasured = [m for m in MEASURES if m not in absent and all(getattr(clip, m) is None for clip in clips)]
    absent |= dict.fromkeys(unmeasured, NO_TEXTS)
    sys.stdout.write(to_json(clips, absent) + "\n")


if __name__ == "__main__":
    main()
