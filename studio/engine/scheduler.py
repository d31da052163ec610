"""Which rows token2wav steps next, and how far. Pure: no torch, no clock of its own, no I/O.

Every ready row has a slack: the seconds of sound its listener still has. A row that gave no sound yet counts
as one with little slack, which falls while it waits. The least slack goes first, so newcomers go before rows
with sound in hand, a row about to run dry goes before newcomers, and nobody waits for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from studio.engine.token_hop import USUAL_HOPS, HopSchedule, token_hop
from studio.protocols import RowStep
from studio.speech import BLOCK_TOKENS, LOOKAHEAD_TOKENS, TOKEN_RATE_HZ

NEWCOMER_SLACK_S = 0.3
"""Less than this in hand and a started row goes before a newcomer: about one step on a CPU."""
COMFORTABLE_SLACK_S = 2.0
"""With so much in hand a row does not lengthen the step in which a newcomer makes its first sound."""


DRY_CAP_TOKENS = 2 * BLOCK_TOKENS
"""The most for a row that has run dry: on a CPU two blocks cost a fifth less a token than one, four no less."""


@dataclass(frozen=True, slots=True)
class VoicedStep:
    """A token2wav step that was made, by the engine's clock. tokens: that it waited for, with those only looked at.

    rows: stepped together, of all of which flow_s, vocoder_s and worker_s are told: see protocols.StepResult.
    """

    began_s: float
    ended_s: float
    tokens: int
    rows: int
    flow_s: float
    vocoder_s: float
    worker_s: float = 0.0


@dataclass(slots=True)
class Playback:
    """What one request's listener has; owned by the request, shared by its rows in turn, read here."""

    first_chunk_s: float | None = None
    audio_s: float = 0.0
    voiced_tokens: int = 0
    paused: bool = False
    first_step: VoicedStep | None = None

    def slack_s(self, now_s: float) -> float:
        """Seconds of sound handed out and not yet played, if playing began with the first chunk."""
        return self.audio_s - (now_s - (now_s if self.first_chunk_s is None else self.first_chunk_s))


@dataclass(slots=True)
class _Row:
    row_id: str
    block_tokens: int
    since_s: float
    playback: Playback
    tokens: list[int] = field(default_factory=list)
    final: bool = False

    def slack_s(self, now_s: float) -> float:
        if self.playback.first_chunk_s is None:
            return NEWCOMER_SLACK_S - (now_s - self.since_s)
        return self.playback.slack_s(now_s)

    def patience_s(self, now_s: float) -> float:
        """Seconds that its step may be put off: what is in hand must last while the step is made, too."""
        return self.slack_s(now_s) - (NEWCOMER_SLACK_S if self.playback.first_chunk_s is not None else 0.0)

    def hop(self, cap_tokens: int) -> tuple[int, bool]:
        return token_hop(len(self.tokens), self.block_tokens, cap_tokens, self.final)

    def ready(self, hops: HopSchedule) -> bool:
        if self.playback.paused or self.hop(BLOCK_TOKENS) == (0, False):
            return False
        if self.final or self.playback.first_chunk_s is not None:
            return True
        return len(self.tokens) >= hops.first_sound_tokens(self.block_tokens)


class RowScheduler:
    """The rows open in token2wav, one for each request being voiced. Implements Token2WavScheduler."""

    def __init__(self, max_batch_rows: int, hops: HopSchedule = USUAL_HOPS) -> None:
        self.max_batch_rows = max_batch_rows
        self.hops = hops
        self._rows: dict[str, _Row] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def admit(
        self, row_id: str, first_block_tokens: int, arrived_s: float, playback: Playback | None = None
    ) -> None:
        """A row was opened; playback is its request's own."""
        self._rows[row_id] = _Row(row_id, first_block_tokens, arrived_s, playback or Playback())

    def offer(self, row_id: str, tokens: Sequence[int], final: bool) -> None:
        """More speech tokens of a row; final: the last ones. A row that was dropped is ignored."""
        if row := self._rows.get(row_id):
            row.tokens.extend(tokens)
            row.final = row.final or final

    def drop(self, row_id: str) -> None:
        """Forget a row; unknown ids are ignored."""
        self._rows.pop(row_id, None)

    def next_batch(self, now_s: float) -> list[RowStep]:
        """Take the tokens of the rows to step now, least slack first; empty if none is ready.

        A row is ready with one whole block (a newcomer with its first hop) and 3 tokens of look-ahead, or with its
        final tokens; its final step removes it. With a newcomer in it every row takes the first hop and comfortable
        rows wait.
        """
        ready = sorted(self._ready(), key=lambda row: row.slack_s(now_s))
        batch = ready[: self.max_batch_rows]
        newcomer = any(row.playback.first_chunk_s is None for row in batch)
        if newcomer:
            batch = [row for row in batch if row.slack_s(now_s) < COMFORTABLE_SLACK_S]
        first = self.hops.first_tokens
        return [self._take(row, first if newcomer else self._cap_tokens(row, now_s)) for row in batch]

    def may_wait(self, now_s: float, wait_s: float) -> bool:
        """Whether a step may wait for more rows to join it: there are more, and no ready one would run dry by it."""
        ready = self._ready()
        going = sum(not row.playback.paused for row in self._rows.values())
        there_are_more = len(ready) < min(self.max_batch_rows, going)
        return bool(ready) and there_are_more and min(row.patience_s(now_s) for row in ready) > wait_s

    def _ready(self) -> list[_Row]:
        return [row for row in self._rows.values() if row.ready(self.hops)]

    def _take(self, row: _Row, cap: int) -> RowStep:
        count, final = row.hop(cap)
        taken, row.tokens = row.tokens[:count], row.tokens[count:]
        lookahead = [] if final else row.tokens[:LOOKAHEAD_TOKENS]
        row.block_tokens = BLOCK_TOKENS
        row.playback.voiced_tokens += count
        if final:
            del self._rows[row.row_id]
        return RowStep(row.row_id, np.asarray(taken, np.int32), np.asarray(lookahead, np.int32), final)

    def _cap_tokens(self, row: _Row, now_s: float) -> int:
        """Grows with what was voiced, but to no more sound than is in hand: it must last while the step is made."""
        slack_s = row.slack_s(now_s)
        most = DRY_CAP_TOKENS if slack_s <= 0 else max(BLOCK_TOKENS, int(slack_s * TOKEN_RATE_HZ))
        return min(self.hops.cap_tokens(row.playback.voiced_tokens), most)
