"""Pitch predictor and harmonic source of the vocoder; knows nothing of spectra or of the decoder.

Axes: B rows, F mel frames, S samples (480 a frame), H harmonics.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from studio.models.hift.config import HiftConfig


class F0Predictor(nn.Module):
    """Pitch in Hz of each mel frame, 0 or little where unvoiced."""

    def __init__(self, config: HiftConfig) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for i in range(config.f0_layers):
            inputs = config.mel_bins if i == 0 else config.f0_channels
            layers += [weight_norm(nn.Conv1d(inputs, config.f0_channels, 3, padding=1)), nn.ELU()]
        self.condnet = nn.Sequential(*layers)
        self.classifier = nn.Linear(config.f0_channels, 1)
        self.context_frames = config.f0_layers          # seen on each side of a frame

    def forward(self, mel: Tensor, lengths: Tensor | None = None) -> Tensor:
        """float [B, 80, F] -> Hz [B, F]; frames from `lengths` [B] on count as outside."""
        mask = None
        if lengths is not None:
            mask = (torch.arange(mel.shape[2], device=mel.device) < lengths[:, None])[:, None].to(mel.dtype)
        x = mel
        for layer in self.condnet:
            x = layer(x)
            if mask is not None:
                x = x * mask
        return self.classifier(x.transpose(1, 2))[..., 0].abs()

    def precise(self, mel: Tensor, lengths: Tensor | None = None) -> Tensor:
        """As `forward` in float64, rounded to float32 at the end.

        A pitch error adds up in the phase: in float32 the order of a sum alone (another window
        length) would drift by 1e-3 rad in ten seconds, and streams would not equal one-shot speech.
        """
        weights = {name: value.double() for name, value in self.state_dict(keep_vars=True).items()}
        wide = torch.func.functional_call(
            self, weights, (mel.double(), lengths), strict=True)
        return wide.float()


class HarmonicSource(nn.Module):
    """Sines at the pitch and its overtones, noise, and the layer that merges them."""

    def __init__(self, config: HiftConfig) -> None:
        super().__init__()
        self.config = config
        self.l_linear = nn.Linear(config.harmonics, 1)
        self.register_buffer("order", torch.arange(1.0, config.harmonics + 1), persistent=False)

    def cycles_per_sample(self, f0: Tensor) -> Tensor:
        """Hz [B, F] -> cycles a sample, in [0, 1), float32 [B, F, H]."""
        return (f0[..., None] * self.order / self.config.sample_rate_hz) % 1.0

    def centre_phase(self, cycles: Tensor, first: Tensor | None = None) -> Tensor:
        """Phase at frame centres in cycles, modulo 1, float64 [B, F, H].

        Args: cycles: [B, F, H]; first: phase at the first frame's centre, float64 [B, H]; without it
              the stream begins here.
        """
        steps = cycles.double() * self.config.samples_per_frame
        if first is not None:
            steps = torch.cat([first[:, None], steps[:, 1:]], 1)
        return torch.cumsum(steps, 1) % 1.0

    def sines(self, f0: Tensor, first: Tensor | None = None, begins: Tensor | None = None) -> Tensor:
        """Sines before voicing, [B, F] -> [B, S, H].

        The phase runs linearly from frame centre to frame centre and is held in the first and last
        half frame; a frame of 0 Hz appended to f0 holds it as well, so rows may be padded with zeros.
        So may they in front: begins [B], int64, is then where in f0 each utterance begins, if not before it.
        """
        if self.config.float32_phase:
            return self._float32_sines(f0)
        per_frame, half = self.config.samples_per_frame, self.config.samples_per_frame // 2
        cycles = F.pad(self.cycles_per_sample(f0), (0, 0, 0, 1))                    # [B, F + 1, H]
        centres = self.centre_phase(cycles, first)
        offset = torch.arange(per_frame, device=f0.device) + 0.5
        # samples from the centre of frame f to that of f + 1
        base, slope = centres[:, :-1], cycles[:, 1:]
        if begins is not None:
            held = (torch.arange(1, f0.shape[1] + 1, device=f0.device) == begins[:, None])[..., None]
            base, slope = torch.where(held, centres[:, 1:], base), slope.masked_fill(held, 0.0)
        phase = base[:, :, None].float() + slope[:, :, None] * offset[:, None]
        phase = phase.flatten(1, 2)[:, :f0.shape[1] * per_frame - half]
        head = centres[:, :1].float().expand(-1, half, -1)
        phase = torch.cat([head, phase], 1) % 1.0                                   # [B, S, H]
        return self.config.sine_amplitude * torch.sin(2 * math.pi * phase)

    def _float32_sines(self, f0: Tensor) -> Tensor:
        centres = torch.cumsum(self.cycles_per_sample(f0), 1) * 2 * math.pi * self.config.samples_per_frame
        per_frame = self.config.samples_per_frame
        phase = F.interpolate(centres.transpose(1, 2), scale_factor=per_frame, mode="linear")
        return self.config.sine_amplitude * torch.sin(phase.transpose(1, 2))

    def voicing(self, f0: Tensor) -> Tensor:
        """1 where voiced, [B, F] -> float [B, S]."""
        voiced = (f0 > self.config.voiced_above_hz).to(f0.dtype)
        return voiced.repeat_interleave(self.config.samples_per_frame, dim=1)

    def forward(self, f0: Tensor, noise: Tensor, first: Tensor | None = None,
                begins: Tensor | None = None) -> Tensor:
        """Excitation of a pitch track; first and begins as in `sines`.

        Args:    f0: Hz [B, F]; noise: standard normal, either [B, S, H], one stream a harmonic, or
                 [B, S], one stream that stands for their sum (the sum of independent normals, weighted
                 by the merging layer, is again normal: a ninth of the draws).
        Returns: [B, S] in (-1, 1).
        """
        voiced = self.voicing(f0)
        level = voiced * self.config.noise_std + (1 - voiced) * self.config.sine_amplitude / 3
        merged = (self.sines(f0, first, begins) @ self.l_linear.weight[0]) * voiced
        if noise.dim() == 3:
            merged = merged + level * (noise @ self.l_linear.weight[0])
        else:
            merged = merged + level * noise * torch.linalg.vector_norm(self.l_linear.weight)
        return torch.tanh(merged + self.l_linear.bias)
