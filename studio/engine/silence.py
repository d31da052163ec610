"""Long silences of an LM made shorter before they are voiced. Knows tokens only."""

from __future__ import annotations

from collections.abc import Collection, Sequence

MOST_IN_A_ROW = 5
"""0.2 s; the LM that made them still sees all of them."""


class Silences:
    """One row's silent tokens, counted as they come. silent: none for models whose silences are left alone."""

    def __init__(self, silent: Collection[int]) -> None:
        self._silent = silent
        self._in_a_row = 0

    def shortened(self, tokens: Sequence[int]) -> Sequence[int]:
        """The tokens without those that are silent and come after `MOST_IN_A_ROW` others that are."""
        if not self._silent:
            return tokens
        kept = []
        for token in tokens:
            self._in_a_row = self._in_a_row + 1 if token in self._silent else 0
            if self._in_a_row <= MOST_IN_A_ROW:
                kept.append(token)
        return kept
