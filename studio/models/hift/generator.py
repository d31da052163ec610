"""The HiFT vocoder: mel to pitch, pitch to source, source and mel to samples; one-shot and for training.

Exact streaming of the same network is in `streaming.py`.
Axes: B rows, F mel frames, S samples (480 a frame), T spectrum frames (120 F + 1), C channels.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm

from studio.models.hift.checkpoint import canonical_names
from studio.models.hift.config import HiftConfig
from studio.models.hift.geometry import HiftGeometry
from studio.models.hift.noise import normal_noise
from studio.models.hift.source import F0Predictor, HarmonicSource
from studio.models.hift.spectrum import Spectrum
from studio.models.hift.streaming import HiftState, open_state, step
from studio.models.weights import load_strictly

LEAK = 0.1             # before each upsampling
LAST_LEAK = 0.01       # before the last convolution: upstream forgot the argument, and trained so


class Snake(nn.Module):
    """x + sin^2(a x) / a with one learned a per channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:             # [B, C, n] or [B, C, 1, n]
        alpha = self.alpha.view(-1, *[1] * (x.dim() - 2))
        sine = alpha * x
        sine = sine.sin() if torch.is_grad_enabled() else sine.sin_()
        return torch.addcmul(x, sine * (1 / (alpha + 1e-9)), sine)


class Conv(nn.Conv1d):
    """A convolution over [B, C, n], or over [B, C, 1, n] as an image of one line.

    As an image the channels may lie innermost in memory, which halves the time on a CPU (base 160,
    one thread: 55 ms to 31 ms for all residual blocks on a second of sound); lines never do.
    """

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() == 3:
            return super().forward(x)
        return F.conv2d(x, self.weight[:, :, None], self.bias, padding=(0, *self.padding),
                        dilation=(1, *self.dilation))


class ResBlock(nn.Module):
    """Dilated convolution pairs, each added to its input."""

    def __init__(self, channels: int, kernel: int, dilations: tuple[int, ...]) -> None:
        super().__init__()

        def conv(dilation: int) -> nn.Module:
            padding = dilation * (kernel - 1) // 2
            return weight_norm(Conv(channels, channels, kernel, dilation=dilation, padding=padding))

        self.convs1 = nn.ModuleList(conv(d) for d in dilations)
        self.convs2 = nn.ModuleList(conv(1) for _ in dilations)
        self.activations1 = nn.ModuleList(Snake(channels) for _ in dilations)
        self.activations2 = nn.ModuleList(Snake(channels) for _ in dilations)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """[B, C, (1,) n] to the same; where mask [B, 1, (1,) n] is 0 the input counts as outside (zero)."""
        for i, convolve in enumerate(self.convs1):
            y = convolve(self.activations1[i](x))
            if mask is not None:
                y = y * mask
            x = x + self.convs2[i](self.activations2[i](y))
            if mask is not None:
                x = x * mask
        return x


def _innermost(x: Tensor) -> Tensor:
    """The same [B, C, n] with C innermost in memory."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def _upsampling(config: HiftConfig, stage: int) -> nn.Module:
    rate, kernel = config.upsample_rates[stage], config.upsample_kernels[stage]
    channels = config.channels(stage)
    return weight_norm(nn.ConvTranspose1d(2 * channels, channels, kernel, rate, padding=(kernel - rate) // 2))


def _source_thinning(config: HiftConfig, stage: int) -> nn.Module:
    stride = config.source_strides[stage]
    kernel = 1 if stride == 1 else 2 * stride
    return nn.Conv1d(config.n_fft + 2, config.channels(stage), kernel, stride, padding=stride // 2)


class Hift(nn.Module):
    """Vocoder of one checkpoint. Holds weights only: what a stream remembers is in `HiftState`."""

    def __init__(self, config: HiftConfig) -> None:
        super().__init__()
        self.config = config
        self.channels_last = False      # set by fold_weight_norm on a CPU
        self.geometry = HiftGeometry(config)
        stages = range(len(config.upsample_rates))
        self.f0_predictor = F0Predictor(config)
        self.m_source = HarmonicSource(config)
        self.spectrum = Spectrum(config.n_fft, config.hop_samples)
        self.conv_pre = weight_norm(nn.Conv1d(
            config.mel_bins, config.base_channels, config.pre_kernel, padding=config.pre_kernel // 2))
        self.ups = nn.ModuleList(_upsampling(config, i) for i in stages)
        self.source_downs = nn.ModuleList(_source_thinning(config, i) for i in stages)
        self.source_resblocks = nn.ModuleList(ResBlock(config.channels(i), kernel, config.dilations)
                                              for i, kernel in enumerate(config.source_resblock_kernels))
        self.resblocks = nn.ModuleList(ResBlock(config.channels(i), kernel, config.dilations)
                                       for i in stages for kernel in config.resblock_kernels)
        self.conv_post = weight_norm(nn.Conv1d(config.channels(stages[-1]), config.n_fft + 2,
                                               config.post_kernel, padding=config.post_kernel // 2))

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor], source: str = "hift") -> "Hift":
        """Build the vocoder that a checkpoint's tensors describe and load them strictly.

        Args:    state: in any spelling `canonical_names` knows; source: the file, for messages.
        Raises:  CheckpointError if tensors are missing, left over or of another shape.
        """
        named = canonical_names(state)
        model = cls(HiftConfig.from_state(named, source))
        load_strictly(model, named, source)
        return model.eval()

    def fold_weight_norm(self) -> "Hift":
        """Replace gain and direction by the plain weight, for inference; training needs them apart.

        On a CPU the residual blocks then work with channels innermost (see `Conv`).
        """
        for module in self.modules():
            if parametrize.is_parametrized(module, "weight"):
                parametrize.remove_parametrizations(module, "weight")
        self.channels_last = self.conv_post.weight.device.type == "cpu"
        for module in self.modules():
            if self.channels_last and isinstance(module, Conv):
                module.weight.data = _innermost(module.weight.data)
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

    def source_branch(self, stage: int, spectra: Tensor, mask: Tensor | None = None,
                      length: int | None = None) -> Tensor:
        """Source spectra [B, 18, T] thinned to a stage's rate and cut to a length, [B, C, n]."""
        x = self.source_downs[stage](spectra)[..., :length]
        if mask is not None:
            x = x * mask
        if self.channels_last:
            x, mask = _innermost(x)[:, :, None], None if mask is None else mask[:, :, None]
            return self.source_resblocks[stage](x, mask)[:, :, 0]
        return self.source_resblocks[stage](x, mask)

    def upsample(self, stage: int, x: Tensor) -> Tensor:
        """Input of a stage to its rate; the last one begins one spectrum frame earlier."""
        x = self.ups[stage](F.leaky_relu(x, LEAK))
        if stage == len(self.ups) - 1:
            x = F.pad(x, (1, 0), mode="reflect")
        return x

    def merge(self, stage: int, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Mean of the stage's residual blocks on upsampled input plus source, [B, C, n]."""
        kernels = len(self.config.resblock_kernels)
        blocks = self.resblocks[stage * kernels:(stage + 1) * kernels]
        if self.channels_last:
            x, mask = _innermost(x)[:, :, None], None if mask is None else mask[:, :, None]
        total = blocks[0](x, mask)
        for block in blocks[1:]:
            total = total + block(x, mask)
        total = total / kernels
        return total[:, :, 0] if self.channels_last else total

    def spectra(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Last stage's output [B, C, T] to magnitude and phase, [B, 9, T] each."""
        x = self.conv_post(F.leaky_relu(x, LAST_LEAK))
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

    @property
    def lookahead_frames(self) -> int:
        """Mel frames that must follow a frame before all its samples are given by `step`."""
        return self.geometry.lookahead_frames

    def open(self, seed: int) -> HiftState:
        """State of a new stream; the seed fixes its noise."""
        return open_state(self, seed)

    @torch.inference_mode()
    def step(self, states: Sequence[HiftState], mels: Sequence[Tensor],
             finals: Sequence[bool]) -> list[Tensor]:
        """Voice each row's new mel frames as far as their future is known, and advance its state.

        Args:    mels: float32 [80, F_i] a row, F_i >= 0, after those already given; finals: whether
                 no more will come.
        Returns: float32 [S_i] a row; over a whole stream sum S_i = 480 x frames and the samples are those
                 of `forward` with `draw_noise(f0, seed)`, whatever the split and the other rows.
        Raises:  ValueError if a row has had its final step.
        """
        return step(self, self.geometry, states, mels, finals)
