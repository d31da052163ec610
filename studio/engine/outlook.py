"""What can be promised of a request: its place in line, when its first sound comes, and what is spent on it.

Promises follow from the requests before it, run down at the measured speed; how wrong such promises were lately is told
with them.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from studio.engine.admission import Admission
from studio.engine.quality import Choice, choose
from studio.engine.rates import Rates
from studio.engine.utterance import Utterance, pause_before_s
from studio.speech import TOKEN_RATE_HZ, Segment, SynthesisRequest

GUESSED_TEXT_IDS = 60
"""Ids of a text that is still being written, for its quality and the player's start: two sentences."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a request stands that has made no sound yet."""

    position: int
    """Requests that get a place before it."""
    ahead_tokens: int
    """Speech tokens that will be made before it gets its place."""
    eta_s: float
    """Seconds to its first sound."""
    eta_error_s: float | None
    """By how much such promises were wrong lately; None while none was kept."""


class Outlook:
    """Reads the engine's queue, rates and requests; changes none of them. Owner: the engine's event loop."""

    def __init__(self, admission: Admission, rates: Rates, utterances: Mapping[str, Utterance]) -> None:
        self._admission = admission
        self._rates = rates
        self._utterances = utterances

    def choice(self, request: SynthesisRequest, text_ids: int) -> Choice:
        """What the request asks for, else what load and length suggest; its own ticket is in the queue already."""
        if request.quality is not None:
            return Choice(request.quality, "quality.asked")
        running, waiting = self._admission.running, self._admission.waiting
        own_waits = int(waiting > 0)
        others = running - 1 + own_waits
        return choose(
            others,
            waiting - own_waits,
            self._admission.places,
            self._rates.expected_audio_s(text_ids),
            self._rates.measured_rate(others + 1),
        )

    def lasts_s(self, segments: Sequence[Segment], speed: float) -> float:
        """Seconds that segments will last, their pauses with them."""
        ids = sum(len(segment.token_ids) for segment in segments)
        pauses_s = sum(pause_before_s(s, number) + s.pause_after_s for number, s in enumerate(segments))
        return pauses_s + self._rates.expected_audio_s(ids) / speed

    def progress(self, request_id: str) -> Progress | None:
        """None once it has made sound, or has ended."""
        utterance = self._utterances.get(request_id)
        if utterance is None or utterance.times.has_sound:
            return None
        ahead = self._ahead_s(utterance)
        tokens = round(sum(ahead) * TOKEN_RATE_HZ)
        return Progress(len(ahead), tokens, self.eta_s(utterance), self._rates.eta_error_s)

    def eta_s(self, utterance: Utterance) -> float:
        """Seconds to a request's first sound."""
        if utterance.ticket.granted.is_set():
            return self._rates.first_sound_s
        running = [self._left_s(u) for u in self._utterances.values() if u.ticket.granted.is_set()]
        waited_s = wait_s(
            running, self._ahead_s(utterance), self._admission.places, self._rates.expected_rate
        )
        return waited_s + self._rates.first_sound_s

    def _ahead_s(self, utterance: Utterance) -> list[float]:
        ahead = utterance.ticket.ahead()
        # A request that is being cut into segments has its ticket already, but no utterance.
        return [self._left_s(self._utterances[i]) if i in self._utterances else 0.0 for i in ahead]

    def _left_s(self, utterance: Utterance) -> float:
        """Speech still to be made of a request."""
        return max(0.0, self._rates.expected_audio_s(utterance.text_ids) - utterance.times.tokens / TOKEN_RATE_HZ)


def wait_s(
    running_s: Sequence[float], ahead_s: Sequence[float], places: int, rate: Callable[[int], float]
) -> float:
    """Seconds until a place is free for who comes after all of these.

    Args:    running_s: speech still to be made of each request that runs; ahead_s: of those that wait before it, in
             their order. rate: audio seconds per wall second that each of so many running requests gets.
    """
    left, line, now_s = sorted(running_s), deque(ahead_s), 0.0
    while len(left) + len(line) >= places:
        while line and len(left) < places:
            insort(left, line.popleft())
        first_s = left.pop(0)
        now_s += first_s / rate(len(left) + 1)
        left = [other_s - first_s for other_s in left]
    return now_s
