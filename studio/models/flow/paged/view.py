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
        self._sight = sight
        self._distances = distances
        self._step = step
        on_gpu = store.keys_values.device.type == "cuda"
        if on_gpu:
            from studio.models.flow.paged import kernels

            self._window, self._attend = kernels.window, kernels.attend
        else:
            self._window, self._attend = attention.window, attention.attend

    def positions(self, x: Tensor) -> Tensor:
        block = self._sight.block
        frame = torch.arange(block, device=x.device)
        return (self._sight.slots.block[:, None] * block + frame).flatten().float()

    def window(self, x: Tensor, taps: int, slot: int) -> Tensor:
        return self._window(x, self._store.edges[slot][self._step], self._sight, taps)

    def attend(self, qkv: Tensor, slot: int) -> Tensor:
        query, key, value = qkv.unbind(2)
        return self._attend(query, key, value, self._store.keys_values[self._step, slot], self._sight, None)

    def attend_relative(self, layer: RelativeHeads, qkv: Tensor) -> Tensor:
        query, key, value = qkv.unbind(2)
        distances = self._distances.of(layer, self._sight.pages, self._sight.block)
        scores = (query + layer.pos_bias_v)[0].transpose(0, 1) @ distances.transpose(-1, -2)  # [H, N, R]
        kept = self._store.keys_values[self._step, layer.slot]
        return self._attend(query + layer.pos_bias_u, key, value, kept, self._sight, scores)
