"""The flow's Triton kernels against plain torch: on a GPU, or with Triton and TRITON_INTERPRET=1.

The interpreter multiplies no bfloat16 and rounds to 8 bits by a law of its own, so there it is float16 over pages that
torch has rounded.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from studio.bench.flow_kernels import pack
from studio.models.flow import Flow
from studio.models.flow.paged import PagedFlow, attention, products
from studio.models.flow.paged.attention import Sight, raw
from studio.models.flow.sizes import BLOCK_FRAMES
from tests.parity.test_flow_streaming import Voice, assert_same, tokens

ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # test code: the studio's settings do not know it
pytestmark = pytest.mark.skipif(
    not (importlib.util.find_spec("triton") and (ON_GPU or INTERPRETED)),
    reason="Triton, and a GPU or its interpreter",
)
HEADS, WIDTH, CHANNELS = 2, 32, 64


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.inference_mode():
        yield


def drawn(*size: int, kind: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(size).to(DEVICE, kind)


def near(got: torch.Tensor, expected: torch.Tensor, most: float) -> None:
    assert got.dtype == expected.dtype and got.shape == expected.shape
    error = (got.float() - expected.float()).abs().max() / expected.float().abs().max()
    assert error <= most, f"{error:.2e}"


def rows_of(lengths: list[int]) -> list[list[int]]:
    """Pages of streams of so many, none shared, ids in no order."""
    ids = (torch.randperm(sum(lengths)) + 2).tolist()
    return [[ids.pop() for _ in range(length)] for length in lengths]


@pytest.mark.parametrize("splits", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("pages", [1, 2, 3, 61])
@pytest.mark.parametrize(
    ("kind", "kept_as", "most"),
    [
        (torch.float32, torch.float32, 1e-5),
        (torch.float16, torch.float8_e4m3fn, 2e-3),
        (torch.float16, torch.float16, 2e-3),
        pytest.param(torch.bfloat16, torch.float8_e4m3fn, 1e-2, marks=pytest.mark.skipif(not ON_GPU, reason="a GPU")),
        pytest.param(torch.bfloat16, torch.bfloat16, 1e-2, marks=pytest.mark.skipif(not ON_GPU, reason="a GPU")),
    ],
)  # fmt: skip
def test_attention_says_what_torch_says_whatever_the_splits(
    monkeypatch: pytest.MonkeyPatch, splits: int, pages: int, kind: torch.dtype, kept_as: torch.dtype, most: float
) -> None:
    """Three streams and padding; of two the last block is not full."""
    from studio.models.flow.paged import attention_kernels

    monkeypatch.setattr(attention_kernels, "SPLITS", ((8, splits),))
    rows = rows_of([pages, 1, 4])
    sight = pack(DEVICE, rows, (2, BLOCK_FRAMES, 38), 4, 64)
    kept = attention.stored(drawn(2 + sum(map(len, rows)), 2, 2, HEADS, BLOCK_FRAMES, WIDTH), kept_as)
    query = drawn(2, 4 * BLOCK_FRAMES, HEADS, WIDTH, kind=kind)
    got = attention_kernels.attend_kept(query, kept, sight)
    near(got, attention.attend_kept(query, kept, sight), most)


@pytest.mark.parametrize("pages", [1, 2, 3, 4, 13])
@pytest.mark.parametrize(
    "kind", [torch.float16, pytest.param(torch.bfloat16, marks=pytest.mark.skipif(not ON_GPU, reason="a GPU"))]
)
def test_attention_says_the_same_in_the_tiles_of_a_large_pack(
    monkeypatch: pytest.MonkeyPatch, pages: int, kind: torch.dtype
) -> None:
    """Which are narrow, and looked at without a mask but for the first and the last."""
    from studio.models.flow.paged import attention_kernels

    monkeypatch.setattr(attention_kernels, "SPLITS", ())
    monkeypatch.setattr(attention_kernels, "FEW_SLOTS", 0)
    rows = rows_of([pages, 1, 9])
    sight = pack(DEVICE, rows, (2, BLOCK_FRAMES, 38), 4, 16)
    kept = attention.stored(
        drawn(2 + sum(map(len, rows)), 2, 2, HEADS, BLOCK_FRAMES, WIDTH), torch.float8_e4m3fn
    )
    query = drawn(2, 4 * BLOCK_FRAMES, HEADS, WIDTH, kind=kind)
    got = attention_kernels.attend_kept(query, kept, sight)
    near(got, attention.attend_kept(query, kept, sight), 2e-3 if kind == torch.float16 else 1e-2)


def test_rows_of_a_pack_depend_neither_on_neighbours_nor_on_where_their_pages_lie() -> None:
    from studio.models.flow.paged import attention_kernels

    rows = rows_of([5, 61, 1])
    kept = drawn(2 + 67, 2, 2, HEADS, BLOCK_FRAMES, WIDTH)
    query = drawn(2, 4 * BLOCK_FRAMES, HEADS, WIDTH)
    all_rows = attention_kernels.attend_kept(query, kept, pack(DEVICE, rows, (38, BLOCK_FRAMES, 7), 4, 64))
    moved = drawn(*kept.shape)
    moved[[20, 7, 9, 31, 4]] = kept[rows[0]]
    sight = pack(DEVICE, [[20, 7, 9, 31, 4]], (38,), 4, 8)
    alone = attention_kernels.attend_kept(query, moved, sight)
    assert torch.equal(alone[:, :BLOCK_FRAMES], all_rows[:, :BLOCK_FRAMES])


@pytest.mark.parametrize("pages", [1, 3, 9])
def test_relative_attention_finds_each_distance(pages: int) -> None:
    from studio.models.flow.paged import attention_kernels

    rows = rows_of([pages, 2])
    sight = pack(DEVICE, rows, (30, BLOCK_FRAMES), 2, 16)
    kept = drawn(2 + pages + 2, 1, 2, HEADS, BLOCK_FRAMES, WIDTH)
    also = kept.clone()
    query, key, value = drawn(3, 1, 2 * BLOCK_FRAMES, HEADS, WIDTH).unbind(0)
    scores = drawn(HEADS, 2 * BLOCK_FRAMES, 17 * BLOCK_FRAMES - 1)
    got = attention_kernels.attend(query, key, value, kept, sight, scores)
    near(got, attention.attend(query, key, value, also, sight, scores), 1e-5)
    assert torch.equal(kept, also)


@pytest.mark.parametrize("bound", [(0, 0), (0, 10_000), (10_000, 10_000)])
@pytest.mark.parametrize("channels", [CHANNELS, 80])
def test_products_say_what_torch_says_with_tiles_of_any_size(
    monkeypatch: pytest.MonkeyPatch, bound: tuple[int, int], channels: int
) -> None:
    from studio.models.flow.paged import product_kernels

    monkeypatch.setattr(product_kernels, "FEW_ROWS", bound[0])
    monkeypatch.setattr(product_kernels, "SOME_ROWS", bound[1])
    sight = pack(DEVICE, [[2, 3], [2, 3, 4], [5]], (BLOCK_FRAMES, 12, BLOCK_FRAMES), 3, 8)
    kind, most = (torch.bfloat16, 1e-2) if ON_GPU else (torch.float32, 1e-5)
    x = drawn(2, 3 * BLOCK_FRAMES, channels, kind=kind)
    norm = nn.LayerNorm(channels).to(DEVICE, kind)
    norm.weight.copy_(drawn(channels))
    norm.bias.copy_(drawn(channels))
    qkv = drawn(channels, 3 * HEADS * WIDTH, kind=kind)
    kept = drawn(6, 2, 2, HEADS, BLOCK_FRAMES, WIDTH, kind=kind)
    also = kept.clone()
    query = product_kernels.norm_qkv(x, norm, qkv, kept, sight, HEADS)
    near(query, products.norm_qkv(x, norm, qkv, also, sight, HEADS), most)
    near(kept, also, most)
    assert torch.equal(kept[2], also[2])  # nobody's own
    first, plus = drawn(channels, 144, kind=kind), drawn(144, kind=kind)
    inner = product_kernels.norm_gelu(x, norm, first, plus)
    near(inner, products.norm_gelu(x, norm, first, plus), most)
    second, bias = drawn(144, channels, kind=kind), drawn(channels, kind=kind)
    near(product_kernels.product_sum(inner, second, bias, x), products.product_sum(inner, second, bias, x), most)


@pytest.mark.parametrize("few_rows", [0, 10_000])
@pytest.mark.parametrize(
    ("channels", "added", "beside"), [(CHANNELS, True, 0), (80, False, 96), (CHANNELS, False, 0)]
)
def test_convolution_says_what_torch_says_and_keeps_its_edges(
    monkeypatch: pytest.MonkeyPatch, few_rows: int, channels: int, added: bool, beside: int
) -> None:
    """The second slot goes on with the first's stream; the third begins one, the fourth goes on with another's page."""
    from studio.models.flow.paged import conv_kernels

    monkeypatch.setattr(conv_kernels, "FEW_ROWS", few_rows)
    kind, most = (torch.bfloat16, 1e-2) if ON_GPU else (torch.float32, 1e-5)
    sight = pack(DEVICE, [[2, 3], [2, 3, 4], [5], [6, 7]], (BLOCK_FRAMES, BLOCK_FRAMES, 12, 50), 4, 8)
    norm = nn.LayerNorm(48).to(DEVICE, kind)
    norm.weight.copy_(drawn(48))
    norm.bias.copy_(drawn(48))
    conv = products.Convolution(drawn(3 * channels, 48, kind=kind), drawn(48, kind=kind), 3, 0, norm)
    x = drawn(2, 4 * BLOCK_FRAMES, channels, kind=kind)
    time = drawn(1, 1, 48, kind=kind) if added else None
    straight = None
    if beside:
        other = drawn(2, 4 * BLOCK_FRAMES, beside, kind=kind)
        straight = products.Straight(other, drawn(beside, 48, kind=kind), drawn(48, kind=kind))
    edges = drawn(8, 2, 2, channels, kind=kind)
    edges[0] = 0
    also = edges.clone()
    got = conv_kernels.conv_norm(x, conv, edges, sight, time, straight)
    near(got, products.conv_norm(x, conv, also, sight, time, straight), most)
    assert torch.equal(edges, also)


@pytest.mark.skipif(ON_GPU, reason="there `studio.bench.flow_step` tells it, of the types that are shipped")
def test_stream_by_kernels_alone_equals_one_whole_solve(
    monkeypatch: pytest.MonkeyPatch, weights: Callable[..., dict[str, torch.Tensor]]
) -> None:
    """Two hops of a stream beside another, by what a GPU runs, put where plain torch stands on a CPU. Two minutes."""
    from studio.models.flow.paged import attention_kernels, conv_kernels, product_kernels, window_kernels

    for module, names in (
        (attention_kernels, "attend attend_kept"),
        (product_kernels, "norm_qkv norm_gelu product_sum"),
        (conv_kernels, "conv_norm"),
        (window_kernels, "window"),
    ):
        plain = products if module in (product_kernels, conv_kernels) else attention
        for name in names.split():
            monkeypatch.setattr(plain, name, getattr(module, name))
    flow = Flow.from_tensors(weights("mini", "flow"), estimator_head_dim=32, steps=1)
    page_bytes = PagedFlow.page_bytes_of(flow, torch.float32, torch.float32)
    paged = PagedFlow(flow, pool_bytes=10 * page_bytes, max_slots=2)
    voice, spoken = Voice(3), tokens(40)
    prompt = paged.prepare_prompt(voice.tokens, voice.mel, voice.embedding, tail_tokens=3)
    row, other = paged.open(prompt), paged.open(prompt)
    (first, _) = paged.step([row, other], [spoken[:25], tokens(25, 5)], [False, False])
    (rest,) = paged.step([row], [spoken[25:]], [True])
    assert_same(torch.cat([first, rest], dim=1), voice.whole(flow, spoken, 3))
    other.release()


def test_keys_in_8_bits_end_at_the_largest_and_not_at_nan() -> None:
    from studio.models.flow.paged import attention_kernels

    sight: Sight = pack(DEVICE, [[2]], (BLOCK_FRAMES,), 1, 8)
    kept = attention.stored(drawn(3, 1, 2, HEADS, BLOCK_FRAMES, WIDTH), torch.float8_e4m3fn)
    query, key, value = (1e4 * drawn(3, 1, BLOCK_FRAMES, HEADS, WIDTH)).unbind(0)
    attention_kernels.attend(query, key, value, kept, sight)
    assert not (raw(kept)[2] & 0x7F == 0x7F).any()
    assert kept[2].float().abs().max() == 448
