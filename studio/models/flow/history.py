"""What one stream remembers of the frames it has passed: keys and values, and the edges of its convolutions.

Every tensor here belongs to one stream, save a history's prompt part: many streams read it, none writes it. On a CPU
each stream has a copy of that part.

Axes: S steps of the solve, L layers, G lanes (guidance branches), H heads, T time, D width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

KEYS, VALUES = 0, 1
CPU_LEAST_FRAMES = 800
"""Room after the prompt, 16 s: on a CPU memory that is never written costs nothing, but each growth is a copy, and new
pages once more."""


@dataclass(frozen=True, slots=True)
class HistoryShape:
    """Sizes of a history, and the type its values are kept in."""

    steps: int
    layers: int
    lanes: int
    heads: int
    head_dim: int
    storage: torch.dtype
    device: torch.device


class ConvWithPast(Protocol):
    """A convolution, as far as it matters to what a stream keeps for it."""

    taps: int
    channels_in: int


@dataclass(frozen=True, slots=True)
class RateMemory:
    """What the layers that run at one rate want kept: attention layers with their heads, and convolutions by slot."""

    layers: int
    heads: int
    head_dim: int
    convolutions: Sequence[ConvWithPast]


class History:
    """Keys and values of one stream in a buffer that doubles when it is full.

    Written at positions past `length` during a step, and lengthened only by `advance`: a step that fails
    leaves the history as it was.
    """

    def __init__(self, shape: HistoryShape, prompt: Tensor | None = None) -> None:
        """
        Args:    prompt: [S, L, 2, G, H, P, D], shared with other streams and never written; or None.
        """
        self.shape = shape
        self.prompt = prompt
        self.prompt_length = 0 if prompt is None else prompt.shape[-2]
        self._own = self._buffer(0)
        self._own_length = 0

    @classmethod
    def after_copy(cls, shape: HistoryShape, prompt: Tensor) -> History:
        """A history that begins with a copy of a prompt's part, so that all keys of a layer lie in one piece.

        Attention over one piece takes a quarter to a third less time on a CPU (50 frames to 200 ... 750 keys);
        the price is the prompt's memory once more for each stream.
        """
        history = cls(shape)
        length = prompt.shape[-2]
        history._own = history._buffer(length + CPU_LEAST_FRAMES)
        history._own[..., :length, :] = prompt
        history._own_length = length
        return history

    @property
    def length(self) -> int:
        """Positions kept, those of the prompt included."""
        return self.prompt_length + self._own_length

    @property
    def own_bytes(self) -> int:
        """Memory written for this stream alone; room that was reserved and never written is none yet."""
        kept = self._own[..., : self._own_length, :]
        return kept.numel() * kept.element_size()

    def reserve(self, extra: int) -> None:
        """Make room for so many positions past the end; the cost a position is constant in the long run."""
        needed, capacity = self._own_length + extra, self._own.shape[-2]
        if needed <= capacity:
            return
        grown = self._buffer(max(needed, 2 * capacity))
        grown[..., : self._own_length, :] = self._own[..., : self._own_length, :]
        self._own = grown

    def put(self, step: int, layer: int, start: int, keys_values: Tensor) -> None:
        """Write keys and values [2, G, H, T, D] from position `start` on, in room reserved before."""
        begin = start - self.prompt_length
        self._own[step, layer, :, :, :, begin : begin + keys_values.shape[-2]].copy_(keys_values)

    def parts(self, step: int, layer: int, end: int) -> list[tuple[Tensor, Tensor]]:
        """Keys and values before position `end`, the prompt's and this stream's own, each [G, H, T, D]."""
        found = []
        if self.prompt is not None and self.prompt_length:
            found.append((self.prompt[step, layer, KEYS], self.prompt[step, layer, VALUES]))
        own = end - self.prompt_length
        if own > 0:
            kept = self._own[step, layer, :, :, :, :own]
            found.append((kept[KEYS], kept[VALUES]))
        return found

    def advance(self, extra: int) -> None:
        """Count positions written by `put` as kept."""
        self._own_length += extra

    def frozen(self) -> Tensor:
        """All that is kept, without spare room, never written again: [S, L, 2, G, H, T, D]."""
        if self.prompt is None and self._own_length == self._own.shape[-2]:
            return self._own  # full, so that whatever comes later goes to a new buffer
        own = self._own[..., : self._own_length, :]
        return own.clone() if self.prompt is None else torch.cat([self.prompt, own], dim=-2)

    def _buffer(self, capacity: int) -> Tensor:
        shape = self.shape
        size = (shape.steps, shape.layers, 2, shape.lanes, shape.heads, capacity, shape.head_dim)
        return torch.empty(size, dtype=shape.storage, device=shape.device)


Edges = list[Tensor]
"""For each convolution of a network, the last frames it was given: [S, G, taps - 1, C]."""


def joined_edges(rows: list[Edges]) -> Edges:
    """The edges of several streams behind each other: for each convolution [S, G, rows * (taps - 1), C]."""
    return [torch.cat(of_slot, dim=2) for of_slot in zip(*rows, strict=True)]


def parted_edges(joined: Edges, rows: int) -> list[Edges]:
    """The inverse of `joined_edges`; each row's edges are memory of its own."""
    by_slot = [[part.clone() for part in edge.chunk(rows, dim=2)] for edge in joined]
    return [[parts[row] for parts in by_slot] for row in range(rows)]
