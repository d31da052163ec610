"""The next blocks of several streams, laid behind each other, and what each of them may see.

A `Layout` says where the rows lie; a `PackedView` answers the networks' questions for one step of the solve
from the rows' histories. Rows never see each other, and nothing is padded.

Axes: G lanes, N packed frames of all rows, H heads, D width of a head, C channels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from studio.models.flow.history import Edges, History
from studio.models.flow.layers import RelativeHeads, relative_scores


@dataclass(frozen=True, slots=True)
class Span:
    """A run of packed frames that see the same keys: one block of one row."""

    begin: int
    end: int
    keys: int  # positions of the row before the end of this block


SpanScores = Callable[[Span], Tensor]


class Layout:
    """Where each row's new frames lie, and which blocks they form.

    Args:    lengths: new frames of each row, at least 1.
             starts: frames that each row has passed; a multiple of `block`.
             block: frames in one block of the mask.
    """

    def __init__(
        self, lengths: Sequence[int], starts: Sequence[int], block: int, device: torch.device
    ) -> None:
        self.lengths = list(lengths)
        self.starts = list(starts)
        self.block = block
        self.device = device
        self.begins = [sum(self.lengths[:row]) for row in range(len(self.lengths))]
        self.spans = [self._spans(row) for row in range(len(self.lengths))]
        self._indices: dict[int, tuple[Tensor, Tensor]] = {}

    def _spans(self, row: int) -> list[Span]:
        begin, length, start = self.begins[row], self.lengths[row], self.starts[row]
        borders = [*range(0, length, self.block), length]
        return [Span(begin + left, begin + right, start + right) for left, right in pairwise(borders)]

    def gather(self, taps: int) -> tuple[Tensor, Tensor]:
        """Where windows and new edges are found in the rows' old edges followed by the packed frames.

        Returns: int64 [N * taps], frame by frame, oldest first; int64 [rows * (taps - 1)].
        """
        if taps not in self._indices:
            edge = taps - 1
            heading = edge * len(self.lengths)
            window, new_edge = [], []
            for row, (begin, length) in enumerate(zip(self.begins, self.lengths, strict=True)):
                places = [
                    *range(row * edge, (row + 1) * edge),
                    *range(heading + begin, heading + begin + length),
                ]
                for frame in range(length):
                    window += places[frame : frame + taps]
                new_edge += places[length:]
            self._indices[taps] = tuple(
                torch.tensor(found, device=self.device) for found in (window, new_edge)
            )
        return self._indices[taps]


class PackedView:
    """The `layers.View` of packed rows at one step of the solve.

    Keys and values are written into the rows' reserved room, new edges into `new_edges`; the rows' own state
    does not change before the caller says so.

    Args:    edges: of all rows, joined; new_edges: the same shapes, overwritten here.
    """

    def __init__(
        self, layout: Layout, histories: Sequence[History], edges: Edges, new_edges: Edges, step: int = 0
    ) -> None:
        self.layout = layout
        self.histories = histories
        self.edges = edges
        self.new_edges = new_edges
        self.step = step

    def window(self, x: Tensor, taps: int, slot: int) -> Tensor:
        window, new_edge = self.layout.gather(taps)
        joined = torch.cat([self.edges[slot][self.step], x], dim=1)
        torch.index_select(joined, 1, new_edge, out=self.new_edges[slot][self.step])
        return joined.index_select(1, window).view(*x.shape[:2], -1)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, slot: int) -> Tensor:
        query = (query * (1 / math.sqrt(query.shape[-1]))).transpose(1, 2)
        return self._by_span(query, key, value, slot, None)

    def attend_relative(self, layer: RelativeHeads, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        scale = 1 / math.sqrt(query.shape[-1])
        longest = max(span.keys for spans in self.layout.spans for span in spans)
        positions = layer.positions(longest - 1, 1 - self.layout.block)
        with_distance = ((query + layer.pos_bias_v) * scale).transpose(1, 2)

        def distance_scores(span: Span) -> Tensor:
            frames = span.end - span.begin
            near = positions[:, longest - span.keys :][:, : span.keys + frames - 1]
            return relative_scores(with_distance[:, :, span.begin : span.end], near, span.keys)

        content = ((query + layer.pos_bias_u) * scale).transpose(1, 2)
        return self._by_span(content, key, value, layer.slot, distance_scores)

    def _by_span(
        self, query: Tensor, key: Tensor, value: Tensor, slot: int, bias_of: SpanScores | None
    ) -> Tensor:
        """query: [G, H, N, D], scaled; key and value: [G, N, H, D] -> [G, N, H * D]"""
        key, value = key.transpose(1, 2), value.transpose(1, 2)
        mixed = []
        for row, history in enumerate(self.histories):
            begin = self.layout.begins[row]
            end = begin + self.layout.lengths[row]
            history.put(
                self.step, slot, self.layout.starts[row], key[:, :, begin:end], value[:, :, begin:end]
            )
            for span in self.layout.spans[row]:
                parts = history.parts(self.step, slot, span.keys)
                bias = None if bias_of is None else bias_of(span)
                mixed.append(mix(query[:, :, span.begin : span.end], parts, bias))
        together = mixed[0] if len(mixed) == 1 else torch.cat(mixed, dim=2)
        return together.transpose(1, 2).flatten(2)


def mix(query: Tensor, parts: Sequence[tuple[Tensor, Tensor]], bias: Tensor | None) -> Tensor:
    """Attention over keys and values that lie in several pieces, without joining them.

    Args:    query: [G, H, T, D], scaled. parts: pairs [G, H, K_i, D]. bias: [G, H, T, sum K_i], or None.
    Returns: [G, H, T, D]
    """
    pieces = [torch.matmul(query, key.to(query.dtype).transpose(-1, -2)) for key, _ in parts]
    scores = pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=-1)
    if bias is not None:
        scores = scores + bias
    weights = scores.softmax(dim=-1).split([key.shape[-2] for key, _ in parts], dim=-1)
    mixed = torch.matmul(weights[0], parts[0][1].to(query.dtype))
    for weight, (_, value) in zip(weights[1:], parts[1:], strict=True):
        mixed = mixed + torch.matmul(weight, value.to(query.dtype))
    return mixed
