"""How many tokens a row voices next, as a function of what it has voiced and what waits. Pure arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

from studio.speech import BLOCK_TOKENS, LOOKAHEAD_TOKENS


@dataclass(frozen=True, slots=True)
class HopSchedule:
    """How long the steps of a request may be: at first, how much longer each next one, and at most.

    A small first step makes the first sound early; later steps may be larger, for each gives the listener as much sound
    as the next may take, and a large step costs less a token. Whole blocks, so that hops never change the sound.
    """

    first_tokens: int = BLOCK_TOKENS
    growth: float = 2.0
    most_tokens: int = 4 * BLOCK_TOKENS

    def first_sound_tokens(self, block_tokens: int) -> int:
        """Tokens that a newcomer waits for, look-ahead included. block_tokens: what completes its first block."""
        return block_tokens + self.first_tokens - BLOCK_TOKENS + LOOKAHEAD_TOKENS

    def cap_tokens(self, voiced_tokens: int) -> int:
        """The most tokens of the next step; 25, 50, then 100 as usual. voiced_tokens: of this request only."""
        cap = passed = self.first_tokens
        while self.growth > 1 and cap < self.most_tokens and voiced_tokens >= passed:
            longer = max(cap + BLOCK_TOKENS, int(cap * self.growth) // BLOCK_TOKENS * BLOCK_TOKENS)
            cap = min(self.most_tokens, longer)
            passed += cap
        return cap


USUAL_HOPS = HopSchedule()


def token_hop(waiting_tokens: int, block_tokens: int, cap_tokens: int, final: bool) -> tuple[int, bool]:
    """Tokens to take now, and whether they end the row. (0, False) means: wait for more.

    Args:    block_tokens: what completes the next block: 25, or what `open` said for a row's first.
             cap_tokens: the most to take, rounded down to whole blocks but never below one.
             final: no more tokens will come.
    """
    most = block_tokens + max(0, cap_tokens - block_tokens) // BLOCK_TOKENS * BLOCK_TOKENS
    if final and waiting_tokens < most + LOOKAHEAD_TOKENS:
        return waiting_tokens, True
    whole = waiting_tokens - LOOKAHEAD_TOKENS - block_tokens
    if whole < 0:
        return 0, False
    return min(block_tokens + whole // BLOCK_TOKENS * BLOCK_TOKENS, most), False
