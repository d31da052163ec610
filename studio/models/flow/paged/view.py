"""The `layers.View` of a pack of slots over pages, at one step of the solve."""

from __future__ import annotations

import torch
from torch import Tensor

from studio.models.flow.layers import RelativeHeads
from studio.models.flow.paged import attention
from studio.models.flow.paged.attention import Sight
from studio.models.flow.paged.pool import RateStore
from studio.models.flow.paged.slots import LONGEST_PAGES


class Distances:
    """Projected distances of each relative attention layer, computed once for the longest stream there may be."""

    def __init__(self) -> None:
        self._known: dict[RelativeHeads, Tensor] = {}

    def of(self, layer: RelativeHeads, pages: int, block: int) -> Tensor:
        """Distances pages * block - 1 downward to 1 - block: [H, pages * block + block - 1, D]."""
        if layer not in self._known:
            self._known[layer] = layer.positions(LONGEST_PAGES * block - 1, 1 - block)
        return self._known[layer][:, (LONGEST_PAGES - pages) * block :]


class PagedView:
    """Answers the networks from the pages of a pack's streams, and writes the slots' own."""

    def __init__(self, store: RateStore, sight: Sight, distances: Distances, step: int = 0) -> None:
        self._store = store
        self.sight = sight
        self._distances = distances
        self._step = step
        on_gpu = store.keys_values.device.type == "cuda"
        if on_gpu:
            from studio.models.flow.paged import attention_kernels, window_kernels

            self._window = window_kernels.window
            self._attend, self._attend_kept = attention_kernels.attend, attention_kernels.attend_kept
        else:
            self._window = attention.window
            self._attend, self._attend_kept = attention.attend, attention.attend_kept

    def positions(self, x: Tensor) -> Tensor:
        block = self.sight.block
        frame = torch.arange(block, device=x.device)
        return (self.sight.slots.block[:, None] * block + frame).flatten().float()

    def window(self, x: Tensor, taps: int, slot: int) -> Tensor:
        return self._window(x, self.edges(slot), self.sight, taps)

    def edges(self, slot: int) -> Tensor:
        """The last frames that one convolution was given, in all pages: [P, G, taps - 1, C]."""
        return self._store.edges[slot][self._step]

    def kept(self, slot: int) -> Tensor:
        """Keys and values of one layer in all pages: [P, G, 2, H, T, D]."""
        return self._store.keys_values[self._step, slot]

    def attend(self, qkv: Tensor, slot: int) -> Tensor:
        query, key, value = qkv.unbind(2)
        return self._attend(query, key, value, self.kept(slot), self.sight, None)

    def attend_kept(self, query: Tensor, slot: int) -> Tensor:
        """`attend` once keys and values are in the slots' own pages: [G, N, H, D] -> [G, N, H * D]."""
        return self._attend_kept(query, self.kept(slot), self.sight, None)

    def attend_relative(self, layer: RelativeHeads, qkv: Tensor) -> Tensor:
        query, key, value = qkv.unbind(2)
        distances = self._distances.of(layer, self.sight.pages, self.sight.block)
        scores = (query + layer.pos_bias_v)[0].transpose(0, 1) @ distances.transpose(-1, -2)  # [H, N, R]
        return self._attend(query + layer.pos_bias_u, key, value, self.kept(layer.slot), self.sight, scores)
