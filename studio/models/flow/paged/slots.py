"""A pack of block slots as the device sees it: everything a step reads of its streams, in one copy.

A slot is one block of 50 frames of one stream. Slots of one stream follow each other; empty slots at the end of a pack
compute into the scratch page.

Axes: S slots, P pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from studio.models.flow.paged.pool import NOTHING, SCRATCH
from studio.models.flow.sizes import (
    BLOCK_FRAMES,
    BLOCK_TOKENS,
    FRAMES_PER_TOKEN,
    LOOKAHEAD_TOKENS,
    MEL_BINS,
    NOISE_FRAMES,
)
from studio.models.flow.solver import guidance_weights
from studio.models.uploads import Uploads

LONGEST_PAGES = NOISE_FRAMES // BLOCK_FRAMES
WINDOW_TOKENS = BLOCK_TOKENS + LOOKAHEAD_TOKENS
NO_TOKEN = -1  # behind the end of a stream

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class BlockSlot:
    """One block to be computed.

    tokens: [n] of the block and up to 3 after it, none below 0; frames: of the block that are real, 1 to 50.
    pages: of the stream up to this block, its own last. prompt_mel: [up to 50, 80], zeros follow. follows: how many
    slots right before compute blocks of the same stream. guidance: of the stream's solve.
    """

    tokens: Ints
    frames: int
    pages: Sequence[int]
    speaker: Floats  # [80]
    prompt_mel: Floats
    follows: int
    guidance: float


class Slots:
    """Views of the fields of a table of int32 records, one record a slot; floats are read bit by bit."""

    OWN, BEFORE, FOLLOWS, COUNT, TOKENS_HERE, FRAMES_HERE, BLOCK, TOKENS = range(8)
    TABLE = TOKENS + WINDOW_TOKENS
    SPEAKER = TABLE + LONGEST_PAGES
    PROMPT = SPEAKER + MEL_BINS
    GUIDANCE = PROMPT + BLOCK_FRAMES * MEL_BINS
    WIDTH = GUIDANCE + 2

    def __init__(self, records: Tensor) -> None:
        """records: int32 [S, WIDTH]."""
        self.count = len(records)
        self.own = records[:, self.OWN]  # the page that the block is written to
        self.before = records[:, self.BEFORE]  # the page of the block before
        self.follows = records[
            :, self.FOLLOWS
        ]  # slots right before that compute this stream's earlier blocks
        self.pages = records[:, self.COUNT]  # pages in the table
        self.tokens_here = records[:, self.TOKENS_HERE]
        self.frames_here = records[:, self.FRAMES_HERE]
        self.block = records[:, self.BLOCK]  # blocks of the stream before this one
        self.tokens = records[:, self.TOKENS : self.TABLE]  # [S, 28], NO_TOKEN behind the end
        self.table = records[:, self.TABLE : self.SPEAKER]  # [S, 300] pages, the newest first
        floats = records.view(torch.float32)
        self.speaker = floats[:, self.SPEAKER : self.PROMPT]  # [S, 80]
        prompt_mel = floats[:, self.PROMPT : self.GUIDANCE]
        self.prompt_mel = prompt_mel.unflatten(1, (BLOCK_FRAMES, MEL_BINS))  # [S, 50, 80]
        self.guidance = floats[:, self.GUIDANCE :]  # [S, 2], as `guidance_weights` has them


class SlotBuffer:
    """The records of a pack on the host and on the device. Owner: one thread."""

    def __init__(self, most: int, device: torch.device) -> None:
        self._uploads = Uploads(most, Slots.WIDTH, torch.int32, device)
        self._device = torch.zeros(most, Slots.WIDTH, dtype=torch.int32, device=device)

    def slots(self, count: int) -> Slots:
        return Slots(self._device[:count])

    def load(self, blocks: Sequence[BlockSlot], count: int) -> None:
        """Put the blocks into the first slots and padding into the rest of `count`: one copy, which nobody awaits."""
        ints: Ints = self._uploads.claim()[:count]
        ints[:] = 0
        if blocks:
            ints[: len(blocks), : Slots.TOKENS] = [_heading(block) for block in blocks]
            ints[: len(blocks), Slots.TOKENS : Slots.TABLE] = NO_TOKEN
            weights = [guidance_weights(block.guidance) for block in blocks]
            ints.view(np.float32)[: len(blocks), Slots.GUIDANCE :] = weights
        for record, block in zip(ints, blocks, strict=False):
            _fill(record, block)
        padding = ints[len(blocks) :]
        padding[:, Slots.OWN] = padding[:, Slots.TABLE] = SCRATCH
        padding[:, Slots.BEFORE] = NOTHING
        padding[:, Slots.COUNT] = 1
        padding[:, Slots.TOKENS_HERE], padding[:, Slots.FRAMES_HERE] = BLOCK_TOKENS, BLOCK_FRAMES
        self._uploads.send(self._device[:count])


def _fill(record: Ints, block: BlockSlot) -> None:
    floats, pages = record.view(np.float32), block.pages
    record[Slots.TOKENS : Slots.TOKENS + len(block.tokens)] = block.tokens
    record[Slots.TABLE : Slots.TABLE + len(pages)] = pages[::-1]
    floats[Slots.SPEAKER : Slots.PROMPT] = block.speaker
    if block.prompt_mel.size:
        floats[Slots.PROMPT : Slots.PROMPT + block.prompt_mel.size] = block.prompt_mel.ravel()


def _heading(block: BlockSlot) -> tuple[int, ...]:
    """The fields before `Slots.TOKENS`, in their order."""
    pages, frames = block.pages, block.frames
    before = pages[-2] if len(pages) > 1 else NOTHING
    return (pages[-1], before, block.follows, len(pages), frames // FRAMES_PER_TOKEN, frames, len(pages) - 1)
