"""What a stream of the flow remembers, and what streams of one voice share. It computes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from studio.models.flow.history import Edges, History, HistoryShape, RateMemory
from studio.models.flow.sizes import BLOCK_TOKENS, FRAMES_PER_TOKEN, LOOKAHEAD_TOKENS

if TYPE_CHECKING:
    from studio.models.flow.flow import Flow

LEAST_FIRST_TOKENS = 10  # a first chunk shorter than 0.4 s would not last until the second one


@dataclass(slots=True)
class Rate:
    """What a stream keeps for the layers that run at one rate."""

    history: History
    edges: Edges


@dataclass(frozen=True, slots=True)
class FrozenRate:
    """The same of a voice prompt: shared by streams and never written."""

    shape: HistoryShape
    kept: Tensor
    edges: tuple[Tensor, ...]

    def opened(self) -> Rate:
        on_cpu = self.shape.device.type == "cpu"
        history = (History.after_copy if on_cpu else History)(self.shape, self.kept)
        return Rate(history, list(self.edges))


@dataclass(frozen=True, slots=True)
class PromptFlowCache:
    """Everything that streams of one voice have in common: its prompt's whole blocks, computed once.

    Immutable: streams read it and never write it. It fits only the flow that made it.
    """

    speaker: Tensor  # [80]
    pending_tokens: Tensor  # int64 [n] on the CPU: prompt tokens after the last block computed
    pending_mel: Tensor  # [2 n, 80]
    rates: tuple[FrozenRate, FrozenRate, FrozenRate]
    guidance: float  # of the solve that computed them, and so of all streams that read them

    @property
    def frames(self) -> int:
        """Prompt frames computed."""
        return self.rates[2].kept.shape[-2]

    @property
    def bytes(self) -> int:
        """Memory held by the cached blocks."""
        tensors = [tensor for rate in self.rates for tensor in (rate.kept, *rate.edges)]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


class FlowState:
    """One stream: what is cached of its past and which tokens still wait. Made by `Flow.open`."""

    def __init__(self, prompt: PromptFlowCache) -> None:
        self.speaker = prompt.speaker
        self.guidance = prompt.guidance
        self.pending_tokens = prompt.pending_tokens
        self.pending_mel = prompt.pending_mel  # prompt frames not computed yet; their result is thrown away
        self.token_rate, self.frame_rate, self.solve_rate = (rate.opened() for rate in prompt.rates)
        self.first_block_tokens = first_block_after(len(prompt.pending_tokens))
        self.closed = False

    @property
    def rates(self) -> tuple[Rate, Rate, Rate]:
        return self.token_rate, self.frame_rate, self.solve_rate

    @property
    def frames(self) -> int:
        """Frames computed so far, those of the prompt included."""
        return self.solve_rate.history.length

    @property
    def bytes(self) -> int:
        """Memory held by this stream alone, without the shared prompt."""
        return sum(rate.history.own_bytes for rate in self.rates)


def first_block_tokens(prompt_tokens: int, tail_tokens: int) -> int:
    """What a stream's `first_block_tokens` is after a prompt of so many tokens, without computing the prompt."""
    left = len(align_prompt(torch.empty(prompt_tokens), torch.empty(0), tail_tokens)[0])
    return first_block_after(left - max(0, left - LOOKAHEAD_TOKENS) // BLOCK_TOKENS * BLOCK_TOKENS)


def first_block_after(pending: int) -> int:
    """Tokens that a stream's first block needs, when so many of its prompt wait to be computed."""
    wanted = BLOCK_TOKENS - pending % BLOCK_TOKENS
    return wanted if wanted >= LEAST_FIRST_TOKENS else wanted + BLOCK_TOKENS


def align_prompt(tokens: Tensor, mel: Tensor, tail_tokens: int) -> tuple[Tensor, Tensor]:
    """Drop the oldest part of a prompt, so that `tail_tokens` are left after its last whole block.

    Args:    tokens: [n]; mel: [2 n, 80]; tail_tokens: 0 to 24.
    Returns: the later part of both; all of them if less than one block would be left.
    """
    dropped = (len(tokens) - tail_tokens) % BLOCK_TOKENS
    if len(tokens) - dropped < BLOCK_TOKENS:
        return tokens, mel
    return tokens[dropped:], mel[FRAMES_PER_TOKEN * dropped :]


def rate_memories(flow: Flow) -> tuple[RateMemory, RateMemory, RateMemory]:
    """What the layers at token rate, at frame rate and in the solve want kept."""
    config, estimator = flow.config, flow.estimator
    solve = RateMemory(
        len(estimator.attentions), config.estimator_heads, config.estimator_head_dim, estimator.convolutions
    )
    return (*flow.encoder.memory, solve)


def empty_rates(flow: Flow, storage: torch.dtype) -> tuple[FrozenRate, FrozenRate, FrozenRate]:
    """The start of a stream without any past: at token rate, at frame rate, and in the solve."""
    device = flow.device

    def rate(memory: RateMemory, steps: int, lanes: int) -> FrozenRate:
        sizes = (memory.heads, memory.head_dim)
        shape = HistoryShape(steps, memory.layers, lanes, *sizes, storage, device)
        kept = torch.empty(
            steps, memory.layers, 2, lanes, memory.heads, 0, memory.head_dim, dtype=storage, device=device
        )
        edges = [
            torch.zeros(steps, lanes, conv.taps - 1, conv.channels_in, device=device)
            for conv in memory.convolutions
        ]
        return FrozenRate(shape, kept, tuple(edges))

    token, frame, solve = rate_memories(flow)
    return rate(token, 1, 1), rate(frame, 1, 1), rate(solve, flow.steps, 2)
