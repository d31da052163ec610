"""A whole look at a clip to clone: decoded, judged, and its speakers counted by the ears. Mends nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from studio.audio.decode import ReferenceClip, decode_clip
from studio.audio.doctor import Diagnosis, diagnose
from studio.audio.resample import resample
from studio.audio.speakers import count_speakers, parts_of
from studio.audio.threads import in_clip_thread
from studio.errors import StudioError
from studio.protocols import Ears
from studio.speech import PROMPT_RATE_HZ, Float32

PATIENCE_S = 3.0
"""For ears that are still starting; the doctor's other findings do not wait longer for theirs."""


@dataclass(frozen=True, slots=True, eq=False)
class Examined:
    clip: ReferenceClip
    diagnosis: Diagnosis


async def examine_clip(data: bytes, ears: Ears) -> Examined:
    """Decode and judge a clip; where nobody can tell its speakers, nothing is said of them.

    Raises:  ClipTooLarge, UnusablePromptSpeech if it cannot be decoded. A clip that is only unusable is judged.
    """
    clip = await in_clip_thread(decode_clip, data)
    speakers = await _speakers(clip, ears)
    return Examined(clip, await in_clip_thread(diagnose, clip, speakers))


async def _speakers(clip: ReferenceClip, ears: Ears) -> int | None:
    parts = await in_clip_thread(parts_of, clip)
    if not parts:
        return None
    try:
        async with asyncio.timeout(PATIENCE_S):
            embeddings = await ears.embed(parts)
    except (StudioError, TimeoutError):
        return None
    return await in_clip_thread(count_speakers, parts, embeddings)


def as_heard(samples: Float32, rate_hz: int) -> Float32:
    """What the ears take: float32 [n] at 16 kHz."""
    return resample(samples, rate_hz, PROMPT_RATE_HZ)
