"""What of the vocoder's windows a GPU alone shows: the fused kernel and the graphs.

The kernel also runs here with Triton installed and TRITON_INTERPRET=1.
"""

import os

import pytest
import torch

from studio.models.hift import Hift, HiftConfig
from studio.models.hift.window import WindowedHift
from studio.models.hift.window_kernels import CHANNELS_INNERMOST, HAS_TRITON, SnakeWeights, add, snake

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # test code: the studio's settings do not know it


@pytest.mark.skipif(
    not (HAS_TRITON and (ON_GPU or INTERPRETED)), reason="Triton, and a GPU or its interpreter"
)
@pytest.mark.parametrize(("rows", "channels", "length"), [(2, 64, 37), (1, 20, 300), (3, 128, 20)])
def test_kernel_says_what_torch_says(monkeypatch, rows, channels, length):
    def drawn() -> torch.Tensor:
        values = torch.randn(rows, channels, 1, length, device=DEVICE)
        return values.contiguous(memory_format=CHANNELS_INNERMOST)

    def all_ways(fused: bool) -> list[torch.Tensor]:
        monkeypatch.setattr("studio.models.hift.window_kernels._fused", lambda x: fused)
        return [
            snake(y, weights),
            snake(y, weights, bias, mask),
            *add(x, y, bias, mask, weights),
            *add(x, y, bias, mask, None),
        ]

    x, y, bias = drawn(), drawn(), torch.randn(channels, device=DEVICE)
    mask = (torch.rand(rows, length, device=DEVICE) > 0.3).float()
    weights = SnakeWeights.of(3 * torch.rand(channels, device=DEVICE))
    for given, wanted in zip(all_ways(True), all_ways(False), strict=True):
        torch.testing.assert_close(given, wanted, atol=2e-6, rtol=0)


@pytest.mark.skipif(not ON_GPU, reason="a GPU")
def test_graphs_give_what_the_exact_stream_gives(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.manual_seed(0)
    model = Hift(HiftConfig(base_channels=64, f0_channels=64)).to(DEVICE).eval().fold_weight_norm()
    windowed = WindowedHift(model, max_rows=11, tf32=False, largest_launch=4)
    windowed.warm_up()
    mels = [torch.randn(80, 170 - row, device=DEVICE) for row in range(11)]
    states, exact = [windowed.open(row) for row in range(11)], [model.open(row) for row in range(11)]
    for part, final in ((slice(0, 44), False), (slice(44, 150), False), (slice(150, None), True)):
        given = windowed.step(states, [mel[:, part] for mel in mels], [final] * 11)
        for one, wanted in zip(
            given, model.step(exact, [mel[:, part] for mel in mels], [final] * 11), strict=True
        ):
            torch.testing.assert_close(one, wanted, atol=1e-4, rtol=0)
