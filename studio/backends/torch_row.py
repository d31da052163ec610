"""One row of token2wav on torch: its states, and how it is computed by itself where memory is short.

Everything here is of one row; batches of rows are `torch_rows.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from studio.backends.torch_voices import PROMPT_TAIL_TOKENS, prompt_tensors
from studio.models.flow import Flow, FlowState
from studio.models.flow.state import align_prompt, first_block_tokens
from studio.models.hift.causal import CausalState
from studio.models.hift.streaming import HiftState
from studio.protocols import RowStep
from studio.speech import BLOCK_TOKENS, VoicePrompt


@dataclass(slots=True)
class TorchRow:
    """One segment's states. flow: None for a row that is computed from its first token at each step.

    frames: mel frames given so far. small_hops: it is computed by itself, a block at a time.
    """

    voice: VoicePrompt
    flow: FlowState | None
    hift: HiftState | CausalState
    frames: int = 0
    small_hops: bool = False
    _spoken: list[int] = field(default_factory=list)
    _ahead_tokens: int = 0  # that the flow was shown already and the engine will give again
    _fed: int = 0  # of the present step's new tokens: those that the flow was given in a try that did not end well
    _made: list[Tensor] = field(default_factory=list)  # and their mels

    @property
    def joint(self) -> bool:
        """Whether it may be computed in one batch with others."""
        return self.flow is not None and not self.small_hops

    @property
    def bytes(self) -> int:
        flow = self.flow  # which may go meanwhile: whoever looks at figures does so from another thread
        return self.hift.bytes() + (0 if flow is None else flow.bytes)

    @property
    def first_block_tokens(self) -> int:
        if self.flow is not None:
            return self.flow.first_block_tokens
        return first_block_tokens(len(self.voice.speech_tokens), PROMPT_TAIL_TOKENS)

    def new_tokens(self, step: RowStep) -> Tensor:
        """What the flow has not seen yet: the step's tokens and look-ahead, less the look-ahead of last time."""
        given = np.concatenate([step.tokens, step.lookahead])[self._ahead_tokens :]
        return torch.from_numpy(given.astype(np.int64))

    def took(self, step: RowStep) -> None:
        """The flow is done with a step."""
        self._spoken.extend(step.tokens.tolist())
        self._ahead_tokens = len(step.lookahead)
        self._fed, self._made = 0, []

    def solve_alone(self, flow: Flow, step: RowStep) -> Tensor:
        """New mel [80, F]: block by block, or without any cache. What a failed try has made is not made again."""
        if self.flow is None:
            self._keep(self._whole(flow, step)[:, self.frames :], 0)
        else:
            pieces = self.new_tokens(step)[self._fed :].split(BLOCK_TOKENS)
            for number, piece in enumerate(pieces, 1):
                ends = step.final and number == len(pieces)
                self._keep(flow.step([self.flow], [piece], [ends])[0], len(piece))
        return torch.cat(self._made, dim=1)

    def _keep(self, mel: Tensor, tokens: int) -> None:
        self._made.append(mel)
        self._fed += tokens
        self.frames += mel.shape[1]

    def _whole(self, flow: Flow, step: RowStep) -> Tensor:
        """The mel of all tokens so far, solved at once under the mask of streaming: the same as with a cache."""
        prompt_tokens, prompt_mel, embedding = prompt_tensors(flow, self.voice)
        prompt_tokens, prompt_mel = align_prompt(prompt_tokens, prompt_mel, PROMPT_TAIL_TOKENS)
        spoken = np.asarray(self._spoken, np.int64)
        tokens = torch.from_numpy(np.concatenate([spoken, step.tokens, step.lookahead]).astype(np.int64))
        if not len(tokens):
            return prompt_mel.new_empty(prompt_mel.shape[1], 0)
        return flow.synthesize(
            tokens.to(flow.device), prompt_tokens, prompt_mel, embedding, streaming=True, final=step.final
        )
