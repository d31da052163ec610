"""Clips made comparable: trimmed, at one rate, equally loud (ITU-R BS.1770); anchors and spoilt clips of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from studio.audio.decode import ReferenceClip
from studio.audio.loudness import loudness_of, matching_gains_db
from studio.audio.resample import resample
from studio.errors import InvalidRequest
from studio.listening.answers import Kind
from studio.listening.design import ANCHORS, GOLD, REFERENCE, WITH_GOLD, Design
from studio.speech import Float32

LOUDNESS_LUFS = -23.0
CLIP_MIN_S, CLIP_MAX_S = 0.4, 60.0
"""Below 0.4 s there is not one block that BS.1770 measures."""
TRIM_DB, TRIM_FRAME_S, TRIM_KEEP_S = -50.0, 0.01, 0.05
GOLD_CUTOFF_HZ, GOLD_NOISE_RATIO = 900.0, 0.5
Key = tuple[str, str]
"""Item and condition of a clip."""
Span = tuple[float, float]


def ready(design: Design, given: Mapping[Key, tuple[Float32, int]]) -> tuple[dict[Key, Float32], int]:
    """The material as raters hear it, and its rate in Hz: comparable, with what is made from it, padded.

    Clips of one sentence have the same number of samples, so that no length tells a condition; only the reference of
    similarity, which is named, keeps its own.

    Args:    given: float32 [n] mono and rate in Hz.
    Raises:  InvalidRequest listening.* for a clip that cannot be used.
    """
    clips, rate_hz = comparable(given)
    made = _made(design, clips, rate_hz)
    clips |= made
    alone = {key for key in clips if design.kind is Kind.SIMILARITY and _is_reference(design, key[1])}
    longest: dict[str, int] = {}
    for (item, condition), clip in clips.items():
        if (item, condition) not in alone:
            longest[item] = max(longest.get(item, 0), len(clip))
    padded = {
        key: clip if key in alone else np.pad(clip, (0, longest[key[0]] - len(clip)))
        for key, clip in clips.items()
    }
    return padded, rate_hz


def _is_reference(design: Design, condition: str) -> bool:
    return condition == design.reference or condition.startswith(REFERENCE)


def _made(design: Design, clips: Mapping[Key, Float32], rate_hz: int) -> dict[Key, Float32]:
    """Anchors from the reference, and a spoilt clip of each sentence's first condition."""
    made: dict[Key, Float32] = {}
    for (item, condition), clip in clips.items():
        if condition == design.reference and design.kind is Kind.MUSHRA and design.anchors:
            made |= {(item, name): anchor(clip, rate_hz, hz) for name, hz in ANCHORS.items()}
        if design.gold and design.kind in WITH_GOLD and condition == design.rated[0]:
            made[item, GOLD] = spoilt(clip, rate_hz, design.seed)
    return made


def comparable(clips: Mapping[Key, tuple[Float32, int]]) -> tuple[dict[Key, Float32], int]:
    """All clips of a test, trimmed, at 24 kHz (48 kHz if any has more) and equally loud."""
    rate_hz = 24_000 if all(hz <= 24_000 for _, hz in clips.values()) else 48_000
    spans = _common_spans(
        {key: (clip, hz, _span("-".join(key), clip, hz)) for key, (clip, hz) in clips.items()}
    )
    made = {}
    for key, (clip, hz) in clips.items():
        start_s, end_s = spans[key]
        made[key] = resample(clip[round(start_s * hz) : round(end_s * hz)], hz, rate_hz)
    gains_db = matching_gains_db([loudness_of(clip, rate_hz) for clip in made.values()], LOUDNESS_LUFS)
    louder = {
        key: clip * np.float32(10 ** (db / 20))
        for (key, clip), db in zip(made.items(), gains_db, strict=True)
    }
    return louder, rate_hz


def _common_spans(found: Mapping[Key, tuple[Float32, int, Span]]) -> dict[Key, Span]:
    """Clips of a sentence that are all equally long are one sound, treated differently: they are cut alike."""
    spans = {key: span for key, (_, _, span) in found.items()}
    for item in {item for item, _ in found}:
        lengths = {len(clip) / hz for (other, _), (clip, hz, _) in found.items() if other == item}
        if max(lengths) - min(lengths) < 1e-4:
            same = [span for (other, _), span in spans.items() if other == item]
            common = min(start for start, _ in same), max(end for _, end in same)
            spans |= {key: common for key in spans if key[0] == item}
    return spans


def check_clip(name: str, clip: ReferenceClip) -> None:
    """Refuse what `comparable` could not use, as soon as it is uploaded. Raises InvalidRequest listening.*."""
    if clip.duration_s > CLIP_MAX_S:
        raise InvalidRequest(
            "listening.clip_long", param="files", file=name, seconds=clip.duration_s, limit=CLIP_MAX_S
        )
    _span(name, clip.samples, clip.sample_rate_hz)


def anchor(samples: Float32, rate_hz: int, cutoff_hz: float) -> Float32:
    """Low-passed as BS.1534 asks for 3.5 kHz: within 0.1 dB below, 25 dB down at 4 kHz, 50 dB at 4.5 kHz.

    The 7 kHz anchor scales the same limits. A clip that holds nothing above the cut-off comes back as it is.
    """
    if cutoff_hz >= rate_hz / 2:
        return samples
    half = round(4.5 * rate_hz / cutoff_hz * 4)  # a transition of about a seventh of the cut-off
    time = np.arange(-half, half + 1)
    middle_hz = cutoff_hz * (1 + 0.5 / 7)
    kernel = np.sinc(2 * middle_hz / rate_hz * time) * np.kaiser(2 * half + 1, 6.5)
    return np.convolve(samples, kernel / kernel.sum(), mode="same").astype(np.float32)


def spoilt(samples: Float32, rate_hz: int, seed: int) -> Float32:
    """A clip that nobody who listens calls good: muffled to 900 Hz under noise, equally loud as before."""
    muffled = anchor(samples, rate_hz, GOLD_CUTOFF_HZ)
    level = float(np.sqrt(np.mean(np.square(samples))))
    noise = np.random.default_rng(seed).normal(0.0, level * GOLD_NOISE_RATIO, len(samples)).astype(np.float32)
    mixed = muffled + noise
    return np.clip(mixed * np.float32(level / float(np.sqrt(np.mean(np.square(mixed))))), -1, 1)


def _span(name: str, samples: Float32, rate_hz: int) -> Span:
    """Where the sound is, in seconds, with 50 ms before and after that keep onsets whole."""
    frame = max(1, round(TRIM_FRAME_S * rate_hz))
    whole = samples[: len(samples) // frame * frame].reshape(-1, frame)
    levels = np.sqrt(np.mean(np.square(whole), axis=1)) if len(whole) else np.zeros(0)
    if not len(levels) or levels.max() < 1e-4:
        raise InvalidRequest("listening.clip_silent", param="files", file=name)
    heard = np.flatnonzero(levels > levels.max() * 10 ** (TRIM_DB / 20))
    start_s = max(0.0, heard[0] * frame / rate_hz - TRIM_KEEP_S)
    end_s = min(len(samples) / rate_hz, (heard[-1] + 1) * frame / rate_hz + TRIM_KEEP_S)
    if end_s - start_s < CLIP_MIN_S:
        seconds = end_s - start_s
        raise InvalidRequest(
            "listening.clip_short", param="files", file=name, seconds=seconds, limit=CLIP_MIN_S
        )
    return start_s, end_s
