"""What the networks ask of pages, in plain torch: windows and attention.

`attention_kernels` and `window_kernels` do the same on a GPU. Shapes are fixed by the number of slots and by how many
pages are looked at; nothing is read back to the host.

Axes: G lanes, S slots, T frames of a block, N = S * T, H heads, D width of a head, C channels, P pages.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from studio.models.flow.paged.slots import Slots


@dataclass(frozen=True, slots=True)
class Sight:
    """The slots of a pack at one rate.

    here: int32 [S] frames of each slot's own block that are real. pages: how many pages plain torch looks at, at least
    as many as any slot has.
    """

    slots: Slots
    here: Tensor
    block: int
    pages: int


def raw(kept: Tensor) -> Tensor:
    """The same memory in a type that can be indexed: torch moves no 8-bit floats about."""
    return kept.view(torch.uint8) if kept.dtype.itemsize == 1 else kept


def stored(values: Tensor, storage: torch.dtype) -> Tensor:
    """Values in the type that pages keep; what is beyond an 8-bit float's range becomes its largest, not NaN."""
    if storage.itemsize == 1:
        most = torch.finfo(storage).max
        values = values.clamp(-most, most)
    return values.to(storage)


def window(x: Tensor, edges: Tensor, sight: Sight, taps: int) -> Tensor:
    """Each frame with the `taps - 1` before it; the last frames of each block are kept for the next.

    Args:    x: [G, N, C]. edges: [P, G, taps - 1, C], written at the slots' own pages.
    Returns: [G, N, taps * C]
    """
    lanes, _, channels = x.shape
    edge, slots = taps - 1, sight.slots
    blocks = x.unflatten(1, (slots.count, sight.block))  # [G, S, T, C]
    edges[slots.own.long()] = blocks[:, :, -edge:].transpose(0, 1).to(edges.dtype)
    before = edges[slots.before.long()].transpose(0, 1).to(x.dtype)
    joined = torch.cat([before, blocks], dim=2)
    return joined.unfold(2, taps, 1).transpose(-1, -2).reshape(lanes, -1, taps * channels)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    kept: Tensor,
    sight: Sight,
    distance_scores: Tensor | None = None,
) -> Tensor:
    """Write each slot's keys and values into its page, then attend to all its stream's pages.

    Args:    query, key, value: [G, N, H, D]. kept: [P, G, 2, H, T, D].
             distance_scores: float32 [H, N, sight.pages * T + T - 1], for distances (query minus key) from
             sight.pages * T - 1 downward; added to the products before they are scaled.
    Returns: [G, N, H * D] in the query's type
    """
    keep(key, value, kept, sight)
    return attend_kept(query, kept, sight, distance_scores)


def keep(key: Tensor, value: Tensor, kept: Tensor, sight: Sight) -> None:
    """Write each slot's keys and values into its page; see `attend`."""
    new = torch.stack([_by_head(key, sight), _by_head(value, sight)], dim=2)  # [S, G, 2, H, T, D]
    raw(kept)[sight.slots.own.long()] = raw(stored(new, kept.dtype))


def attend_kept(query: Tensor, kept: Tensor, sight: Sight, distance_scores: Tensor | None = None) -> Tensor:
    """Attend to all pages of each slot's stream, its own being written; see `attend`."""
    table = sight.slots.table[:, : sight.pages].long()
    seen = raw(kept)[table].view(kept.dtype).float()  # [S, P, G, 2, H, T, D]
    keys, values = seen.permute(3, 0, 2, 4, 1, 5, 6).flatten(4, 5).unbind(0)  # [S, G, H, P * T, D]
    scores = _by_head(query, sight).float() @ keys.transpose(-1, -2)
    if distance_scores is not None:
        scores = scores + _by_key(distance_scores, sight)[:, None]
    scores = scores / math.sqrt(query.shape[-1])
    weights = scores.masked_fill(~_visible(sight)[:, None, None, None], float("-inf")).softmax(dim=-1)
    mixed = weights @ values  # [S, G, H, T, D]
    return mixed.permute(1, 0, 3, 2, 4).flatten(1, 2).flatten(2).to(query.dtype)


def _by_head(x: Tensor, sight: Sight) -> Tensor:
    """[G, N, H, D] -> [S, G, H, T, D]"""
    return x.unflatten(1, (sight.slots.count, sight.block)).permute(1, 0, 3, 2, 4)


def _visible(sight: Sight) -> Tensor:
    """bool [S, P * T]: every page of the stream, and of the newest what is real."""
    place = torch.arange(sight.pages, device=sight.here.device)[:, None]
    frame = torch.arange(sight.block, device=sight.here.device)
    whole = (place > 0) | (frame < sight.here[:, None, None])
    return (whole & (place < sight.slots.pages[:, None, None])).flatten(1)


def _by_key(distance_scores: Tensor, sight: Sight) -> Tensor:
    """From distances to keys: [H, N, R] -> [S, H, T, P * T]. Key o of the p-th page back is p * T + t - o away from
    query t, for every slot alike."""
    pages, block, device = sight.pages, sight.block, distance_scores.device
    frame = torch.arange(block, device=device)
    distance = torch.arange(pages, device=device)[:, None] * block + frame[:, None, None] - frame  # [T, P, T]
    index = (pages * block - 1 - distance).flatten(1)  # [T, P * T]
    by_slot = distance_scores.unflatten(1, (sight.slots.count, block)).transpose(0, 1)
    return by_slot.gather(-1, index.expand(*by_slot.shape[:2], -1, -1))
