"""Paged streams of the flow against one whole solve under the streaming mask, and what becomes of their pages."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from studio.models.flow import Flow
from studio.models.flow.estimator import CausalConditionalDecoder, GeluFeedForward
from studio.models.flow.paged import PagedFlow, PagedState, PoolFull
from studio.models.flow.paged.estimator import feed, feed_at_once
from studio.models.flow.paged.flow import takes_products
from studio.models.flow.sizes import FlowConfig
from tests.cosyvoice3 import tensors as cosyvoice3_tensors
from tests.parity.test_flow_streaming import (
    Voice,
    _scripts,
    assert_same,
    play,
    rows_of_each_guidance,
    tokens,
)

STEPS = 3


@pytest.fixture(scope="module")
def flow(weights: Callable[..., dict[str, torch.Tensor]]) -> Flow:
    return Flow.from_tensors(weights("mini", "flow"), estimator_head_dim=32, steps=STEPS)


def paged_of(
    flow: Flow,
    pages: int = 40,
    storage: torch.dtype = torch.float32,
    compute: torch.dtype = torch.float32,
    max_slots: int = 4,
    fused_slots: int = 2,
) -> PagedFlow:
    page_bytes = PagedFlow.page_bytes_of(flow, storage, compute)
    pool_bytes = (pages + 2) * page_bytes
    return PagedFlow(
        flow, pool_bytes=pool_bytes, storage=storage, compute=compute, max_slots=max_slots, fused_slots=fused_slots
    )


@pytest.fixture(scope="module")
def paged(flow: Flow) -> PagedFlow:
    return paged_of(flow)


@pytest.fixture(autouse=True)
def _every_page_comes_back(paged: PagedFlow) -> Iterator[None]:
    yield
    assert paged.pool.figures().free == paged.pool.pages


def snr_db(got: torch.Tensor, expected: torch.Tensor) -> float:
    return 10 * torch.log10(expected.square().sum() / (got - expected).square().sum()).item()


def opened(paged: PagedFlow, voice: Voice, tail: int = 0) -> PagedState:
    return paged.open(paged.prepare_prompt(voice.tokens, voice.mel, voice.embedding, tail_tokens=tail))


@pytest.mark.parametrize("hops", [[], [28, 25, 25], [0, 27, 1, 24, 1, 30], [3, 25, 47]])
def test_any_split_equals_one_whole_solve(flow: Flow, paged: PagedFlow, hops: list[int]) -> None:
    voice, spoken = Voice(58), tokens(111)
    got = play(paged, opened(paged, voice), spoken, hops)
    assert got.shape == (80, 222)
    assert_same(got, voice.whole(flow, spoken))


@pytest.mark.parametrize(
    ("prompt_tokens", "tail"), [(0, 0), (1, 0), (24, 3), (25, 0), (27, 1), (53, 12), (110, 12), (53, 15), (75, 3)]
)
def test_any_prompt_length_and_tail_equals_one_whole_solve(
    flow: Flow, paged: PagedFlow, prompt_tokens: int, tail: int
) -> None:
    voice, spoken = Voice(prompt_tokens), tokens(40)
    state = opened(paged, voice, tail)
    assert state.first_block_tokens == voice.opened(flow, tail_tokens=tail).first_block_tokens
    assert_same(play(paged, state, spoken, [30]), voice.whole(flow, spoken, tail))


@pytest.mark.parametrize("remainder", [0, 1, 12, 24])
def test_final_block_of_any_length_equals_one_whole_solve(
    flow: Flow, paged: PagedFlow, remainder: int
) -> None:
    voice, spoken = Voice(3), tokens(22 + remainder)
    assert_same(play(paged, opened(paged, voice), spoken, [25]), voice.whole(flow, spoken))


def test_stream_without_any_token_gives_no_mel(paged: PagedFlow) -> None:
    for prompt_tokens in (0, 10, 53):
        assert play(paged, opened(paged, Voice(prompt_tokens)), tokens(0), []).shape == (80, 0)


def test_rows_of_any_length_and_hop_in_one_pack_equal_whole_solves(flow: Flow, paged: PagedFlow) -> None:
    """Up to 11 blocks a step, so that packs of four slots part rows in their midst."""
    scripts = _scripts()
    states, given = [opened(paged, voice) for voice, _, _ in scripts], [0] * len(scripts)
    mels: list[list[torch.Tensor]] = [[] for _ in scripts]
    for turn in range(4):
        parts = []
        for row, (_, spoken, hops) in enumerate(scripts):
            end = given[row] + hops[turn] if turn < 3 else len(spoken)
            parts.append(spoken[given[row] : end])
            given[row] = end
        packed = paged.step_packed(states, parts, [turn == 3] * len(scripts))
        for row, (begin, end) in enumerate(packed.spans):
            mels[row].append(packed.mel[begin:end].T)
    for made, (voice, spoken, _) in zip(mels, scripts, strict=True):
        assert_same(torch.cat(made, dim=1), voice.whole(flow, spoken))


def test_encoder_that_takes_a_pack_in_parts_gives_the_same(
    flow: Flow, paged: PagedFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("studio.models.flow.paged.flow.ENCODER_WORK", 8)
    voice, spoken = Voice(53), tokens(100)
    assert_same(play(paged, opened(paged, voice), spoken, []), voice.whole(flow, spoken))


def test_row_depends_neither_on_its_neighbours_nor_on_padding(paged: PagedFlow) -> None:
    """Seen: 2e-6, from products of another height."""
    first = opened(paged, Voice(53, 1))
    (alone,) = paged.step([first], [tokens(40, 1)], [True])
    row, long, short = (opened(paged, Voice(n, s)) for n, s in ((53, 1), (75, 3), (0, 4)))
    together = paged.step(
        [long, row, short], [tokens(90, 3), tokens(40, 1), tokens(3, 4)], [False, True, True]
    )[1]
    assert_same(together, alone, 1e-5)
    long.release()


def test_streams_of_different_guidance_in_one_pack_equal_whole_solves_of_their_own(
    flow: Flow, paged: PagedFlow
) -> None:
    guidances: list[float | None] = [None, 2.0, 0.0]
    made = rows_of_each_guidance(paged, guidances)
    for mel, guidance in zip(made, guidances, strict=True):
        assert_same(mel, Voice(53).whole(flow, tokens(70), guidance=guidance))


def test_streams_of_one_prompt_share_its_pages_and_leave_them_unharmed(flow: Flow, paged: PagedFlow) -> None:
    voice = Voice(53)
    prompt = paged.prepare_prompt(voice.tokens, voice.mel, voice.embedding)
    assert prompt.frames == 50 and prompt.bytes == paged.page_bytes
    kept = [store.keys_values[:, :, prompt.pages].clone() for store in paged.pool.stores]
    states = [paged.open(prompt) for _ in range(2)]
    assert (paged.pool.figures().free, paged.pool.figures().shared) == (39, 1)
    parts = [tokens(60, seed) for seed in range(2)]
    for mel, part in zip(paged.step(states, parts, [True] * 2), parts, strict=True):
        assert_same(mel, voice.whole(flow, part))
    for store, before in zip(paged.pool.stores, kept, strict=True):
        assert torch.equal(store.keys_values[:, :, prompt.pages], before)
    assert (paged.pool.figures().free, paged.pool.figures().shared) == (39, 0)
    late = paged.open(prompt)
    prompt.release()
    assert_same(play(paged, late, parts[0], [30]), voice.whole(flow, parts[0]))


def test_pages_are_counted_and_come_back_after_end_abort_and_being_forgotten(paged: PagedFlow) -> None:
    state = opened(paged, Voice(53))
    paged.step([state], [tokens(60)], [False])
    assert paged.pages_needed(state, 40, False) == 1 and paged.pages_needed(state, 40, True) == 2
    assert state.bytes == 3 * paged.page_bytes and paged.pool.figures().free == 36
    paged.step([state], [tokens(40)], [True])
    assert paged.pool.figures().free == 40 and state.bytes == 0
    aborted = opened(paged, Voice(53))
    paged.step([aborted], [tokens(60)], [False])
    aborted.release()
    aborted.release()
    assert paged.pool.figures().free == 40
    with pytest.raises(ValueError, match="final"):
        paged.step([aborted], [tokens(30)], [False])
    forgotten = opened(paged, Voice(53))
    paged.step([forgotten], [tokens(60)], [False])
    del forgotten
    gc.collect()
    assert paged.pool.figures().free == 40


def test_step_that_fails_has_moved_nobody_and_keeps_no_page(
    flow: Flow, paged: PagedFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    voice, spoken = Voice(25), tokens(80)
    states = [opened(paged, voice) for _ in range(2)]
    paged.step(states, [spoken[:30]] * 2, [False] * 2)
    free = paged.pool.figures().free

    def broken(*_: object) -> torch.Tensor:
        raise RuntimeError("device lost")

    with monkeypatch.context() as patch:
        patch.setattr(flow.estimator.final_proj, "forward", broken)
        with pytest.raises(RuntimeError, match="device lost"):
            paged.step(states, [spoken[30:]] * 2, [True] * 2)
    assert paged.pool.figures().free == free
    for mel in paged.step(states, [spoken[30:]] * 2, [True] * 2):
        assert_same(mel, voice.whole(flow, spoken)[:, 50:])


def test_step_without_pages_is_refused_before_anything_moves(flow: Flow) -> None:
    paged = paged_of(flow, pages=4)
    voice, spoken = Voice(25), tokens(60)
    prompt = paged.prepare_prompt(voice.tokens, voice.mel, voice.embedding, tail_tokens=3)
    states = [paged.open(prompt) for _ in range(2)]
    with pytest.raises(PoolFull, match="8 pages are needed and 4 are free"):
        paged.step(states, [spoken] * 2, [True] * 2)
    assert isinstance(PoolFull(), torch.OutOfMemoryError)  # what token2wav's ladder knows
    whole = voice.whole(flow, spoken, 3)
    (first,) = paged.step(states[:1], [spoken], [True])
    (second,) = paged.step(states[1:], [spoken], [True])
    assert_same(first, whole)
    assert_same(second, whole)
    with pytest.raises(PoolFull):
        paged.prepare_prompt(tokens(200), Voice(200).mel, voice.embedding)
    assert paged.pool.figures().free == 4
    with pytest.raises(ValueError, match="holds nothing"):
        paged_of(flow, pages=0)


def test_wrong_calls_are_refused_before_anything_moves(flow: Flow, paged: PagedFlow) -> None:
    voice, spoken = Voice(25), tokens(40)
    state = opened(paged, voice)
    with pytest.raises(ValueError, match="twice"):
        paged.step([state, state], [spoken, spoken], [False, False])
    with pytest.raises(ValueError, match="noise ends at 15000"):
        paged.step([state], [tokens(7600)], [False])
    with pytest.raises(ValueError, match="not twice"):
        paged.prepare_prompt(voice.tokens, voice.mel[1:], voice.embedding)
    assert_same(play(paged, state, spoken, [30]), voice.whole(flow, spoken))


def test_prompt_computed_in_turns_gives_the_same_streams(flow: Flow, paged: PagedFlow) -> None:
    voice, spoken = Voice(128), tokens(30)
    preparation = paged.begin_prompt(voice.tokens, voice.mel, voice.embedding, 3)
    turns = 1
    while not preparation.advance(1):
        turns += 1
    assert turns == 5
    assert_same(play(paged, paged.open(preparation.cache()), spoken, []), voice.whole(flow, spoken, 3))
    given_up = paged.begin_prompt(voice.tokens, voice.mel, voice.embedding, 3)
    given_up.advance(2)
    given_up.release()


@pytest.mark.parametrize(
    ("storage", "compute", "least_db"),
    [
        (torch.float16, torch.float32, 60),
        (torch.bfloat16, torch.float32, 45),
        (torch.float8_e4m3fn, torch.float32, 30),
        (torch.float8_e4m3fn, torch.bfloat16, 30),
        (torch.float8_e4m3fn, torch.float16, 30),
    ],
)
def test_smaller_types_stay_near(
    flow: Flow, storage: torch.dtype, compute: torch.dtype, least_db: float
) -> None:
    paged = paged_of(flow, 10, storage, compute)
    voice, spoken = Voice(53), tokens(111)
    whole = voice.whole(flow, spoken)
    assert snr_db(play(paged, opened(paged, voice), spoken, [28, 25]), whole) > least_db
    full = PagedFlow.page_bytes_of(flow, torch.float32, torch.float32)
    assert paged.page_bytes < full * storage.itemsize / 4 * 1.2


def test_thirty_seconds_in_hops_equal_one_whole_solve(flow: Flow, paged: PagedFlow) -> None:
    voice, spoken = Voice(28), tokens(750)
    got = play(paged, opened(paged, voice, 3), spoken, [28, 25, 50, 100, 100, 100, 100, 100, 100])
    assert_same(got, voice.whole(flow, spoken, 3))


class Operations(TorchDispatchMode):
    """Names of all that torch does within."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.names.add(str(operation))
        return operation(*args, **(kwargs or {}))


HOST = ("scalar_tensor", "local_scalar", "item", "lift_fresh", "nonzero", "unique", "masked_select")
"""What copies between host and device, or has a shape that depends on values: none may stand in a CUDA graph."""


def test_no_stage_reads_or_feeds_the_host(paged: PagedFlow) -> None:
    """A number beside a tensor in torch.where was copied to the device, which no capture allows."""
    for work in (paged._encode, paged._solve):
        with torch.no_grad(), Operations() as done:
            work(2, 8)
        assert len(done.names) > 20
        assert not [name for name in done.names if any(word in name for word in HOST)]


def test_cosyvoice3_streams_over_pages_as_well(paged: PagedFlow) -> None:
    flow = Flow.from_tensors(cosyvoice3_tensors("flow"), steps=STEPS)
    own = paged_of(flow, 8)
    voice, spoken = Voice(25), tokens(70)
    assert_same(play(own, opened(own, voice), spoken, [30]), voice.whole(flow, spoken))
    with pytest.raises(ValueError, match="float32 alone"):
        paged_of(flow, 8, compute=torch.bfloat16)


def test_feed_forward_with_gelu_in_its_product_is_as_near_to_the_exact_layer() -> None:
    """In bfloat16, of which the library rounds what the product found before it takes GELU of it."""
    torch.manual_seed(0)
    exact = GeluFeedForward(64, 256)
    x = torch.randn(2, 50, 64)
    with torch.no_grad():
        wanted = exact(x)
        layer = copy.deepcopy(exact).bfloat16()
        apart, at_once = (call(layer, x.bfloat16()).float() for call in (feed, feed_at_once))
    assert at_once.shape == wanted.shape
    assert snr_db(at_once, wanted) > 40 and snr_db(at_once, wanted) > snr_db(apart, wanted) - 1


@pytest.mark.parametrize(("kilobytes", "holds"), [(228, True), (164, True), (100, False), (64, False)])
def test_products_of_ours_are_for_gpus_with_the_memory_for_them(
    monkeypatch: pytest.MonkeyPatch, kilobytes: int, holds: bool
) -> None:
    """Hopper, Ampere's A100, Ada and Turing, as torch tells of a core of theirs."""
    gpu_with(monkeypatch, kilobytes)
    estimator = CausalConditionalDecoder(FlowConfig(estimator_mid_blocks=1)).to(torch.bfloat16)
    assert takes_products(estimator, torch.device("cuda")) is holds
    assert not takes_products(estimator.to(torch.float32), torch.device("cuda"))


@pytest.mark.parametrize(("channels", "fits"), [(256, True), (48, True), (24, False), (40, False), (250, False)])
def test_products_of_ours_are_for_channels_that_their_tiles_divide(
    monkeypatch: pytest.MonkeyPatch, channels: int, fits: bool
) -> None:
    """Triton multiplies nothing less than 16 deep: of other channels no kernel could be built for a graph."""
    gpu_with(monkeypatch, 228)
    config = FlowConfig(estimator_channels=channels, estimator_mid_blocks=1, estimator_transformers=1)
    estimator = CausalConditionalDecoder(config).to(torch.bfloat16)
    assert takes_products(estimator, torch.device("cuda")) is fits
    assert takes_products(estimator, torch.device("cpu"))  # where plain torch stands for the kernels


def gpu_with(monkeypatch: pytest.MonkeyPatch, kilobytes: int) -> None:
    """As torch tells of a GPU whose cores have so much shared memory each."""
    told = SimpleNamespace(shared_memory_per_multiprocessor=kilobytes * 1024)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: told)
