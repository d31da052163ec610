"""The HiFT vocoder: mel to pitch, pitch to source, source and mel to samples; one-shot and for training.

Exact streaming of the same network is in `streaming.py`.
Axes: B rows, F mel frames, S samples (480 a frame), T spectrum frames (120 F + 1), C channels.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm

from studio.models.hift.checkpoint import canonical_names
from studio.models.hift.config import HiftConfig
from studio.models.hift.noise import normal_noise
from studio.models.hift.source import F0Predictor, HarmonicSource
from studio.models.hift.spectrum import Spectrum

_LEAK = 0.1             # before each upsampling
_LAST_LEAK = 0.01       # before the last convolution: upstream forgot the argument, and trained so


class Snake(nn.Module):
    """x + sin^2(a x) / a with one learned a per channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:             # [B, C, n]
        alpha = self.alpha[:, None]
        return x + torch.sin(alpha * x).square() / (alpha + 1e-9)


class ResBlock(nn.Module):
    """Dilated convolution pairs, each added to its input."""

    def __init__(self, channels: int, kernel: int, dilations: tuple[int, ...]) -> None:
        super().__init__()

        def conv(dilation: int) -> nn.Module:
            padding = dilation * (kernel - 1) // 2
            return weight_norm(nn.Conv1d(channels, channels, kernel, dilation=dilation, padding=padding))

        self.convs1 = nn.ModuleList(conv(d) for d in dilations)
        self.convs2 = nn.ModuleList(conv(1) for _ in dilations)
        self.activations1 = nn.ModuleList(Snake(channels) for _ in dilations)
        self.activations2 = nn.ModuleList(Snake(channels) for _ in dilations)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """[B, C, n] -> [B, C, n]; where mask [B, 1, n] is 0 the input counts as outside (zero)."""
        for conv1, conv2, act1, act2 in zip(self.convs1, self.convs2, self.activations1, self.activations2):
            y = conv1(act1(x))
            if mask is not None:
                y = y * mask
            x = x + conv2(act2(y))
            if mask is not None:
                x = x * mask
        return x


class Hift(nn.Module):
    """Vocoder of one checkpoint. Holds weights only: what a stream remembers is in `HiftState`."""

    def __init__(self, config: HiftConfig) -> None:
        super().__init__()
        self.config = config
        stages = range(len(config.upsample_rates))
        self.f0_predictor = F0Predictor(config)
        self.m_source = HarmonicSource(config)
        self.spectrum = Spectrum(config.n_fft, config.hop_samples)
        self.conv_pre = weight_norm(nn.Conv1d(
            config.mel_bins, config.base_channels, config.pre_kernel, padding=config.pre_kernel // 2))
        self.ups = nn.ModuleList(weight_norm(nn.ConvTranspose1d(
            2 * config.channels(i), config.channels(i), kernel, rate, padding=(kernel - rate) // 2))
            for i, (rate, kernel) in enumerate(zip(config.upsample_rates, config.upsample_kernels)))
        self.source_downs = nn.ModuleList(nn.Conv1d(
            config.n_fft + 2, config.channels(i), 1 if stride == 1 else 2 * stride, stride, padding=stride // 2)
            for i, stride in enumerate(config.source_strides))
        self.source_resblocks = nn.ModuleList(ResBlock(config.channels(i), kernel, config.dilations)
                                              for i, kernel in enumerate(config.source_resblock_kernels))
        self.resblocks = nn.ModuleList(ResBlock(config.channels(i), kernel, config.dilations)
                                       for i in stages for kernel in config.resblock_kernels)
        self.conv_post = weight_norm(nn.Conv1d(
            config.channels(stages[-1]), config.n_fft + 2, config.post_kernel, padding=config.post_kernel // 2))

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor]) -> "Hift":
        """Build the vocoder that a checkpoint's tensors describe and load them strictly.

        Raises:  KeyError or RuntimeError if tensors are missing, left over or of another shape.
        """
        named = canonical_names(state)
        model = cls(HiftConfig.from_state(named))
        model.load_state_dict(named, strict=True)
        return model.eval()

    def fold_weight_norm(self) -> "Hift":
        """Replace gain and direction by the plain weight, for inference; training needs them apart."""
        for module in self.modules():
            if parametrize.is_parametrized(module, "weight"):
                parametrize.remove_parametrizations(module, "weight")
        return self

    def predict_f0(self, mel: Tensor) -> Tensor:
        """Pitch of each frame: [B, 80, F] -> Hz [B, F]; float64 inside unless training."""
        return self.f0_predictor(mel) if self.training else self.f0_predictor.precise(mel)

    def f0_loss(self, mel: Tensor, f0: Tensor) -> Tensor:
        """Mean absolute pitch error in Hz against a measured track f0 [B, F] (0 where unvoiced)."""
        return F.l1_loss(self.f0_predictor(mel), f0)

    def draw_noise(self, f0: Tensor, seed: int = 0) -> Tensor:
        """Noise for `m_source`, [B, S]: fresh while training, else the stream of the seed."""
        rows, samples = f0.shape[0], f0.shape[1] * self.config.samples_per_frame
        if self.training:
            return torch.randn(rows, samples, device=f0.device)
        seeds = torch.full((rows,), seed, dtype=torch.int64, device=f0.device)
        return normal_noise(seeds, torch.zeros_like(seeds), samples)

    def source_branch(self, stage: int, spectra: Tensor, mask: Tensor | None = None) -> Tensor:
        """Source spectra [B, 18, T] thinned to a stage's rate, [B, C, n]."""
        x = self.source_downs[stage](spectra)
        if mask is not None:
            x = x * mask
        return self.source_resblocks[stage](x, mask)

    def upsample(self, stage: int, x: Tensor) -> Tensor:
        """Input of a stage to its rate; the last one begins one spectrum frame earlier."""
        x = self.ups[stage](F.leaky_relu(x, _LEAK))
        if stage == len(self.ups) - 1:
            x = F.pad(x, (1, 0), mode="reflect")
        return x

    def merge(self, stage: int, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Mean of the stage's residual blocks on upsampled input plus source, [B, C, n]."""
        kernels = len(self.config.resblock_kernels)
        blocks = self.resblocks[stage * kernels:(stage + 1) * kernels]
        total = blocks[0](x, mask)
        for block in blocks[1:]:
            total = total + block(x, mask)
        return total / kernels

    def spectra(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Last stage's output [B, C, T] to magnitude and phase, [B, 9, T] each."""
        x = self.conv_post(F.leaky_relu(x, _LAST_LEAK))
        bins = self.config.n_fft // 2 + 1
        return torch.exp(x[:, :bins]).clamp_max(self.config.largest_magnitude), torch.sin(x[:, bins:])

    def decode(self, mel: Tensor, source: Tensor) -> Tensor:
        """Mel [B, 80, F] and excitation [B, S] to samples [B, S]."""
        spectra = self.spectrum.analyse(self.spectrum.pad(source))
        x = self.conv_pre(mel)
        for stage in range(len(self.ups)):
            x = self.merge(stage, self.upsample(stage, x) + self.source_branch(stage, spectra))
        limit = self.config.largest_sample
        return self.spectrum.synthesise(*self.spectra(x)).clamp(-limit, limit)

    def forward(self, mel: Tensor, f0: Tensor | None = None, noise: Tensor | None = None) -> Tensor:
        """Whole utterances, or training segments, to samples.

        Args:    mel: float32 [B, 80, F], natural log; f0: Hz [B, F] (measured, while training), else
                 predicted; noise: standard normal [B, S, 9] or [B, S], else drawn (`draw_noise`).
        Returns: float32 [B, 480 F] in [-0.99, 0.99] at 24 kHz.
        """
        if f0 is None:
            f0 = self.predict_f0(mel)
        if noise is None:
            noise = self.draw_noise(f0)
        return self.decode(mel, self.m_source(f0, noise))
