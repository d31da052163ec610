"""The short Fourier transform of the vocoder as two small matrix products.

16 samples a window and 4 a hop: a product with a 16 x 18 matrix is faster than an FFT call, has no
hidden check that waits for the GPU, and can be cut at any frame.
Axes: B rows, T spectrum frames, N window length (n_fft), K bins (N / 2 + 1).
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Spectrum(nn.Module):
    """Forward and inverse transform with a periodic Hann window; holds no weights."""

    def __init__(self, n_fft: int, hop_samples: int) -> None:
        super().__init__()
        self.n_fft, self.hop_samples = n_fft, hop_samples
        self.parts = n_fft // hop_samples               # windows that cover one sample
        bins = n_fft // 2 + 1
        n = torch.arange(n_fft, dtype=torch.float64)
        window = 0.5 - 0.5 * torch.cos(2 * math.pi * n / n_fft)
        angle = 2 * math.pi * n[:, None] * torch.arange(bins)[None, :] / n_fft       # [N, K]
        weight = torch.full((bins,), 2.0, dtype=torch.float64)
        weight[0] = weight[-1] = 1.0                    # the outer bins have no mirror image
        forward = torch.cat([torch.cos(angle), -torch.sin(angle)], 1) * window[:, None]
        inverse = torch.cat([torch.cos(angle) * weight, -torch.sin(angle) * weight], 1) * window[:, None]
        for name, value in (("forward_basis", forward), ("inverse_basis", inverse.T / n_fft),
                            ("window_power", window.square())):
            self.register_buffer(name, value.float().contiguous(), persistent=False)

    def analyse(self, padded: Tensor) -> Tensor:
        """Spectra of samples that already carry half a window on both sides.

        Args:    padded: float32 [B, n].
        Returns: [B, 2K, (n - N) // hop + 1]; real parts, then imaginary.
        """
        return (padded.unfold(-1, self.n_fft, self.hop_samples) @ self.forward_basis).transpose(1, 2)

    def pad(self, samples: Tensor) -> Tensor:
        """Reflect half a window on both sides, [B, n] -> [B, n + N]."""
        half = self.n_fft // 2
        return F.pad(samples[:, None], (half, half), mode="reflect")[:, 0]

    def windows(self, magnitude: Tensor, phase: Tensor) -> Tensor:
        """The samples that each spectrum adds, windowed: [B, K, T] twice -> [B, T, N]."""
        spectrum = torch.cat([magnitude * torch.cos(phase), magnitude * torch.sin(phase)], 1)   # [B, 2K, T]
        return spectrum.transpose(1, 2) @ self.inverse_basis

    def overlap_add(self, windows: Tensor, present: Tensor) -> Tensor:
        """Sum windows into samples and divide by the power of the windows that are present.

        Args:    windows: [B, T, N], zero where absent; present: float [B, T], 1 or 0.
        Returns: [B, (T - parts + 1) x hop]: the samples under a full set of `parts` windows.
        """
        b, t, _ = windows.shape
        blocks = t - self.parts + 1
        pieces = windows.reshape(b, t, self.parts, self.hop_samples)
        power = self.window_power.view(1, 1, self.parts, self.hop_samples) * present[:, :, None, None]
        total, norm = pieces.new_zeros(()), pieces.new_zeros(())
        for part in range(self.parts):                  # block q lies under part p of window q - p
            first = self.parts - 1 - part
            total = total + pieces[:, first:first + blocks, part]
            norm = norm + power[:, first:first + blocks, part]
        # a block under no window at all (behind the end of a shorter row) is cut away by the caller
        return (total / norm.clamp_min(1e-11)).reshape(b, blocks * self.hop_samples)

    def synthesise(self, magnitude: Tensor, phase: Tensor) -> Tensor:
        """Whole spectra [B, K, T] to samples [B, (T - 1) x hop]."""
        edge = self.parts // 2                          # windows that are missing beyond each end
        windows = F.pad(self.windows(magnitude, phase), (0, 0, edge - 1, edge - 1))
        present = F.pad(windows.new_ones(magnitude.shape[0], magnitude.shape[2]), (edge - 1, edge - 1))
        return self.overlap_add(windows, present)
