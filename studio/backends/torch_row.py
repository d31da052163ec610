"""One row of token2wav on torch: its states, and how it is computed by itself where memory is short.

Everything here is of one row; batches of rows are `torch_rows.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from studio.backends.torch_seams import StreamFlow
from studio.backends.torch_voices import FlowVoice, prompt_tensors
from studio.models.flow import FlowState
from studio.models.flow.paged import PagedState
from studio.models.flow.state import align_prompt, first_block_tokens
from studio.models.hift.causal import CausalState
from studio.models.hift.streaming import HiftState
from studio.models.hift.window import WindowState
from studio.protocols import RowStep
from studio.speech import BLOCK_TOKENS

Tokens = NDArray[np.int64]


@dataclass(slots=True, eq=False)
class TorchRow:
    """One segment's states. flow: None for a row that is computed from its first token at each step.

    tail_tokens: of the prompt, behind its last whole block. frames: mel frames given so far. small_hops: it is computed
    by itself, a block at a time. stepped_s: when its last step was.
    """

    voice: FlowVoice
    flow: FlowState | PagedState | None
    hift: HiftState | CausalState | WindowState
    tail_tokens: int
    frames: int = 0
    small_hops: bool = False
    stepped_s: float = 0.0
    _spoken: list[int] = field(default_factory=list)
    _ahead_tokens: int = 0  # that the flow was shown already and the engine will give again
    _waiting: Tokens = field(default_factory=lambda: np.zeros(0, np.int64))  # that the flow has still to be given
    _again_frames: int = 0  # that the flow will give once more, since it begins anew
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
        return first_block_tokens(len(self.voice.prompt.speech_tokens), self.tail_tokens)

    def new_tokens(self, step: RowStep) -> Tensor:
        """What the flow has not seen yet: the step's tokens and look-ahead, less the look-ahead of last time."""
        given = np.concatenate([step.tokens, step.lookahead])[self._ahead_tokens :]
        return torch.from_numpy(np.concatenate([self._waiting, given]))

    def new_count(self, step: RowStep) -> int:
        """How many those are."""
        return len(self._waiting) + len(step.tokens) + len(step.lookahead) - self._ahead_tokens

    def took(self, step: RowStep) -> None:
        """The flow is done with a step."""
        self._note(step)
        self._waiting = self._waiting[:0]

    def waits(self, step: RowStep) -> None:
        """There is no room for a step, which is not the last one: the flow gets its tokens with those of a later."""
        self._waiting = self.new_tokens(step).numpy()
        self._note(step)

    def _note(self, step: RowStep) -> None:
        self._spoken.extend(step.tokens.tolist())
        self._ahead_tokens = len(step.lookahead)
        self._fed, self._made = 0, []

    def rewind(self, fresh: PagedState) -> None:
        """Go on in a fresh state after the prompt: the flow gets all tokens again, and gives only new frames."""
        self.release()
        self.flow = fresh
        self._waiting, self._ahead_tokens, self._fed = np.asarray(self._spoken, np.int64), 0, 0
        self._again_frames = self.frames

    def release(self) -> None:
        """Give back what the flow keeps of it."""
        if isinstance(self.flow, PagedState):
            self.flow.release()
        self.flow = None

    def gave(self, mel: Tensor) -> Tensor:
        """Of frames that the flow gave, the new ones, which count from now on."""
        again = min(self._again_frames, mel.shape[1])
        self._again_frames -= again
        self.frames += mel.shape[1] - again
        return mel[:, again:]

    def solve_alone(self, flow: StreamFlow, step: RowStep) -> Tensor:
        """New mel [80, F]: block by block, or without any cache. What a failed try has made is not made again."""
        if self.flow is None:
            self._again_frames = self.frames
            self._keep(self._whole(flow, step), 0)
        else:
            pieces = self.new_tokens(step)[self._fed :].split(BLOCK_TOKENS)
            for number, piece in enumerate(pieces, 1):
                ends = step.final and number == len(pieces)
                self._keep(flow.step([self.flow], [piece], [ends])[0], len(piece))
        return torch.cat(self._made, dim=1)

    def _keep(self, mel: Tensor, tokens: int) -> None:
        self._made.append(self.gave(mel))
        self._fed += tokens

    def _whole(self, flow: StreamFlow, step: RowStep) -> Tensor:
        """The mel of all tokens so far, solved at once under the mask of streaming: the same as with a cache."""
        prompt_tokens, prompt_mel, embedding = prompt_tensors(flow, self.voice.prompt)
        prompt_tokens, prompt_mel = align_prompt(prompt_tokens, prompt_mel, self.tail_tokens)
        spoken = np.asarray(self._spoken, np.int64)
        tokens = torch.from_numpy(np.concatenate([spoken, step.tokens, step.lookahead]).astype(np.int64))
        if not len(tokens):
            return prompt_mel.new_empty(prompt_mel.shape[1], 0)
        return flow.synthesize(
            tokens.to(flow.device), prompt_tokens, prompt_mel, embedding, streaming=True, final=step.final,
            guidance=self.voice.guidance,
        )  # fmt: skip
