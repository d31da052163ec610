"""Whether a clip can be cloned, which part of it is speech, and which part of a long one is best.

By loudness alone: a clip of nothing but steady noise counts as speech here; no model is asked. How good a clip is
says `doctor.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from studio.audio.decode import ReferenceClip, decode_clip
from studio.errors import UnusablePromptSpeech
from studio.speech import PROMPT_MAX_S, PROMPT_MIN_S, PROMPT_RATE_HZ

BEST_PART_S = 10.0
FRAME_S = 0.02
_SILENT_DB = -55.0              # full scale is 0; a quiet room on a bad microphone is about -60
_BELOW_LOUD_DB = 35.0           # speech lies within this of the clip's loud frames
_PAUSE_S = 0.2                  # shorter gaps are stops within words
_MARGIN_S = 0.15                # kept around speech, for soft onsets and endings
_ABOVE_NOISE_DB = 6.0


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """What was found in a usable clip. clip: trimmed; start_s, end_s: where it lies in the one given."""

    clip: ReferenceClip
    start_s: float
    end_s: float
    speech_s: float


def usable_clip(data: bytes) -> ReferenceClip:
    """Decode an audio file and trim it to its speech.

    Raises:  ClipTooLarge; UnusablePromptSpeech as `decode_clip` and `judge_clip`.
    """
    return judge_clip(decode_clip(data)).clip


def judge_clip(clip: ReferenceClip) -> Verdict:
    """Find the speech in a clip.

    Raises:  UnusablePromptSpeech if it is silent, has under 1 s or over 30 s of speech, or a rate
             under 16 kHz.
    """
    if clip.source_rate_hz < PROMPT_RATE_HZ:
        raise UnusablePromptSpeech("clip.low_rate", rate_hz=clip.source_rate_hz, limit_hz=PROMPT_RATE_HZ)
    runs = speech_runs(clip)
    if not runs:
        raise UnusablePromptSpeech("clip.silent")
    speech_s = sum(end - start for start, end in runs)
    if speech_s < PROMPT_MIN_S:
        raise UnusablePromptSpeech("clip.too_short", seconds=speech_s, limit=PROMPT_MIN_S)
    start_s, end_s = max(0.0, runs[0][0] - _MARGIN_S), min(clip.seconds, runs[-1][1] + _MARGIN_S)
    if end_s - start_s > PROMPT_MAX_S:
        best_start_s, best_end_s = best_span(clip)
        raise UnusablePromptSpeech("clip.too_long", seconds=clip.duration_s, limit=PROMPT_MAX_S,
                                   start=best_start_s, end=best_end_s)
    return Verdict(clip.part(start_s, end_s), start_s, end_s, speech_s)


def best_span(clip: ReferenceClip) -> tuple[float, float]:
    """Start and end in seconds of the loudest speech of at most 10 s that begins and ends at pauses.

    Where no pauses are that close, the loudest 10 s. Raises: UnusablePromptSpeech if the clip is silent.
    """
    runs = speech_runs(clip)
    if not runs:
        raise UnusablePromptSpeech("clip.silent")
    longest_s = BEST_PART_S - 2 * _MARGIN_S
    loudness = np.concatenate([[0.0], np.cumsum(frame_rms(clip))])     # up to each frame's start
    spans = []
    for first, (start, _) in enumerate(runs):
        ends = [end for _, end in runs[first:] if end - start <= longest_s]
        if ends:
            spans.append((start, ends[-1]))
    # speech without pauses is cut where it must be
    spans += [(at, min(at + longest_s, end)) for start, end in runs if end - start > longest_s
              for at in np.arange(start, end - longest_s / 2, 0.5).tolist()]

    def total(span: tuple[float, float]) -> float:
        first, last = (round(s / FRAME_S) for s in span)
        return float(loudness[min(last, len(loudness) - 1)] - loudness[first])

    start, end = max(spans, key=total)
    return max(0.0, start - _MARGIN_S), min(clip.seconds, end + _MARGIN_S)


def speech_span(clip: ReferenceClip) -> float:
    """Seconds from the first speech of a clip to the last; 0 if there is none."""
    runs = speech_runs(clip)
    return runs[-1][1] - runs[0][0] if runs else 0.0


def speech_runs(clip: ReferenceClip) -> list[tuple[float, float]]:
    """Start and end in seconds of each stretch of speech; pauses lie between them."""
    level_db = 20 * np.log10(np.maximum(frame_rms(clip), 1e-9))
    if len(level_db) == 0:
        return []
    floor_db, loud_db = np.percentile(level_db, (5, 95))
    above_noise_db = min(floor_db + _ABOVE_NOISE_DB, loud_db - _ABOVE_NOISE_DB)
    threshold_db = max(_SILENT_DB, loud_db - _BELOW_LOUD_DB, above_noise_db)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], (level_db > threshold_db).astype(np.int8), [0]])))
    runs: list[tuple[float, float]] = []
    for first, last in edges.reshape(-1, 2) * FRAME_S:
        if runs and first - runs[-1][1] < _PAUSE_S:
            runs[-1] = (runs[-1][0], float(last))
        else:
            runs.append((float(first), float(last)))
    # a click is not speech
    return [run for run in runs if run[1] - run[0] > 2 * FRAME_S]


def frame_rms(clip: ReferenceClip) -> NDArray[np.float64]:
    """Root mean square of each 20 ms without its mean: a constant offset is not sound."""
    size = round(FRAME_S * clip.sample_rate_hz)
    frames = clip.samples[:len(clip.samples) // size * size].reshape(-1, size)
    return frames.std(axis=1, dtype=np.float64)
