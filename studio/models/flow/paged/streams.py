"""Paged streams and prompts: which pages are theirs, and what of them still waits. They compute nothing.

Axes: F mel frames.
"""

from __future__ import annotations

import torch
from torch import Tensor

from studio.models.flow.paged.pool import PagePool
from studio.models.flow.paged.slots import Floats
from studio.models.flow.sizes import BLOCK_FRAMES
from studio.models.flow.state import first_block_after


class PagedPrompt:
    """Everything that streams of one voice have in common: the pages of its prompt's whole blocks, computed once.

    Streams read the pages and never write them; they outlive `release` as long as a stream holds them.
    """

    def __init__(
        self,
        pool: PagePool,
        pages: list[int],
        speaker: Floats,
        pending_tokens: Tensor,
        pending_mel: Floats,
        guidance: float,
    ) -> None:
        """pages: taken from the pool; this becomes their holder. pending: what is behind the last whole block.

        guidance: of the solve that computed the pages, and so of all streams that read them.
        """
        self.pool = pool
        self.guidance = guidance
        self.pages = pages
        self.speaker = speaker  # [80]
        self.pending_tokens = pending_tokens  # int64 [n] on the CPU
        self.pending_mel = pending_mel  # [2 n, 80]

    @property
    def frames(self) -> int:
        """Prompt frames computed."""
        return BLOCK_FRAMES * len(self.pages)

    @property
    def bytes(self) -> int:
        return len(self.pages) * self.pool.page_bytes

    def release(self) -> None:
        """Give the pages back; the prompt opens no streams any more. Does nothing the second time."""
        pages, self.pages = self.pages, []
        self.pool.release(pages)

    def __del__(self) -> None:
        self.release()


class PagedState:
    """One stream: its pages, the prompt's first, and which tokens still wait. Made by `PagedFlow.open`."""

    def __init__(self, prompt: PagedPrompt) -> None:
        prompt.pool.share(prompt.pages)
        self.pages = list(prompt.pages)
        self.pool = prompt.pool
        self.guidance = prompt.guidance
        self.speaker = prompt.speaker
        self.pending_tokens = prompt.pending_tokens
        self.pending_mel = prompt.pending_mel  # prompt frames not computed yet; their result is thrown away
        self.first_block_tokens = first_block_after(len(prompt.pending_tokens))
        self.closed = False
        self.frames = prompt.frames
        """Frames computed so far, those of the prompt included."""
        self._shared = len(prompt.pages)

    @property
    def bytes(self) -> int:
        """Memory held by this stream alone, without the shared prompt."""
        return max(0, len(self.pages) - self._shared) * self.pool.page_bytes

    def grow(self, pages: list[int], frames: int) -> None:
        """Count pages that were computed, and the frames in them, as the stream's own."""
        self.pages = [*self.pages, *pages]
        self.frames += frames
        self.pending_mel = self.pending_mel[frames:]

    def release(self) -> None:
        """Give the pages back; no step takes the stream any more. Does nothing the second time."""
        self.closed = True
        pages, self.pages = self.pages, []
        self.pool.release(pages)

    def yielded(self) -> PagedPrompt:
        """The stream's pages as those of a prompt; the stream has none from now on."""
        pages, self.pages = self.pages, []
        pending = self.pending_tokens, self.pending_mel
        return PagedPrompt(self.pool, pages, self.speaker, *pending, self.guidance)

    def __del__(self) -> None:
        self.release()


def on_host(tensor: Tensor) -> Floats:
    return tensor.detach().to("cpu", torch.float32).numpy()


def unbegun(pool: PagePool, speaker: Floats, mel: Floats, guidance: float) -> PagedState:
    """A stream of a prompt of which nothing has been computed."""
    nothing = torch.empty(0, dtype=torch.int64)
    return PagedState(PagedPrompt(pool, [], speaker, nothing, mel, guidance))
