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
import torch.nn.functional as F
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
                first = heading + begin
                old = torch.arange(row * edge, (row + 1) * edge)
                places = torch.cat([old, torch.arange(first, first + length)])
                window.append(places.unfold(0, taps, 1).flatten())
                new_edge.append(places[length:])
            self._indices[taps] = (torch.cat(window).to(self.device), torch.cat(new_edge).to(self.device))
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

    def positions(self, x: Tensor) -> Tensor:
        rows = zip(self.layout.starts, self.layout.lengths, strict=True)
        return torch.cat([torch.arange(start, start + length) for start, length in rows]).to(x.device).float()

    def window(self, x: Tensor, taps: int, slot: int) -> Tensor:
        window, new_edge = self.layout.gather(taps)
        joined = torch.cat([self.edges[slot][self.step], x], dim=1)
        torch.index_select(joined, 1, new_edge, out=self.new_edges[slot][self.step])
        return joined.index_select(1, window).view(*x.shape[:2], -1)

    def attend(self, qkv: Tensor, slot: int) -> Tensor:
        return self._by_span(qkv[:, :, 0].transpose(1, 2), qkv, slot, None)

    def attend_relative(self, layer: RelativeHeads, qkv: Tensor) -> Tensor:
        query = qkv[:, :, 0]
        longest = max(span.keys for spans in self.layout.spans for span in spans)
        positions = layer.positions(longest - 1, 1 - self.layout.block)
        with_distance = (query + layer.pos_bias_v).transpose(1, 2)

        def distance_scores(span: Span) -> Tensor:
            frames = span.end - span.begin
            near = positions[:, longest - span.keys :][:, : span.keys + frames - 1]
            return relative_scores(with_distance[:, :, span.begin : span.end], near, span.keys)

        return self._by_span((query + layer.pos_bias_u).transpose(1, 2), qkv, layer.slot, distance_scores)

    def _by_span(self, query: Tensor, qkv: Tensor, slot: int, bias_of: SpanScores | None) -> Tensor:
        """query: [G, H, N, D]; qkv: [G, N, 3, H, D], of which keys and values are used -> [G, N, H * D]"""
        keys_values = qkv[:, :, 1:].permute(2, 0, 3, 1, 4)  # [2, G, H, N, D]
        mixed = []
        for row, history in enumerate(self.histories):
            begin = self.layout.begins[row]
            end = begin + self.layout.lengths[row]
            history.put(self.step, slot, self.layout.starts[row], keys_values[:, :, :, begin:end])
            for span in self.layout.spans[row]:
                parts = history.parts(self.step, slot, span.keys)
                bias = None if bias_of is None else bias_of(span)
                mixed.append(mix(query[:, :, span.begin : span.end], parts, bias))
        together = mixed[0] if len(mixed) == 1 else torch.cat(mixed, dim=2)
        return together.transpose(1, 2).flatten(2)


def mix(query: Tensor, parts: Sequence[tuple[Tensor, Tensor]], bias: Tensor | None) -> Tensor:
    """Attention over keys and values that lie in several pieces, without joining them.

    Args:    query: [G, H, T, D]. parts: pairs [G, H, K_i, D]. bias: [G, H, T, sum K_i] to be added to the products
             before they are scaled, or None.
    Returns: [G, H, T, D]
    """
    if bias is None and len(parts) == 1 and parts[0][0].dtype == query.dtype:
        return F.scaled_dot_product_attention(query, *parts[0])
    scale = 1 / math.sqrt(query.shape[-1])
    flat = query.flatten(0, 1)
    keys = [key.to(query.dtype).flatten(0, 1).transpose(1, 2) for key, _ in parts]
    values = [value.to(query.dtype).flatten(0, 1) for _, value in parts]
    lengths = [value.shape[1] for value in values]
    if bias is None:
        scores, beta = flat.new_empty(*flat.shape[:2], sum(lengths)), 0.0
    else:
        scores, beta = bias.flatten(0, 1).contiguous(), scale
    for piece, key in zip(scores.split(lengths, dim=-1), keys, strict=True):
        torch.baddbmm(piece, flat, key, beta=beta, alpha=scale, out=piece)
    weights = scores.softmax(dim=-1).split(lengths, dim=-1)
    mixed = torch.bmm(weights[0], values[0])
    for weight, value in zip(weights[1:], values[1:], strict=True):
        mixed.baddbmm_(weight, value)
    return mixed.unflatten(0, query.shape[:2])
