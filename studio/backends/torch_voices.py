"""The voices that flow rows were opened with last: what their prompts leave in the flow, ready or being prepared.

It computes in the caller's thread, as many blocks as the caller says; rows are not its business.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

import torch

from studio.models.flow import Flow, PromptFlowCache, PromptPreparation
from studio.speech import LOOKAHEAD_TOKENS, VoicePrompt

PROMPT_TAIL_TOKENS = LOOKAHEAD_TOKENS
"""Prompt tokens left behind the prompt's last whole block. With the look-ahead's 3 that block is cached with the
voice; with fewer it would wait for the first spoken tokens and be computed again in every row."""

T = TypeVar("T")


class TorchVoices:
    """Prompts in the flow, by voice; those not used for longest are forgotten. Owner: token2wav's one thread."""

    def __init__(self, flow: Flow, most: int) -> None:
        self._flow = flow
        self._most = most
        self._ready: OrderedDict[str, PromptFlowCache] = OrderedDict()
        self._begun: dict[str, PromptPreparation] = {}

    def __len__(self) -> int:
        return len(self._ready)

    @property
    def bytes(self) -> int:
        return sum(prompt.bytes for prompt in self._ready.values())

    def prepare(self, voice: VoicePrompt, blocks: int | None = None) -> bool:
        """Compute so many blocks of a voice's prompt, or all; gives whether it is ready now."""
        if voice.key in self._ready:
            return True
        preparation = self._begun.get(voice.key) or self._begin(voice)
        # Never given up for another one: with more voices begun than kept, none would ever be done.
        self._begun[voice.key] = preparation
        if not preparation.advance(blocks):
            return False
        del self._begun[voice.key]
        _keep(self._ready, voice.key, preparation.cache(), self._most)
        return True

    def get(self, voice: VoicePrompt) -> PromptFlowCache:
        """The voice's prompt; what is still missing of it is computed now."""
        self.prepare(voice)
        self._ready.move_to_end(voice.key)
        return self._ready[voice.key]

    def forget(self, key: str) -> None:
        self._ready.pop(key, None)

    def _begin(self, voice: VoicePrompt) -> PromptPreparation:
        """Raises ValueError for a prompt of other models: on a GPU, its tokens would end the whole worker."""
        device, known = self._flow.device, self._flow.input_embedding.num_embeddings
        if len(voice.speech_tokens) and voice.speech_tokens.max() >= known:
            raise ValueError(f"speech token {voice.speech_tokens.max()} is not below {known}")
        return self._flow.begin_prompt(
            torch.from_numpy(voice.speech_tokens.astype("int64")).to(device),
            torch.from_numpy(voice.mel).to(device),
            torch.from_numpy(voice.speaker_embedding).to(device),
            tail_tokens=PROMPT_TAIL_TOKENS,
        )


def _keep(kept: OrderedDict[str, T], key: str, value: T, most: int) -> None:
    """Put a value last, and let the first ones go that are too many."""
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > most:
        kept.popitem(last=False)
