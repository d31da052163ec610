"""The part of a flow that belongs to a voice: its prompt's whole blocks, computed once, a few at a time.

It opens no streams and keeps no voices; who prepares several prompts, and in what order, is the caller's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from studio.models.flow import stream
from studio.models.flow.sizes import BLOCK_TOKENS, FRAMES_PER_TOKEN, LOOKAHEAD_TOKENS
from studio.models.flow.state import (
    FlowState,
    FrozenRate,
    PromptFlowCache,
    Rate,
    align_prompt,
    empty_rates,
)

if TYPE_CHECKING:
    from studio.models.flow.flow import Flow


class PromptPreparation:
    """A voice prompt on its way into a `PromptFlowCache`; made by `Flow.begin_prompt`.

    The cache does not depend on how many blocks each turn takes. Owner: one thread.
    """

    def __init__(
        self,
        flow: Flow,
        tokens: Tensor,
        mel: Tensor,
        embedding: Tensor,
        tail_tokens: int,
        storage: torch.dtype,
        guidance: float,
    ) -> None:
        if len(mel) != FRAMES_PER_TOKEN * len(tokens):
            raise ValueError(f"prompt mel has {len(mel)} frames for {len(tokens)} tokens, not twice as many")
        tokens, mel = align_prompt(tokens, mel, tail_tokens)
        self._flow = flow
        self._speaker = flow.speaker(embedding.to(flow.device))
        empty = PromptFlowCache(
            self._speaker,
            tokens[:0].cpu().long(),
            mel.to(flow.device, torch.float32),
            empty_rates(flow, storage),
            guidance,
        )
        self._state = FlowState(empty)
        self._waiting = tokens
        # once for the whole prompt: a buffer that grew with it would be copied at each doubling
        whole = max(0, len(tokens) - LOOKAHEAD_TOKENS) // BLOCK_TOKENS * BLOCK_TOKENS
        for rate, per_token in zip(self._state.rates, (1, FRAMES_PER_TOKEN, FRAMES_PER_TOKEN), strict=True):
            rate.history.reserve(whole * per_token)

    @torch.inference_mode()
    def advance(self, blocks: int | None = None) -> bool:
        """Compute so many blocks more, or all that are left; gives whether the prompt is whole now."""
        room = len(self._waiting) if blocks is None else blocks * BLOCK_TOKENS
        if not self._state.frames:
            room += LOOKAHEAD_TOKENS
        stream.step(self._flow, [self._state], [self._waiting[:room]], [False])
        self._waiting = self._waiting[room:]  # only now: a step that fails has taken nothing
        return not len(self._waiting)

    def cache(self) -> PromptFlowCache:
        """What streams of this voice share; only once `advance` has said that it is whole."""
        state = self._state
        frozen = (_frozen(state.token_rate), _frozen(state.frame_rate), _frozen(state.solve_rate))
        return PromptFlowCache(self._speaker, state.pending_tokens, state.pending_mel, frozen, state.guidance)


def _frozen(rate: Rate) -> FrozenRate:
    return FrozenRate(rate.history.shape, rate.history.frozen(), tuple(rate.edges))
