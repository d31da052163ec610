"""Fast, balanced or best: what each spends on a request, and the rule that chooses for those who do not.

The size of a step never changes the sound here (docs/decisions/0002), so quality is not bought with large steps but
with speech that is judged before it is heard, and made again where it is no good.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from studio.speech import Quality

BUSY_RATIO = 0.5
"""With this share of the places taken, or anybody waiting, the rule chooses fast."""
HELD_S = 0.5
"""The rule chooses best when judging a text before it is heard costs its listener no more than this."""


@dataclass(frozen=True, slots=True)
class Effort:
    """What a quality stands for."""

    retakes: int
    """How often a segment is made again that gave no speech, no end, or (if judged) an unlikely length."""
    judged: bool
    """A segment is sound only after all of its tokens were made and judged; else as soon as they make any."""
    urgent: bool
    """It goes before the same client's other waiting requests; never before those of others."""
    holds: bool
    """The player holds what the measured speed asks for; else, where asked for, it starts with the first sound and may
    have gaps."""


EFFORTS: dict[Quality, Effort] = {
    "fast": Effort(retakes=0, judged=False, urgent=True, holds=False),
    "balanced": Effort(retakes=1, judged=False, urgent=False, holds=True),
    "best": Effort(retakes=2, judged=True, urgent=False, holds=True),
}


@dataclass(frozen=True, slots=True)
class Choice:
    """What is done for a request, and why: a key of the catalogue and its values."""

    quality: Quality
    reason: str
    seconds: float = 0.0
    others: int = 0

    @property
    def holds(self) -> bool:
        """Whether the player is to wait until it can go on: always where nobody has asked to hear it at once."""
        return EFFORTS[self.quality].holds or self.reason != "quality.asked"


def documented(first_chunk_tokens: int) -> dict[str, dict[str, float]]:
    """What each quality stands for, as clients are told; of auto, when its rule chooses another than balanced.

    first_chunk_tokens: that the first sound waits for, look-ahead included, whatever the quality.
    """
    told: dict[str, dict[str, float]] = {
        name: {"first_chunk_tokens": first_chunk_tokens, **asdict(effort)} for name, effort in EFFORTS.items()
    }
    return {"auto": {"fast_from_places_ratio": BUSY_RATIO, "best_up_to_s": HELD_S, "holds": True}, **told}


def choose(running: int, waiting: int, places: int, expected_s: float, rate: float | None) -> Choice:
    """The automatic rule, by load and length.

    Args:    running, waiting: other requests. expected_s: speech that the text will make. rate: audio seconds per
             wall second that it can expect; None before any was measured.
    """
    if waiting or running >= max(1, places * BUSY_RATIO):
        return Choice("fast", "quality.busy", others=running + waiting)
    if rate is not None and expected_s / rate <= HELD_S:
        return Choice("best", "quality.short", expected_s / rate)
    if rate is None:
        return Choice("balanced", "quality.unmeasured")
    return Choice("balanced", "quality.usual", expected_s / rate)
