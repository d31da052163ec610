"""Streams of the flow: each new block is computed once, from what the stream has cached of those before it.

The cache is exact: a stream split in any way gives the mel of one whole solve under the streaming mask.
Nothing of a stream is kept on the model, so rows may join, leave and fail on their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from studio.models.flow.history import Edges, joined_edges, parted_edges
from studio.models.flow.packed import Layout, PackedView
from studio.models.flow.sizes import (
    BLOCK_FRAMES,
    BLOCK_TOKENS,
    FRAMES_PER_TOKEN,
    LOOKAHEAD_TOKENS,
    MEL_BINS,
    NOISE_FRAMES,
)
from studio.models.flow.solver import guidance_weights, start_noise
from studio.models.flow.state import FlowState, Rate

if TYPE_CHECKING:
    from studio.models.flow.flow import Flow


class Stream(Protocol):
    """What it takes to say which tokens a stream computes next, wherever it keeps its past."""

    pending_tokens: Tensor
    closed: bool

    @property
    def frames(self) -> int: ...


S = TypeVar("S", bound=Stream)


@dataclass(frozen=True, slots=True)
class Turn(Generic[S]):
    """One row's share of a step: the tokens it computes now and those it looks ahead at."""

    state: S
    tokens: Tensor  # int64 [n], n >= 1
    ahead: Tensor  # int64 [3], or [0] at the end
    left: Tensor  # int64 tokens that wait for the next step
    frames: int  # of the tokens


def step(
    flow: Flow, states: Sequence[FlowState], new_tokens: Sequence[Tensor], final: Sequence[bool]
) -> list[Tensor]:
    """See `Flow.step`."""
    turns = turns_of(states, new_tokens, final)
    working = [turn for turn in turns if len(turn.tokens)]
    mels = iter(_compute(flow, working) if working else [])
    results = [
        next(mels) if len(turn.tokens) else torch.empty(MEL_BINS, 0, device=flow.device) for turn in turns
    ]
    for turn, ends in zip(turns, final, strict=True):
        turn.state.pending_tokens = turn.left
        turn.state.closed = ends
    return results


def turns_of(states: Sequence[S], new_tokens: Sequence[Tensor], final: Sequence[bool]) -> list[Turn[S]]:
    """What each stream computes in a step. Raises ValueError as `Flow.step` does; changes nothing."""
    if len({id(state) for state in states}) != len(states):
        raise ValueError("a stream is given twice in one step")
    return [_turn(*row) for row in zip(states, new_tokens, final, strict=True)]


def _turn(state: S, new_tokens: Tensor, final: bool) -> Turn[S]:
    if state.closed:
        raise ValueError("the stream has had its final tokens")
    waiting = torch.cat([state.pending_tokens, new_tokens.cpu().long()])
    ready = len(waiting)
    if not final:
        ready = max(0, ready - LOOKAHEAD_TOKENS) // BLOCK_TOKENS * BLOCK_TOKENS
    new, frames = FRAMES_PER_TOKEN * ready, state.frames + FRAMES_PER_TOKEN * ready
    if frames > NOISE_FRAMES:
        raise ValueError(f"{frames} mel frames with the prompt, but the flow's noise ends at {NOISE_FRAMES}")
    left = waiting[ready:]
    return Turn(state, waiting[:ready], left[:LOOKAHEAD_TOKENS], left, new)


def _compute(flow: Flow, turns: list[Turn[FlowState]]) -> list[Tensor]:
    """Encode and solve every row's tokens, then move the rows on: a [80, frames] each, without the prompt."""
    states, device = [turn.state for turn in turns], flow.device
    token_layout = Layout(
        [len(turn.tokens) for turn in turns],
        [state.frames // FRAMES_PER_TOKEN for state in states],
        BLOCK_TOKENS,
        device,
    )
    frame_layout = Layout(
        [turn.frames for turn in turns], [state.frames for state in states], BLOCK_FRAMES, device
    )
    layouts = (token_layout, frame_layout, frame_layout)
    opened = [_views(layout, [state.rates[i] for state in states]) for i, layout in enumerate(layouts)]
    (token_views, _), (frame_views, _), (solve_views, _) = opened
    encoded = flow.encoder.encode(_lookahead_windows(flow, turns), token_views[0], frame_views[0])
    mu = flow.encoder_proj(encoded)[0]
    noise = start_noise(device)
    conditions = (
        mu,
        torch.cat([state.speaker.expand(turn.frames, -1) for state, turn in zip(states, turns, strict=True)]),
        torch.cat([_prompt_mel(turn) for turn in turns]),
        torch.cat([noise[turn.state.frames :][: turn.frames] for turn in turns]),
    )
    mel = flow.solve(*conditions, solve_views, _guidance(turns, device))
    mels = mel.split([turn.frames for turn in turns])
    spoken = [part[len(turn.state.pending_mel) :].T for part, turn in zip(mels, turns, strict=True)]
    # The last that asks for memory; until it is done no row moves, so that a step that finds none can be tried again.
    parted = [parted_edges(new_edges, len(states)) for _, new_edges in opened]
    for layout, parts, i in zip(layouts, parted, range(3), strict=True):
        for row, (state, edges) in enumerate(zip(states, parts, strict=True)):
            state.rates[i].edges = edges
            state.rates[i].history.advance(layout.lengths[row])
    for turn in turns:
        turn.state.pending_mel = turn.state.pending_mel[turn.frames :]
    return spoken


def _views(layout: Layout, rates: list[Rate]) -> tuple[list[PackedView], Edges]:
    """One view for each step of the solve (one for the encoder), and the edges that they will fill."""
    histories = [rate.history for rate in rates]
    for history, length in zip(histories, layout.lengths, strict=True):
        history.reserve(length)
    edges = joined_edges([rate.edges for rate in rates])
    new_edges = [torch.empty_like(edge) for edge in edges]
    steps = histories[0].shape.steps
    return [PackedView(layout, histories, edges, new_edges, step) for step in range(steps)], new_edges


def _lookahead_windows(flow: Flow, turns: list[Turn[FlowState]]) -> Tensor:
    """Embed each row's tokens and set the three after it beside each; zeros after the end: [1, N, 4 C]."""
    given = torch.cat([part for turn in turns for part in (turn.tokens, turn.ahead)]).to(flow.device)
    embedded = flow.encoder.embed(flow.embed_tokens(given))
    padded = torch.cat([embedded, embedded.new_zeros(1, embedded.shape[1])])
    places, begin = [], 0
    for turn in turns:
        behind = begin + len(turn.tokens) + len(turn.ahead)
        row = torch.arange(begin, begin + len(turn.tokens) + LOOKAHEAD_TOKENS)
        row[behind - begin :] = len(embedded)  # the row of zeros
        places.append(row.unfold(0, LOOKAHEAD_TOKENS + 1, 1).flatten())
        begin = behind
    index = torch.cat(places).to(flow.device)
    return padded.index_select(0, index).view(1, -1, (LOOKAHEAD_TOKENS + 1) * padded.shape[1])


def _guidance(turns: list[Turn[FlowState]], device: torch.device) -> float | Tensor:
    """The same for all rows, or float32 [N, 2] with the weights of each frame, which are rounded alike."""
    first, *others = (turn.state.guidance for turn in turns)
    if all(other == first for other in others):
        return first
    weights = torch.tensor([guidance_weights(turn.state.guidance) for turn in turns])
    return weights.repeat_interleave(torch.tensor([turn.frames for turn in turns]), dim=0).to(device)


def _prompt_mel(turn: Turn[FlowState]) -> Tensor:
    """The prompt's frames among those of this turn, then zeros: [frames, 80]."""
    given = turn.state.pending_mel[: turn.frames]
    return torch.nn.functional.pad(given, (0, 0, 0, turn.frames - len(given)))
