"""Streams as upstream's code makes them, faults included: for holding ours against it, not for speaking.

What it does otherwise than the studio (docs/decisions/0005): it flows the whole prefix at every hop, the last one
without the streaming mask; it vocodes each chunk by itself, so that the phase starts anew, and blends chunks by two
halves of a window that add up to 1.08; and the hop outlives the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from studio.models.flow import Flow
from studio.models.flow.sizes import BLOCK_TOKENS, FRAMES_PER_TOKEN, LOOKAHEAD_TOKENS
from studio.models.hift import Hift

MOST_HOP_TOKENS = 4 * BLOCK_TOKENS
CACHED_FRAMES = 8
CACHED_SAMPLES = 3840
FADE = torch.from_numpy(np.hamming(2 * CACHED_SAMPLES)).float()

DrawNoise = Callable[[Tensor], Tensor]
"""f0 [1, F] to normal noise [1, S]."""


@dataclass(slots=True)
class Hop:
    """Tokens of the next chunk. Upstream keeps it on the model: share one between streams to have its fault."""

    tokens: int = BLOCK_TOKENS


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk and what it was made of.

    offset, tokens: spoken before it, and given to the flow. mel: [80, F], new frames; f0, source, speech: of the cached
    frames too, but for the samples that `speech` keeps back.
    """

    offset: int
    tokens: int
    final: bool
    mel: Tensor
    frames: int
    f0: Tensor
    source: Tensor
    speech: Tensor


@dataclass(frozen=True, slots=True)
class _Cached:
    """What a chunk leaves to the next one."""

    mel: Tensor
    source: Tensor
    speech: Tensor


def with_upstream_phase(hift: Hift) -> Hift:
    """The same vocoder with the phase summed in float32, as upstream does."""
    upstream = Hift(replace(hift.config, float32_phase=True)).eval()
    upstream.load_state_dict(hift.state_dict())
    return upstream.to(hift.conv_post.bias.device)


class UpstreamStream:
    """One stream. hift: of `with_upstream_phase`. Owner: one thread."""

    def __init__(
        self,
        flow: Flow,
        hift: Hift,
        hop: Hop,
        prompt: tuple[Tensor, Tensor, Tensor],
        noise: DrawNoise,
        guidance: float | None = None,
    ) -> None:
        """prompt: tokens [P], mel [2 P, 80], speaker embedding [192]. guidance: None for the flow's own."""
        self._flow, self._hift, self._hop, self._noise = flow, hift, hop, noise
        self._prompt, self._guidance = prompt, guidance
        self._pad = -len(prompt[0]) % hop.tokens
        self._tokens = prompt[0][:0]
        self._offset = 0
        self._cached: _Cached | None = None

    @property
    def next_chunk_tokens(self) -> int:
        """Tokens of the next chunk, without the 3 that are only looked at."""
        return self._hop.tokens + (0 if self._offset else self._pad)

    @torch.inference_mode()
    def push(self, tokens: Tensor, final: bool) -> Iterator[Chunk]:
        """Each chunk that these tokens complete; with `final` the last one too, even if nothing is left for it."""
        self._tokens = torch.cat([self._tokens, tokens.to(self._tokens)])
        while len(self._tokens) - self._offset >= self.next_chunk_tokens + LOOKAHEAD_TOKENS:
            taken = self.next_chunk_tokens
            yield self._chunk(self._offset + taken + LOOKAHEAD_TOKENS, final=False)
            self._offset += taken
            self._hop.tokens = min(MOST_HOP_TOKENS, 2 * self._hop.tokens)
        if final:
            yield self._chunk(len(self._tokens), final=True)

    def _chunk(self, end: int, final: bool) -> Chunk:
        # The flag is not handed on to the last call, so that it is flowed with streaming off.
        mel = self._flow.synthesize(
            self._tokens[:end], *self._prompt, streaming=not final, final=final, guidance=self._guidance
        )
        mel = mel[:, FRAMES_PER_TOKEN * self._offset :]
        cached = self._cached
        heard = mel if cached is None else torch.cat([cached.mel, mel], 1)
        f0, source, speech = vocode(self._hift, heard, self._noise, None if cached is None else cached.source)
        if cached is not None:
            fade = FADE.to(speech.device)
            joint = speech[:CACHED_SAMPLES] * fade[:CACHED_SAMPLES] + cached.speech * fade[CACHED_SAMPLES:]
            speech = torch.cat([joint, speech[CACHED_SAMPLES:]])
        if not final:
            self._cached = _Cached(
                heard[:, -CACHED_FRAMES:], source[-CACHED_SAMPLES:], speech[-CACHED_SAMPLES:]
            )
            speech = speech[:-CACHED_SAMPLES]
        return Chunk(self._offset, end, final, mel, heard.shape[1], f0, source, speech)


@torch.inference_mode()
def vocode(
    hift: Hift, mel: Tensor, noise: DrawNoise, source_before: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """A mel [80, F] by itself: f0 [F], source and speech [S]; the source's first samples may be given."""
    f0 = hift.predict_f0(mel[None])
    source = hift.m_source(f0, noise(f0))
    if source_before is not None:
        source = torch.cat([source_before[None], source[:, len(source_before) :]], 1)
    return f0[0], source[0], hift.decode(mel[None], source)[0]


def stretched(mel: Tensor, speed: float) -> Tensor:
    """A mel [80, F] spoken faster by `speed`, by linear interpolation; upstream's, for whole utterances only."""
    return F.interpolate(mel[None], size=int(mel.shape[1] / speed), mode="linear")[0]
