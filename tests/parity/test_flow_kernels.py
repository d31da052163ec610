"""The flow's Triton kernels against plain torch: on a GPU, or with Triton and TRITON_INTERPRET=1.

The interpreter multiplies no bfloat16 and rounds to 8 bits by a law of its own, so there it is float16 over pages that
torch has rounded.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from studio.bench.flow_kernels import pack
from studio.models.flow.paged import attention, products
from studio.models.flow.paged.attention import Sight, raw
from studio.models.flow.sizes import BLOCK_FRAMES

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


def test_keys_in_8_bits_end_at_the_largest_and_not_at_nan() -> None:
    from studio.models.flow.paged import attention_kernels

    sight: Sight = pack(DEVICE, [[2]], (BLOCK_FRAMES,), 1, 8)
    kept = attention.stored(drawn(3, 1, 2, HEADS, BLOCK_FRAMES, WIDTH), torch.float8_e4m3fn)
    query, key, value = (1e4 * drawn(3, 1, BLOCK_FRAMES, HEADS, WIDTH)).unbind(0)
    attention_kernels.attend(query, key, value, kept, sight)
    assert not (raw(kept)[2] & 0x7F == 0x7F).any()
    assert kept[2].float().abs().max() == 448
