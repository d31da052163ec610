"""What a rater's browser gets of a clip: a one-time random address, and bytes that say nothing but the sound.

All clips of a trial have the same number of samples. Noise of one least bit, drawn anew each time, makes the bytes of
two copies of one clip differ, so that hidden reference, X of ABX and repeats cannot be found by comparing files.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from studio.audio.encode import to_pcm, wav_header
from studio.listening.store import Clip
from studio.speech import Float32

MAX_ADDRESSES = 50_000


@dataclass(frozen=True, slots=True)
class Served:
    """What lies behind an address: a clip of a rater's trial, its place there, the samples it is padded to."""

    rater: str
    position: int
    index: int
    clip: Clip
    samples: int


class Addresses:
    """Hands out addresses and takes each back once. In memory: after a restart a page asks for new ones."""

    def __init__(self) -> None:
        self._behind: OrderedDict[str, Served] = OrderedDict()

    def issue(self, rater: str, position: int, clips: Iterable[Clip]) -> list[str]:
        """One address a clip; those that the rater had and did not use are void."""
        for address in [a for a, served in self._behind.items() if served.rater == rater]:
            del self._behind[address]
        clips = list(clips)
        longest = max(clip.samples for clip in clips)
        issued = []
        for index, clip in enumerate(clips):
            issued.append(secrets.token_urlsafe(16))
            self._behind[issued[-1]] = Served(rater, position, index, clip, longest)
        while len(self._behind) > MAX_ADDRESSES:
            self._behind.popitem(last=False)
        return issued

    def take(self, rater: str, address: str) -> Served | None:
        """What an address stands for, once; None for an unknown, a used or somebody else's one."""
        served = self._behind.get(address)
        if served is None or served.rater != rater:
            return None
        return self._behind.pop(address)


def blind_wav(samples: Float32, padded_samples: int, rate_hz: int) -> bytes:
    """A WAV file of the padded clip under fresh noise of one least bit; 44 bytes and 2 a sample."""
    padded = np.zeros(padded_samples, np.float32)
    padded[: len(samples)] = samples
    rng = np.random.default_rng()
    dither = rng.random(padded_samples, np.float32) - rng.random(padded_samples, np.float32)
    pcm = to_pcm(padded + dither * np.float32(1 / 32767))
    return wav_header(rate_hz, len(pcm)) + pcm
