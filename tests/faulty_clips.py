"""Clips with known faults, made from the prompts of tests/fixtures: always the same, sample for sample.

They are what the clip doctor is checked on. Its limits were chosen with the same 19 voices at hand; pairs of speakers
for the faults are others than those that its speaker rule was fitted on (every second pair of all).
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import soundfile

from studio.audio.resample import resample

PROMPTS = Path(__file__).parent / "fixtures" / "prompts"
CLIPS_PER_FAULT = 10
Sound = tuple[np.ndarray, int]


@dataclass(frozen=True)
class FaultyClip:
    """data: a 16-bit wav file; topic and severity: what the doctor has to say of it."""

    name: str
    data: bytes
    topic: str
    severity: str


@cache
def voices() -> tuple[str, ...]:
    prompts = json.loads((PROMPTS / "prompts.json").read_text(encoding="utf-8"))["prompts"]
    return tuple(sorted(prompt["id"] for prompt in prompts))


@cache
def clean(voice: str) -> Sound:
    samples, rate_hz = soundfile.read(PROMPTS / f"{voice}.flac", dtype="float32")
    return samples, rate_hz


def wav(samples: np.ndarray, rate_hz: int) -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, np.clip(samples, -1, 1), rate_hz, format="WAV", subtype="PCM_16")
    return buffer.getvalue()


def spoken_rms(samples: np.ndarray, rate_hz: int) -> float:
    """Of the frames of 20 ms within 35 dB of the loud ones: what a signal-to-noise ratio is of."""
    size = rate_hz // 50
    level = samples[: len(samples) // size * size].reshape(-1, size).std(axis=1)
    return float(np.sqrt((level[level > np.percentile(level, 95) / 56] ** 2).mean()))


def quieter(voice: str) -> Sound:
    samples, rate_hz = clean(voice)
    return samples * 10 ** (-38 / 20) / spoken_rms(samples, rate_hz), rate_hz


def clipped(voice: str) -> Sound:
    """Overdriven by 9 to 15 dB above its peak; every second one turned down afterwards."""
    samples, rate_hz = clean(voice)
    number = voices().index(voice)
    gain = 10 ** ((9 + number % 3 * 3) / 20) / np.abs(samples).max()
    return np.clip(samples * gain, -1, 1) * (1.0, 0.5)[number % 2], rate_hz


def noisy(voice: str, snr_db: float) -> Sound:
    """With noise that falls by 3 dB an octave, as rooms have it."""
    samples, rate_hz = clean(voice)
    rng = np.random.default_rng(zlib.crc32(f"{voice} {snr_db}".encode()))
    spectrum = np.fft.rfft(rng.standard_normal(len(samples)))
    noise = np.fft.irfft(spectrum / np.sqrt(np.arange(len(spectrum)) + 20), len(samples))
    noise *= spoken_rms(samples, rate_hz) / noise.std() / 10 ** (snr_db / 20)
    return 0.7 * (samples + noise), rate_hz


def of_telephone(voice: str) -> Sound:
    """What 8 kHz carry, at the full rate again."""
    samples, rate_hz = clean(voice)
    return resample(resample(samples, rate_hz, 8000), 8000, rate_hz), rate_hz


def between_silences(voice: str) -> Sound:
    """The noise of a quiet room, three seconds before or behind."""
    samples, rate_hz = clean(voice)
    rng = np.random.default_rng(zlib.crc32(voice.encode()))
    room = (2e-4 * rng.standard_normal(3 * rate_hz)).astype(np.float32)
    parts = (room, samples) if voices().index(voice) % 2 else (samples, room)
    return np.concatenate(parts), rate_hz


def in_antiphase(voice: str) -> Sound:
    samples, rate_hz = clean(voice)
    return np.stack([samples, -(0.6 + 0.04 * (voices().index(voice) % 10)) * samples], axis=1), rate_hz


def of_two(first: str, second: str) -> Sound:
    """Two people, three seconds each, at 24 kHz, a quarter of a second between them."""
    turns = [resample(*clean(voice), 24_000)[: 3 * 24_000] for voice in (first, second)]
    return np.concatenate([turns[0], np.zeros(6_000, np.float32), turns[1]]), 24_000


FAULTS: dict[str, tuple[Callable[[str], Sound], str, str]] = {
    "level": (quieter, "level", "amber"),
    "clipping": (clipped, "clipping", "red"),
    "snr 5 dB": (lambda voice: noisy(voice, 5), "noise", "red"),
    "snr 15 dB": (lambda voice: noisy(voice, 15), "noise", "amber"),
    "snr 30 dB": (lambda voice: noisy(voice, 30), "noise", "green"),
    "8 kHz": (of_telephone, "bandwidth", "red"),
    "silence": (between_silences, "silence", "amber"),
    "antiphase": (in_antiphase, "stereo", "amber"),
}
TWO_SPEAKERS = "two speakers"


def clean_clips() -> Iterator[FaultyClip]:
    for voice in voices():
        yield FaultyClip(voice, wav(*clean(voice)), "", "green")


def clips_with(fault: str) -> Iterator[FaultyClip]:
    if fault == TWO_SPEAKERS:
        pairs = [(a, b) for number, a in enumerate(voices()) for b in voices()[number + 1 :]]
        chosen = np.random.default_rng(5).permutation(pairs[1::2])
        for first, second in chosen[: 2 * CLIPS_PER_FAULT]:
            yield FaultyClip(f"{first}+{second}", wav(*of_two(first, second)), "speakers", "amber")
        return
    make, topic, severity = FAULTS[fault]
    for voice in np.random.default_rng(zlib.crc32(fault.encode())).permutation(voices())[:CLIPS_PER_FAULT]:
        yield FaultyClip(str(voice), wav(*make(str(voice))), topic, severity)
