"""The flow of streams on a GPU: their past in pages, all ready blocks in packs of fixed shapes, a step two CUDA graphs.

It gives what `stream.step` gives; what a page holds is in `pool.py`, how a pack is described in `slots.py`.

Axes: S slots (blocks of 50 frames), G lanes, N = 50 S, C channels.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from studio.models.flow.estimator import CausalConditionalDecoder
from studio.models.flow.flow import Flow
from studio.models.flow.layers import windows
from studio.models.flow.paged.attention import Sight
from studio.models.flow.paged.estimator import FusedEstimator, JoinedEstimator, euler, fits_tiles
from studio.models.flow.paged.graphs import Graphs
from studio.models.flow.paged.pool import RESERVED, PagedRate, PagePool
from studio.models.flow.paged.slots import LONGEST_PAGES, BlockSlot, Ints, SlotBuffer
from studio.models.flow.paged.streams import PagedPrompt, PagedState, on_host, unbegun
from studio.models.flow.paged.view import Distances, PagedView
from studio.models.flow.sizes import (
    BLOCK_FRAMES,
    BLOCK_TOKENS,
    FRAMES_PER_TOKEN,
    LOOKAHEAD_TOKENS,
    MEL_BINS,
    DitConfig,
    FlowConfig,
)
from studio.models.flow.solver import flow_times, start_noise
from studio.models.flow.state import align_prompt, rate_memories
from studio.models.flow.stream import Turn, turns_of

LANES = 2
PAGE_BUCKETS = (8, 16, 32, 64, 128, LONGEST_PAGES)
"""How many pages the encoder's graphs look at; the solve's follow each stream's own number."""
FUSED_SLOTS = 8
"""Most slots of a pack whose products are our own kernels, see `FusedEstimator`; `bench.flow_solve` tries both."""
FUSED_BYTES = 160 * 2**10
"""Shared memory that a core of a GPU must have for them: as A100 and H100 have, and neither Turing, Ada nor GeForce."""
ENCODER_WORK = 2048
"""Slots times pages in one graph of the encoder: bounds the scores of distances, 164 MB at full size."""


def slot_buckets(most: int) -> list[int]:
    """Slots of a pack that have graphs of their own; others are padded to the next, by a fifth on average or less."""
    size, sizes = 1, {most}
    while size < most:
        sizes.add(size)
        size += size if size < 8 else 4 if size < 16 else max(8, (1 << size.bit_length()) // 8)
    return sorted(sizes)


def takes_products(estimator: CausalConditionalDecoder, device: torch.device) -> bool:
    """Whether `FusedEstimator` suits: on a CPU always, on a GPU if its kernels have the types, sizes and memory."""
    if device.type == "cpu":
        return True
    if next(estimator.parameters()).dtype.itemsize != 2 or not fits_tiles(estimator):
        return False
    return int(torch.cuda.get_device_properties(device).shared_memory_per_multiprocessor) >= FUSED_BYTES


@dataclass(frozen=True, slots=True)
class PackedMel:
    """What a step made of all its streams: mel float32 [N, 80], of which stream i has frames spans[i], begin to end."""

    mel: Tensor
    spans: list[tuple[int, int]]


class _Block(NamedTuple):
    """The n-th block that a stream computes in this step. pages: all of the stream, those taken for it now included."""

    turn: Turn[PagedState]
    number: int
    tokens: Ints  # of the whole turn and those after it
    pages: list[int]

    def slot(self, follows: int) -> BlockSlot:
        turn, first = self.turn, self.number * BLOCK_TOKENS
        begin = FRAMES_PER_TOKEN * first
        return BlockSlot(
            self.tokens[first : first + BLOCK_TOKENS + LOOKAHEAD_TOKENS],
            min(BLOCK_FRAMES, turn.frames - begin),
            self.pages[: turn.state.frames // BLOCK_FRAMES + self.number + 1],
            turn.state.speaker,
            turn.state.pending_mel[begin : min(turn.frames, begin + BLOCK_FRAMES)],
            follows,
            turn.state.guidance,
        )


class PagedFlow:
    """A `Flow` whose streams live in one pool of pages; it has the flow's duties towards streams. Owner: one thread.

    Args:    flow: on its device, in evaluation mode; it stays as it is.
             pool_bytes: for all pages, taken now. Raises ValueError if that is none.
             storage: type of the solve's keys and values: float32, bfloat16, float16 or float8_e4m3fn.
             compute: type that the estimator computes in; the state of the solve, the flow times, guidance and the
             encoder stay float32. CosyVoice3's estimator mixes types by itself and takes float32 alone.
             max_slots: most blocks in one graph; a step with more takes several.
             fused_slots: up to so many slots the products of transformers are our own kernels; on a GPU not in float32,
             and none where `takes_products` is false.
    """

    def __init__(
        self,
        flow: Flow,
        *,
        pool_bytes: int,
        storage: torch.dtype = torch.float32,
        compute: torch.dtype = torch.float32,
        max_slots: int = 128,
        fused_slots: int = FUSED_SLOTS,
    ) -> None:
        if isinstance(flow.config, DitConfig) and compute != torch.float32:
            raise ValueError("the estimator of CosyVoice3 computes in float32 alone")
        self.flow = flow
        self.compute = compute
        device = flow.device
        rates = paged_rates(flow, storage, compute)
        pages = pool_bytes // sum(rate.page_bytes for rate in rates) - RESERVED
        self.pool = PagePool(rates, pages, device)
        self.graphs = Graphs(device)
        self._buckets = slot_buckets(max_slots)
        self._slots = SlotBuffer(max_slots, device)
        self._distances = Distances()
        self._encoded = torch.zeros(max_slots * BLOCK_FRAMES, MEL_BINS, device=device)  # what a graph leaves
        self._mu = torch.zeros_like(self._encoded)
        self._mel = torch.zeros_like(self._encoded)
        self._noise = start_noise(device).view(LONGEST_PAGES, BLOCK_FRAMES, MEL_BINS)
        self._lengths = flow_times(flow.steps).diff().tolist()
        self._euler = euler
        if device.type == "cuda":
            from studio.models.flow.paged import layer_kernels

            self._euler = layer_kernels.euler
        with torch.inference_mode():
            estimator = flow.estimator
            if compute != torch.float32:
                estimator = copy.deepcopy(estimator).to(compute)
            joined = isinstance(estimator, CausalConditionalDecoder)
            self._estimator = JoinedEstimator(estimator) if joined else estimator
            ours = joined and takes_products(estimator, device)
            self._fused = FusedEstimator(estimator) if ours else self._estimator
            self._fused_slots = fused_slots
            features = flow.estimator.time_features(flow_times(flow.steps).to(device)[:-1])
            self._times = [[f[step : step + 1].to(compute) for f in features] for step in range(flow.steps)]

    @staticmethod
    def page_bytes_of(flow: Flow, storage: torch.dtype, compute: torch.dtype) -> int:
        """Bytes of a page: of one second of a prompt or of speech."""
        return sum(rate.page_bytes for rate in paged_rates(flow, storage, compute))

    @property
    def config(self) -> FlowConfig | DitConfig:
        return self.flow.config

    @property
    def steps(self) -> int:
        return self.flow.steps

    @property
    def guidance(self) -> float:
        return self.flow.guidance

    @property
    def device(self) -> torch.device:
        return self.flow.device

    @property
    def input_embedding(self) -> nn.Embedding:
        return self.flow.input_embedding

    @property
    def page_bytes(self) -> int:
        return self.pool.page_bytes

    def speaker(self, embedding: Tensor) -> Tensor:
        """See `Flow.speaker`."""
        return self.flow.speaker(embedding)

    def synthesize(
        self,
        tokens: Tensor,
        prompt_tokens: Tensor,
        prompt_mel: Tensor,
        embedding: Tensor,
        streaming: bool = True,
        final: bool = True,
        guidance: float | None = None,
    ) -> Tensor:
        """See `Flow.synthesize`: no pages, no graph, all in float32."""
        return self.flow.synthesize(tokens, prompt_tokens, prompt_mel, embedding, streaming, final, guidance)

    @torch.inference_mode()
    def warm_up(self, progress: Callable[[float], None] = lambda done: None) -> None:
        """Capture every graph, the largest first, so that the smaller ones fit into the same memory.

        progress: told what part is done, 0..1, after each number of slots.
        """
        self._slots.load([], self._buckets[-1])
        for done, slots in enumerate(reversed(self._buckets), 1):
            self.capture_solve(slots)
            for pages in reversed(PAGE_BUCKETS):
                if slots <= self._most_slots(pages):
                    self.graphs.capture(("encode", slots, pages), partial(self._encode, slots, pages))
            progress(done / len(self._buckets))
        if self.device.type == "cuda":
            torch.cuda.empty_cache()  # what the runs before each capture took

    @torch.inference_mode()
    def capture_solve(self, slots: int) -> None:
        """Capture the solve's graph for a bucket of slots, if it is not there yet."""
        self.graphs.capture(("solve", slots), partial(self._solve, slots, LONGEST_PAGES))

    def stages(self, slots: int, pages: int) -> dict[str, Callable[[], None]]:
        """For measuring: each stage by itself, on as many slots of the last step as a bucket has."""
        return {
            "encode": torch.inference_mode()(partial(self._run_encode, self._bucket(slots), pages)),
            "solve": torch.inference_mode()(partial(self._run_solve, self._bucket(slots), pages)),
        }

    def _run_encode(self, slots: int, pages: int) -> None:
        self.graphs.run(("encode", slots, pages), partial(self._encode, slots, pages))

    def _run_solve(self, slots: int, pages: int) -> None:
        self.graphs.run(("solve", slots), partial(self._solve, slots, pages))

    @torch.inference_mode()
    def begin_prompt(
        self,
        tokens: Tensor,
        mel: Tensor,
        embedding: Tensor,
        tail_tokens: int = 0,
        storage: torch.dtype | None = None,
        guidance: float | None = None,
    ) -> PagedPreparation:
        """See `Flow.begin_prompt`; storage is the pool's, whatever is given."""
        own = self.guidance if guidance is None else guidance
        return PagedPreparation(self, tokens, mel, embedding, tail_tokens, own)

    def prepare_prompt(
        self,
        tokens: Tensor,
        mel: Tensor,
        embedding: Tensor,
        tail_tokens: int = 0,
        storage: torch.dtype | None = None,
        guidance: float | None = None,
    ) -> PagedPrompt:
        """See `Flow.prepare_prompt`. Raises PoolFull."""
        preparation = self.begin_prompt(tokens, mel, embedding, tail_tokens, guidance=guidance)
        preparation.advance()
        return preparation.cache()

    def open(self, prompt: PagedPrompt) -> PagedState:
        """Begin a stream after a prepared prompt; it takes no page before its first step."""
        return PagedState(prompt)

    def step(
        self, states: Sequence[PagedState], new_tokens: Sequence[Tensor], final: Sequence[bool]
    ) -> list[Tensor]:
        """See `Flow.step`; and raises PoolFull before anything is computed. Waits for no GPU."""
        packed = self.step_packed(states, new_tokens, final)
        return [packed.mel[begin:end].T for begin, end in packed.spans]

    @torch.inference_mode()
    def step_packed(
        self, states: Sequence[PagedState], new_tokens: Sequence[Tensor], final: Sequence[bool]
    ) -> PackedMel:
        """`step` without any work for each stream on the device: all mels in one tensor."""
        turns = turns_of(states, new_tokens, final)
        taken = self.pool.take(sum(_blocks(turn) for turn in turns))
        try:
            blocks, own = _parted(turns, taken)
            mel = self._compute(blocks)
        except BaseException:
            self.pool.release(taken)
            raise
        spans, begin = [], 0
        for turn, pages, ends in zip(turns, own, final, strict=True):
            hidden = min(turn.frames, len(turn.state.pending_mel))
            spans.append((begin + hidden, begin + turn.frames))
            begin += BLOCK_FRAMES * len(pages)
            turn.state.grow(pages, turn.frames)
            turn.state.pending_tokens = turn.left
            if ends:
                turn.state.release()
        return PackedMel(mel, spans)

    def pages_needed(self, state: PagedState, new_tokens: int, final: bool) -> int:
        """Pages that a step with so many new tokens takes for a stream."""
        waiting = len(state.pending_tokens) + new_tokens
        return -(-waiting // BLOCK_TOKENS) if final else max(0, waiting - LOOKAHEAD_TOKENS) // BLOCK_TOKENS

    def _compute(self, blocks: list[_Block]) -> Tensor:
        """Mel of all blocks in order: [50 * blocks, 80]."""
        most, parts = self._buckets[-1], []
        for begin in range(0, len(blocks), most):
            pack = blocks[begin : begin + most]
            longest = max(len(block.pages) for block in pack)
            pages = next(bucket for bucket in PAGE_BUCKETS if bucket >= longest)
            self._encode_pack(pack, pages)
            self._run_solve(self._bucket(len(pack)), pages)
            parts.append(self._mel[: BLOCK_FRAMES * len(pack)].clone())
        if len(parts) == 1:
            return parts[0]
        return torch.cat(parts) if parts else self._mel[:0].clone()

    def _encode_pack(self, pack: list[_Block], pages: int) -> None:
        """Fill `_mu` for a pack and leave its records on the device. pages: the bucket of its longest stream."""
        most = self._most_slots(pages)
        for begin in range(0, len(pack), most):
            part = pack[begin : begin + most]
            slots = self._bucket(len(part))
            self._slots.load(_slots(part), slots)
            self._run_encode(slots, pages)
            frames = BLOCK_FRAMES * len(part)
            self._mu[BLOCK_FRAMES * begin :][:frames].copy_(self._encoded[:frames])
        if len(pack) > most:
            self._slots.load(_slots(pack), self._bucket(len(pack)))

    def _bucket(self, slots: int) -> int:
        return next(bucket for bucket in self._buckets if bucket >= slots)

    def _most_slots(self, pages: int) -> int:
        """The largest bucket whose encoder graph may look at so many pages."""
        return max((b for b in self._buckets if b * pages <= ENCODER_WORK), default=1)

    def _encode(self, count: int, pages: int) -> None:
        """The first `count` records into `_encoded`. Fixed shapes; the host reads nothing."""
        with _tf32(self.device):
            self._encode_slots(count, pages)

    def _encode_slots(self, count: int, pages: int) -> None:
        slots, encoder = self._slots.slots(count), self.flow.encoder
        embedded = encoder.embed(self.flow.embed_tokens(slots.tokens))  # [S, 28, C]
        embedded = embedded.masked_fill((slots.tokens < 0)[..., None], 0.0)
        window = windows(embedded, LOOKAHEAD_TOKENS + 1).flatten(0, 1)[None]  # [1, 25 S, 4 C]
        tokens = Sight(slots, slots.tokens_here, BLOCK_TOKENS, pages)
        frames = Sight(slots, slots.frames_here, BLOCK_FRAMES, pages)
        token_view = PagedView(self.pool.stores[0], tokens, self._distances)
        frame_view = PagedView(self.pool.stores[1], frames, self._distances)
        encoded = self.flow.encoder_proj(encoder.encode(window, token_view, frame_view))
        self._encoded[: count * BLOCK_FRAMES].copy_(encoded[0])

    def _solve(self, count: int, pages: int) -> None:
        """The first `count` records and `_mu` into `_mel`. Fixed shapes; the host reads nothing.

        pages: what plain torch looks at; kernels look at each stream's own number, so a graph does not depend on it.
        """
        slots, rows = self._slots.slots(count), count * BLOCK_FRAMES
        speaker = slots.speaker[:, None].expand(-1, BLOCK_FRAMES, -1)
        given = torch.cat([self._mu[:rows].view(count, BLOCK_FRAMES, -1), speaker, slots.prompt_mel], dim=-1)
        given = given.flatten(0, 1).to(self.compute)
        conditions = torch.stack([given, torch.zeros_like(given)])  # with, and without any condition
        noise = self._noise.index_select(0, slots.block).flatten(0, 1)
        sight = Sight(slots, slots.frames_here, BLOCK_FRAMES, pages)
        views = [PagedView(self.pool.stores[2], sight, self._distances, step) for step in range(self.steps)]

        estimator = self._fused if count <= self._fused_slots else self._estimator
        x = noise
        for step in range(self.steps):
            given_x = x.to(self.compute).expand(LANES, -1, -1)
            velocities = estimator(given_x, conditions, self._times[step], views[step])
            x = self._euler(x, velocities, self._lengths[step], slots.guidance)
        self._mel[:rows].copy_(x)


class PagedPreparation:
    """See `prompt.PromptPreparation`. Its pages go to the prompt that `cache` gives, or back to the pool."""

    def __init__(
        self, flow: PagedFlow, tokens: Tensor, mel: Tensor, embedding: Tensor, tail_tokens: int, guidance: float
    ) -> None:
        if len(mel) != FRAMES_PER_TOKEN * len(tokens):
            raise ValueError(f"prompt mel has {len(mel)} frames for {len(tokens)} tokens, not twice as many")
        tokens, mel = align_prompt(tokens, mel, tail_tokens)
        speaker = flow.speaker(embedding.to(flow.device))
        self._flow = flow
        self._state = unbegun(flow.pool, on_host(speaker), on_host(mel), guidance)
        self._waiting = tokens.cpu()

    def advance(self, blocks: int | None = None) -> bool:
        """Compute so many blocks more, or all that are left; gives whether the prompt is whole now. Raises PoolFull."""
        room = len(self._waiting) if blocks is None else blocks * BLOCK_TOKENS
        if not self._state.frames:
            room += LOOKAHEAD_TOKENS
        self._flow.step_packed([self._state], [self._waiting[:room]], [False])
        self._waiting = self._waiting[room:]  # only now: a step that fails has taken nothing
        return not len(self._waiting)

    def cache(self) -> PagedPrompt:
        """What streams of this voice share; only once `advance` has said that it is whole."""
        return self._state.yielded()

    def release(self) -> None:
        """Prepare no further and give the pages back."""
        self._state.release()


@contextmanager
def _tf32(device: torch.device) -> Iterator[None]:
    """On a GPU products of float32 by its TF32 cores: 11 bits of each factor, sums in float32. On a CPU as ever."""
    before = torch.get_float32_matmul_precision()
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        if device.type == "cuda":
            torch.set_float32_matmul_precision(before)


def paged_rates(flow: Flow, storage: torch.dtype, compute: torch.dtype) -> list[PagedRate]:
    """What a page holds for each of the three rates. Of the encoder, which is 1 % of it, all is kept in float32."""
    token, frame, solve = rate_memories(flow)
    whole = torch.float32
    return [
        PagedRate(token, BLOCK_TOKENS, 1, 1, whole, whole),
        PagedRate(frame, BLOCK_FRAMES, 1, 1, whole, whole),
        PagedRate(solve, BLOCK_FRAMES, flow.steps, LANES, storage, compute),
    ]


def _blocks(turn: Turn[PagedState]) -> int:
    return -(-turn.frames // BLOCK_FRAMES)


def _parted(turns: Sequence[Turn[PagedState]], taken: list[int]) -> tuple[list[_Block], list[list[int]]]:
    """The blocks of all streams in order, and the pages that each stream gets of those taken."""
    blocks, own, begin = [], [], 0
    for turn in turns:
        pages = taken[begin : begin + _blocks(turn)]
        begin += len(pages)
        own.append(pages)
        if pages:
            # None below 0, as `Flow.embed_tokens` has it. In numpy, since torch takes several times as long for so few.
            tokens = np.concatenate([turn.tokens.numpy(), turn.ahead.numpy()])
            tokens = np.maximum(tokens, 0).astype(np.int32)
            blocks += [
                _Block(turn, number, tokens, [*turn.state.pages, *pages]) for number in range(len(pages))
            ]
    return blocks, own


def _slots(blocks: Sequence[_Block]) -> list[BlockSlot]:
    slots: list[BlockSlot] = []
    for number, block in enumerate(blocks):
        same = number > 0 and block.turn is blocks[number - 1].turn
        slots.append(block.slot(slots[-1].follows + 1 if same else 0))
    return slots
