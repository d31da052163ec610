"""Speech made faster or slower while it streams, at its own pitch. Knows no requests and does not resample.

Overlapping frames are taken from the input at the new pace, each moved by at most SEARCH_SAMPLES to where it continues
the one before best (waveform similarity overlap-add).
"""

from __future__ import annotations

import math

import numpy as np

from studio.speech import Float32

HOP_SAMPLES = 360
"""15 ms of output for each frame; a frame is two hops, long enough for two periods of a low voice."""
FRAME_SAMPLES = 2 * HOP_SAMPLES
SEARCH_SAMPLES = 240
"""One period of a voice of 100 Hz, to either side."""
_RISE = (0.5 - 0.5 * np.cos(np.pi * (np.arange(HOP_SAMPLES) + 0.5) / HOP_SAMPLES)).astype(np.float32)
_FALL = (1.0 - _RISE).astype(np.float32)


def stretched_samples(samples: int, speed: float) -> int:
    """How many samples come out of so many, whatever the chunks they came in."""
    return int(samples / speed + 0.5)


class TimeStretch:
    """One stream's state: `push` sound as it comes, `finish` after the last; joined, what they give is all of it.

    Sound is 24 kHz; some 30 ms of it are held back until `finish`. What comes out does not depend on how the sound was
    cut into chunks, and at speed 1 it is what went in.
    """

    def __init__(self, speed: float) -> None:
        """speed: 2.0 makes speech half as long; any value above 0, though beyond 0.5 to 2 it is heard."""
        if not speed > 0:
            raise ValueError(f"speed {speed} is not above 0")
        self._speed = speed
        self._input = np.zeros(0, np.float32)
        self._dropped = 0  # input samples before self._input
        self._frames = 0
        self._next = 0  # where the last frame goes on in the input

    def push(self, samples: Float32) -> Float32:
        """float32 [n] in, as much as is certain out."""
        if self._speed == 1.0:
            return samples
        self._input = np.concatenate((self._input, samples))
        return self._take(self._dropped + len(self._input))

    def finish(self) -> Float32:
        """The rest; over the whole stream `stretched_samples` of what went in."""
        if self._speed == 1.0:
            return np.zeros(0, np.float32)
        length = self._dropped + len(self._input)
        wanted = stretched_samples(length, self._speed) - self._frames * HOP_SAMPLES
        beyond = SEARCH_SAMPLES + 2 * FRAME_SAMPLES + int(HOP_SAMPLES * self._speed)
        self._input = np.concatenate((self._input, np.zeros(beyond, np.float32)))
        rest = self._take(length + beyond)[:wanted]
        return np.pad(rest, (0, wanted - len(rest)))

    def _take(self, available: int) -> Float32:
        """Frames as long as the input reaches; available: input samples since the start of the stream."""
        hops = []
        while self._needed() <= available:
            goes_on = self._at(self._next, FRAME_SAMPLES)
            place = self._best_place(self._wanted(), goes_on)
            hops.append(goes_on[:HOP_SAMPLES] * _FALL + self._at(place, HOP_SAMPLES) * _RISE)
            self._next = place + HOP_SAMPLES
            self._frames += 1
            self._forget()
        return np.concatenate(hops) if hops else np.zeros(0, np.float32)

    def _needed(self) -> int:
        """Input that the next frame waits for: what it looks at, and what pays for its own length."""
        reach = max(self._next, self._wanted() + SEARCH_SAMPLES) + FRAME_SAMPLES
        return max(reach, math.ceil((self._frames + 1) * HOP_SAMPLES * self._speed))

    def _wanted(self) -> int:
        """Where the next frame is in the input, but for the search."""
        return round(self._frames * HOP_SAMPLES * self._speed)

    def _at(self, start: int, count: int) -> Float32:
        return self._input[start - self._dropped : start - self._dropped + count]

    def _best_place(self, wanted: int, goes_on: Float32) -> int:
        """Where within reach of `wanted` the input is most like how the last frame goes on."""
        first = max(0, wanted - SEARCH_SAMPLES)
        reach = self._at(first, wanted - first + SEARCH_SAMPLES + FRAME_SAMPLES)
        likeness = np.correlate(reach, goes_on, "valid")
        power = np.concatenate(([0.0], np.cumsum(np.square(reach, dtype=np.float64))))
        loudness = np.sqrt(np.maximum(power[FRAME_SAMPLES:] - power[:-FRAME_SAMPLES], 1e-9))
        return first + int(np.argmax(likeness / loudness))

    def _forget(self) -> None:
        """Drop input that no later frame can reach."""
        needed = min(self._next, max(0, self._wanted() - SEARCH_SAMPLES))
        self._input = self._input[needed - self._dropped :]
        self._dropped = needed
