"""What of the vocoder's windows a GPU alone shows: the fused kernel and the graphs.

The kernel also runs here with Triton installed and TRITON_INTERPRET=1.
"""

import os

import pytest
import torch

from studio.models.hift import Hift, HiftConfig
from studio.models.hift.window import WindowedHift
from studio.models.hift.window_kernels import (
    CHANNELS_INNERMOST,
    HAS_TRITON,
    LARGEST_HALF,
    Leak,
    Snake,
    activated,
    summed,
    summed_and_activated,
)

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # test code: the studio's settings do not know it


@pytest.mark.skipif(
    not (HAS_TRITON and (ON_GPU or INTERPRETED)), reason="Triton, and a GPU or its interpreter"
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize(("rows", "channels", "length"), [(2, 64, 37), (1, 20, 300), (3, 128, 20)])
def test_kernel_says_what_torch_says(monkeypatch, rows, channels, length, dtype):
    def drawn(dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """The middle of longer rows, as what is cut out of a wider span."""
        values = torch.randn(rows, channels, 1, length + 5, device=DEVICE).to(dtype)
        return values.contiguous(memory_format=CHANNELS_INNERMOST)[..., 2:-3]

    def all_ways(fused: bool) -> list[torch.Tensor]:
        monkeypatch.setattr("studio.models.hift.window_kernels._fused", lambda x: fused)
        return [
            activated(x, None, None, by=snake, dtype=dtype),
            activated(y, bias, mask, by=snake, dtype=dtype),
            activated(y, bias, mask, by=Leak(0.1), dtype=dtype),
            activated(y, bias, mask, x, beside, by=Leak(0.01, 1 / 3), dtype=dtype),
            activated(y, bias, mask, x, beside, by=Leak(0.01, 1 / 3), dtype=torch.float32),
            summed(y, bias, mask),
            summed(y, bias, mask, x),
            summed(y, bias, mask, x, beside),
            *summed_and_activated(y, bias, mask, by=snake, dtype=dtype),
            *summed_and_activated(y, bias, mask, x, by=snake, dtype=dtype),
        ]

    x, y, beside, bias = drawn(), drawn(dtype), drawn(), torch.randn(channels, device=DEVICE)
    mask = (torch.rand(rows, length + 5, device=DEVICE) > 0.3).float()[:, 2:-3]
    snake = Snake.of(3 * torch.rand(channels, device=DEVICE))
    for given, wanted in zip(all_ways(True), all_ways(False), strict=True):
        assert given.dtype == wanted.dtype
        assert all(made.is_contiguous(memory_format=CHANNELS_INNERMOST) for made in (given, wanted))
        # the last bit of float16, where the two round a value between two of its numbers each its own way
        apart = {"atol": 2e-6, "rtol": 2**-10 if given.dtype == torch.float16 else 0}
        torch.testing.assert_close(given, wanted, **apart)


@pytest.mark.skipif(
    not (HAS_TRITON and (ON_GPU or INTERPRETED)), reason="Triton, and a GPU or its interpreter"
)
@pytest.mark.parametrize("fused", [True, False])
def test_what_goes_beyond_float16_is_held_at_its_end(monkeypatch, fused):
    monkeypatch.setattr("studio.models.hift.window_kernels._fused", lambda x: fused)
    end, nan = LARGEST_HALF, float("nan")

    def image(values: list[float], dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor(values, device=DEVICE).view(1, 1, 1, -1).to(dtype)

    y = image([torch.inf, -torch.inf, nan, 1.0], torch.float16)
    bias, mask = torch.zeros(1, device=DEVICE), torch.ones(1, 4, device=DEVICE)
    held = image([end, -end, nan, 1.0], torch.float32)
    torch.testing.assert_close(summed(y, bias, mask), held, equal_nan=True)
    loud = image([1e9, -1e9, nan, 1.0], torch.float32)
    active = activated(loud, bias, mask, by=Leak(1.0), dtype=torch.float16)
    torch.testing.assert_close(active, held.half(), equal_nan=True)
    total = summed(y, bias, mask, loud)
    torch.testing.assert_close(total, image([1e9 + end, -1e9 - end, nan, 2.0], torch.float32), equal_nan=True)


@pytest.mark.skipif(not ON_GPU, reason="a GPU")
@pytest.mark.parametrize(("precision", "apart"), [("float32", 1e-4), ("float16", 2e-2)])
def test_graphs_give_what_the_exact_stream_gives(monkeypatch, precision, apart):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.manual_seed(0)
    model = Hift(HiftConfig(base_channels=64, f0_channels=64)).to(DEVICE).eval().fold_weight_norm()
    windowed = WindowedHift(model, max_rows=11, precision=precision, largest_launch=4)
    windowed.warm_up()
    mels = [torch.randn(80, 170 - row, device=DEVICE) for row in range(11)]
    states, exact = [windowed.open(row) for row in range(11)], [model.open(row) for row in range(11)]
    for part, final in ((slice(0, 44), False), (slice(44, 150), False), (slice(150, None), True)):
        given = windowed.step(states, [mel[:, part] for mel in mels], [final] * 11)
        for one, wanted in zip(
            given, model.step(exact, [mel[:, part] for mel in mels], [final] * 11), strict=True
        ):
            torch.testing.assert_close(one, wanted, atol=apart, rtol=0)
