"""How many tokens a row voices next, as a function of what it has voiced and what waits. Pure arithmetic."""

from __future__ import annotations

from studio.speech import BLOCK_TOKENS, LOOKAHEAD_TOKENS

FIRST_CAP_TOKENS = BLOCK_TOKENS
MOST_CAP_TOKENS = 4 * BLOCK_TOKENS


def hop_cap_tokens(voiced_tokens: int) -> int:
    """The most tokens of one step: 25, then 50, then 100.

    A small first step makes the first sound early; later steps may be larger, for each gives the listener as
    much sound as the next may take, and a large step costs less a token. voiced_tokens: of this request only.
    """
    cap = FIRST_CAP_TOKENS
    while cap < MOST_CAP_TOKENS and voiced_tokens >= 2 * cap - FIRST_CAP_TOKENS:
        cap *= 2
    return cap


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
