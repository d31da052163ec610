"""How fast the studio makes sound, measured over recent requests, and what a player must hold before it starts."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from studio.engine.stats import RequestSummary
from studio.speech import BLOCK_TOKENS, LOOKAHEAD_TOKENS, SAMPLE_RATE_HZ, TOKEN_RATE_HZ

EWMA_WEIGHT = 0.3
LEAST_PREBUFFER_S = 0.1
LEAST_STEP_S = 0.001
FIRST_GUESS_RATE = 1.0
BLOCK_S = BLOCK_TOKENS / TOKEN_RATE_HZ
HELD_BACK_S = 9480 / SAMPLE_RATE_HZ
"""Sound that the vocoder of CosyVoice2 keeps until it has seen what follows."""
FIRST_GUESS_S_PER_ID = 0.1
"""Seconds of speech for one text id before any request was measured; phonemes are about so long."""
FIRST_GUESS_FIRST_SOUND_S = 1.5
"""Seconds from a place to the first sound before any was measured."""
LEAST_PLAUSIBLE, MOST_PLAUSIBLE = 0.4, 2.5
PLAUSIBLE_SLACK_S = 2.0
"""Speech of a segment is unlikely to last less or more than these times what such texts last, and so much beyond."""
RECENT_REQUESTS = 10
"""Requests whose worst unevenness a player is protected from."""
UNPROVEN_S = 0.9
"""Unevenness of a request that was not measured: the player waits for the second block, however short the first was."""


def least_prebuffer_s(arrivals: Sequence[tuple[float, float]], later_s: float = 0.0) -> float:
    """The least sound to hold before the start with which this play would have had no gap; 0 if it needs none.

    Args:    arrivals: time and seconds of sound of each chunk, in order. later_s: how much later than that each may
             have reached the player; the first one too, so only the others count.
    """
    begin_s, before_s = 0.0, 0.0
    for number, (at_s, audio_s) in enumerate(arrivals):
        begin_s = max(begin_s, at_s - before_s + (later_s if number else 0.0))
        before_s += audio_s
    # A player waits for an amount, not for a moment: for a little more than what comes too early to begin with.
    too_early_s = sum(audio_s for at_s, audio_s in arrivals if at_s < begin_s)
    return too_early_s and too_early_s + LEAST_STEP_S


def first_chunk_s(first_sound_tokens: int, speed: float) -> float:
    """Sound of the first step where it is not there yet. first_sound_tokens: that it waits for, look-ahead included."""
    return max(0.0, (first_sound_tokens - LOOKAHEAD_TOKENS) / TOKEN_RATE_HZ - HELD_BACK_S) / speed


class Rates:
    """Moving averages over finished requests. Owner: the engine's event loop."""

    def __init__(self) -> None:
        self._best: float | None = None
        self._together: float | None = None
        self._s_per_id: float | None = None
        self._first_sound_s: float | None = None
        self._eta_error_s: float | None = None
        self._uneven_s: deque[float] = deque(maxlen=RECENT_REQUESTS)
        self.worker_started()

    def worker_started(self) -> None:
        """Trust no evenness until it is shown again: a new process is slower for its first requests."""
        self._uneven_s.extend([UNPROVEN_S] * RECENT_REQUESTS)

    def request_ended(self, summary: RequestSummary, text_ids: int, running: float) -> None:
        """Learn from a request that ended well. running: requests voiced at once meanwhile, on average."""
        if summary.reason != "stop" or not text_ids:
            return
        if summary.ttfa_s is not None:
            self._first_sound_s = _moved(self._first_sound_s, summary.ttfa_s - summary.queue_s)
            self._eta_error_s = _moved(self._eta_error_s, abs(summary.ttfa_s - summary.promised_s))
        self._s_per_id = _moved(self._s_per_id, summary.tokens / TOKEN_RATE_HZ / text_ids)
        if summary.rate is not None:
            made = summary.rate * summary.speed
            self._best = max(made, _moved(self._best, made))
            self._together = _moved(self._together, made * max(1.0, running))
            self._uneven_s.append(summary.needed_s - max(0.0, 1.0 - summary.rate) * summary.audio_s)

    def measured_rate(self, running: int = 1) -> float | None:
        """Audio seconds at speed 1 per wall second that each of so many requests can expect; None before the first.

        What requests make together is shared evenly, but none gets more than the best one got lately.
        """
        if self._best is None or self._together is None:
            return None
        return min(self._best, self._together / max(1, running))

    def expected_rate(self, running: int) -> float:
        """As `measured_rate`, with a guess before the first request."""
        return self.measured_rate(running) or FIRST_GUESS_RATE

    def expected_audio_s(self, text_ids: int) -> float:
        """Seconds that a text of so many ids will last at speed 1, without the pauses that it asks for."""
        return text_ids * (FIRST_GUESS_S_PER_ID if self._s_per_id is None else self._s_per_id)

    @property
    def first_sound_s(self) -> float:
        """Seconds from a place to the first sound."""
        return FIRST_GUESS_FIRST_SOUND_S if self._first_sound_s is None else self._first_sound_s

    @property
    def eta_error_s(self) -> float | None:
        """By how many seconds the first sound came earlier or later than promised, lately; None before any came."""
        return self._eta_error_s

    def is_plausible(self, text_ids: int, audio_s: float) -> bool:
        """Whether speech of such a length may be all of a text and no more; True while nothing was measured."""
        if self._s_per_id is None:
            return True
        usual_s = text_ids * self._s_per_id
        return LEAST_PLAUSIBLE * usual_s <= audio_s <= MOST_PLAUSIBLE * usual_s + PLAUSIBLE_SLACK_S

    def prebuffer_s(self, text_ids: int, running: int, speed: float, first_chunk_s: float) -> float:
        """Seconds of sound to hold before playing so that the player does not run dry.

        At rate r the sound still to be made when playing begins must arrive while all of it is played. Below 1
        that asks for (1 - r) of the whole. One step makes one block while little is in hand, which takes as long
        whatever the speed that it is played at; half as much again is kept for a newcomer's step in between, less what
        the first chunk itself holds.
        No less than what the least even of the recent requests needed beyond its rate. A first chunk that is over
        before the next one can be made is not begun with: the player waits for more than it.
        """
        made = self.expected_rate(running)
        rate = made / speed
        whole_s = self.expected_audio_s(text_ids) / speed
        next_s = BLOCK_S / max(made, 0.2)
        uneven_s = max(0.0, 1.5 * next_s - first_chunk_s, *self._uneven_s)
        held_s = LEAST_PREBUFFER_S + min(whole_s, max(0.0, 1.0 - rate) * whole_s + uneven_s)
        return held_s if next_s <= first_chunk_s else max(held_s, first_chunk_s + LEAST_STEP_S)


def _moved(average: float | None, value: float) -> float:
    return value if average is None else (1 - EWMA_WEIGHT) * average + EWMA_WEIGHT * value
