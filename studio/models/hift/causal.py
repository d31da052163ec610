"""CosyVoice3's vocoder: the same network with every convolution looking left, so that a stream keeps only tails.

One code runs whole utterances and streams: a whole one is a stream of one step. Rows are run one by one, so a batch
cannot differ from a lone row. Source: COSYVOICE3.md of the fixtures, points 22 to 29; its fixed noise table is not
stored with the weights, so ours is a function of the row's seed and the sample (same law: uniform in [0, 1)).

Axes: C channels, F mel frames, S samples (480 a frame), T spectrum frames (120 F + 1), H harmonics.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm

from studio.models.hift.checkpoint import canonical_names
from studio.models.hift.config import HiftConfig
from studio.models.hift.generator import Snake
from studio.models.hift.noise import uniform_noise
from studio.models.hift.spectrum import Spectrum
from studio.models.weights import load_strictly

_LEAK = 0.1
_LAST_LEAK = 0.01
PRE_LOOKAHEAD_FRAMES = 4
F0_LOOKAHEAD_FRAMES = 3


class Tails:
    """The last inputs of every layer, in the order in which the layers are run. Owner: one row."""

    def __init__(self) -> None:
        self._kept: list[Tensor] = []
        self._next = 0

    def rewind(self) -> None:
        self._next = 0

    def before(self, x: Tensor, count: int) -> Tensor:
        """x [C, n] with the `count` positions before it, zeros at the beginning; keeps its own last ones."""
        joined = self.joined(x, count)
        self.keep(joined[:, joined.shape[1] - count :])
        return joined

    def joined(self, x: Tensor, zeros: int) -> Tensor:
        """x behind what the next layer kept; to be followed by `keep`."""
        tail = self._kept[self._next] if self._next < len(self._kept) else x.new_zeros(x.shape[0], zeros)
        return torch.cat([tail, x], 1)

    def keep(self, tail: Tensor) -> None:
        if self._next < len(self._kept):
            self._kept[self._next] = tail.clone()
        else:
            self._kept.append(tail.clone())
        self._next += 1

    def copy(self) -> Tails:
        made = Tails()
        made._kept = list(self._kept)
        return made

    def bytes(self) -> int:
        return sum(tail.element_size() * tail.nelement() for tail in self._kept)


@dataclass(slots=True)
class CausalState:
    """What one row's stream remembers. mel: frames from `decoded` on; source: samples from `source_start` on."""

    seed: int
    mel: Tensor
    source: Tensor
    phase: Tensor  # cycles at the last f0 frame, float64 [H]
    windows: Tensor  # [3, 16] of the transform, whose samples others still cover
    present: Tensor  # [3]
    tails: Tails = field(default_factory=Tails)
    f0_tails: Tails = field(default_factory=Tails)
    decoded: int = 0  # frames whose samples are under way
    pitched: int = 0  # frames whose f0 is known
    source_start: int = 0
    spectra: int = 0
    closed: bool = False

    def copy(self) -> CausalState:
        """A state that a step may change without changing this one; tensors are shared, for steps replace them."""
        return replace(self, tails=self.tails.copy(), f0_tails=self.f0_tails.copy())

    def bytes(self) -> int:
        kept = (self.mel, self.source, self.windows)
        return sum(t.element_size() * t.nelement() for t in kept) + self.tails.bytes() + self.f0_tails.bytes()


class CausalResBlock(nn.Module):
    """As `generator.ResBlock`, looking left."""

    def __init__(self, channels: int, kernel: int, dilations: tuple[int, ...]) -> None:
        super().__init__()
        self.convs1 = nn.ModuleList(weight_norm(nn.Conv1d(channels, channels, kernel, dilation=d)) for d in dilations)
        self.convs2 = nn.ModuleList(weight_norm(nn.Conv1d(channels, channels, kernel)) for _ in dilations)
        self.activations1 = nn.ModuleList(Snake(channels) for _ in dilations)
        self.activations2 = nn.ModuleList(Snake(channels) for _ in dilations)

    def forward(self, x: Tensor, tails: Tails) -> Tensor:
        for i, convolve in enumerate(self.convs1):
            y = left_conv(convolve, self.activations1[i](x[None])[0], tails)
            x = x + left_conv(self.convs2[i], self.activations2[i](y[None])[0], tails)
        return x


def left_conv(conv: nn.Module, x: Tensor, tails: Tails) -> Tensor:
    """A convolution over [C, n] and what came before: [C', n]."""
    return conv(tails.before(x, conv.dilation[0] * (conv.kernel_size[0] - 1))[None])[0]


class CausalF0Predictor(nn.Module):
    """Pitch in Hz; the first layer sees three frames ahead, the others look left."""

    def __init__(self, config: HiftConfig) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for i in range(config.f0_layers):
            inputs = config.mel_bins if i == 0 else config.f0_channels
            kernel = F0_LOOKAHEAD_FRAMES + 1 if i == 0 else 3
            layers += [weight_norm(nn.Conv1d(inputs, config.f0_channels, kernel)), nn.ELU()]
        self.condnet = nn.Sequential(*layers)
        self.classifier = nn.Linear(config.f0_channels, 1)

    def forward(self, mel: Tensor, tails: Tails) -> Tensor:
        """float64 [80, n + 3] -> Hz [n], with weights of the same type."""
        x = self.condnet[1](self.condnet[0](mel[None]))[0]
        for conv, activate in zip(self.condnet[2::2], self.condnet[3::2], strict=True):
            x = activate(left_conv(conv, x, tails))
        return self.classifier(x.T)[:, 0].abs()


class CausalHift(nn.Module):
    """Vocoder of one checkpoint; the same calls as `generator.Hift`, as far as speaking needs them."""

    def __init__(self, config: HiftConfig) -> None:
        super().__init__()
        self.config = config
        stages = range(len(config.upsample_rates))
        self.f0_predictor = CausalF0Predictor(config)
        self.m_source = nn.ModuleDict({"l_linear": nn.Linear(config.harmonics, 1)})
        self.spectrum = Spectrum(config.n_fft, config.hop_samples)
        self.conv_pre = weight_norm(nn.Conv1d(config.mel_bins, config.base_channels, PRE_LOOKAHEAD_FRAMES + 1))
        self.ups = nn.ModuleList(
            weight_norm(nn.Conv1d(2 * config.channels(i), config.channels(i), config.upsample_kernels[i]))
            for i in stages
        )
        self.source_downs = nn.ModuleList(
            nn.Conv1d(config.n_fft + 2, config.channels(i), 1 if stride == 1 else 2 * stride, stride)
            for i, stride in enumerate(config.source_strides)
        )
        self.source_resblocks = nn.ModuleList(
            CausalResBlock(config.channels(i), kernel, config.dilations)
            for i, kernel in enumerate(config.source_resblock_kernels)
        )
        self.resblocks = nn.ModuleList(
            CausalResBlock(config.channels(i), kernel, config.dilations)
            for i in stages
            for kernel in config.resblock_kernels
        )
        self.conv_post = weight_norm(
            nn.Conv1d(config.channels(stages[-1]), config.n_fft + 2, config.post_kernel)
        )

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor], source: str = "hift") -> CausalHift:
        """Build the vocoder that a checkpoint's tensors describe and load them strictly. Raises WeightsError."""
        named = canonical_names(state)
        model = cls(HiftConfig.from_state(named, source))
        load_strictly(model, named, source)
        return model.eval()

    def fold_weight_norm(self) -> CausalHift:
        """Replace gain and direction by the plain weight. The pitch is predicted in float64, as its error adds up."""
        for module in self.modules():
            if parametrize.is_parametrized(module, "weight"):
                parametrize.remove_parametrizations(module, "weight")
        self.f0_predictor.double()
        return self

    def open(self, seed: int) -> CausalState:
        """State of a new stream; the seed fixes its noise."""
        like, overlap = self.conv_post.bias, self.spectrum.parts - 1
        return CausalState(
            seed,
            like.new_empty(self.config.mel_bins, 0),
            like.new_empty(0),
            torch.zeros(self.config.harmonics, dtype=torch.float64, device=like.device),
            like.new_zeros(overlap, self.config.n_fft),
            like.new_zeros(overlap),
        )

    @torch.inference_mode()
    def step(
        self, states: Sequence[CausalState], mels: Sequence[Tensor], finals: Sequence[bool]
    ) -> list[Tensor]:
        """Voice each row's new frames [80, F_i] as far as their future is known; see `Hift.step`."""
        return [self._step(*row) for row in zip(states, mels, finals, strict=True)]

    def _step(self, state: CausalState, mel: Tensor, final: bool) -> Tensor:
        if state.closed:
            raise ValueError("this row has had its final step")
        state.closed = final
        state.mel = torch.cat([state.mel, mel], 1)
        frames = state.decoded + state.mel.shape[1]
        ahead = 0 if final else PRE_LOOKAHEAD_FRAMES
        count = frames - ahead - state.decoded
        if count <= 0:
            return mel.new_empty(0)
        known = F.pad(state.mel, (0, PRE_LOOKAHEAD_FRAMES)) if final else state.mel
        # One frame of source more than is decoded: the transform looks half a window ahead.
        self._extend_source(state, known, frames if final else state.decoded + count + 1)
        spectra = self._new_spectra(state, state.decoded + count, final)
        x = self._decode(state, known[:, : count + PRE_LOOKAHEAD_FRAMES], spectra)
        state.mel = state.mel[:, count:].clone()
        state.decoded += count
        return self._samples(state, x, final)

    def _extend_source(self, state: CausalState, known: Tensor, until: int) -> None:
        """Pitch and source up to frame `until`; known: mel from frame `decoded` on."""
        first = state.pitched - state.decoded
        window = known[:, first : until - state.decoded + F0_LOOKAHEAD_FRAMES]
        state.f0_tails.rewind()
        f0 = self.f0_predictor(window.double(), state.f0_tails).float()
        config = self.config
        order = torch.arange(1.0, config.harmonics + 1, device=f0.device)
        cycles = (f0[:, None] * order / config.sample_rate_hz) % 1.0  # [F, H] a sample
        phase = (state.phase + torch.cumsum(cycles.double() * config.samples_per_frame, 0)) % 1.0
        sines = config.sine_amplitude * torch.sin(2 * math.pi * phase).float()
        voiced = (f0 > config.voiced_above_hz).float()[:, None]
        held = (sines * voiced).repeat_interleave(config.samples_per_frame, 0)  # held through a frame, as trained
        level = voiced * config.noise_std + (1 - voiced) * config.sine_amplitude / 3
        noise = uniform_noise(state.seed, state.pitched * config.samples_per_frame, len(held), config.harmonics)
        excited = held + level.repeat_interleave(config.samples_per_frame, 0) * noise.to(held.device)
        source = torch.tanh(self.m_source["l_linear"](excited))[:, 0]
        state.source = torch.cat([state.source, source])
        state.phase = phase[-1].clone()
        state.pitched = until

    def _new_spectra(self, state: CausalState, frames: int, final: bool) -> Tensor:
        """Spectra [18, T] from the last ones up to 120 x frames, which is the last."""
        half, hop = self.spectrum.n_fft // 2, self.spectrum.hop_samples
        until = self.config.spectra_per_frame * frames + 1
        start = hop * state.spectra - half
        piece = state.source[max(0, start - state.source_start) : hop * (until - 1) + half - state.source_start]
        padded = F.pad(
            piece[None, None], (half if state.spectra == 0 else 0, half if final else 0), mode="reflect"
        )
        state.spectra = until
        kept = max(0, hop * until - half - state.source_start)
        state.source = state.source[kept:].clone()
        state.source_start += kept
        return self.spectrum.analyse(padded[0])[0]

    def _decode(self, state: CausalState, mel: Tensor, spectra: Tensor) -> Tensor:
        """mel [80, F + 4] and spectra [18, T] to the last stage's output [C, T]."""
        tails, kernels = state.tails, len(self.config.resblock_kernels)
        tails.rewind()
        x = self.conv_pre(mel[None])[0]
        for stage, rate in enumerate(self.config.upsample_rates):
            x = F.leaky_relu(x, _LEAK).repeat_interleave(rate, 1)
            x = left_conv(self.ups[stage], x, tails)
            if stage == len(self.ups) - 1 and state.decoded == 0:
                x = F.pad(x[None], (1, 0), mode="reflect")[0]
            x = x + self.source_resblocks[stage](self._thinned(stage, spectra, tails), tails)
            blocks = self.resblocks[stage * kernels : (stage + 1) * kernels]
            total = blocks[0](x, tails)
            for block in blocks[1:]:
                total = total + block(x, tails)
            x = total / kernels
        return left_conv(self.conv_post, F.leaky_relu(x, _LAST_LEAK), tails)

    def _thinned(self, stage: int, spectra: Tensor, tails: Tails) -> Tensor:
        conv = self.source_downs[stage]
        stride = conv.stride[0]
        joined = tails.joined(spectra, stride - 1)
        thinned = conv(joined[None])[0]
        tails.keep(joined[:, thinned.shape[1] * stride :])
        return thinned

    def _samples(self, state: CausalState, x: Tensor, final: bool) -> Tensor:
        transform, bins = self.spectrum, self.config.n_fft // 2 + 1
        magnitude = torch.exp(x[None, :bins]).clamp_max(self.config.largest_magnitude)
        windows = transform.windows(magnitude, torch.sin(x[None, bins:]))[0]  # [T, 16]
        joined = torch.cat([state.windows, windows, windows.new_zeros(1, windows.shape[1])])
        present = torch.cat([state.present, windows.new_ones(len(windows)), windows.new_zeros(1)])
        limit = self.config.largest_sample
        samples = transform.overlap_add(joined[None], present[None])[0].clamp(-limit, limit)
        at_start = len(windows) == state.spectra  # counted, not read off `present`: a GPU would be waited for
        overlap = transform.parts - 1
        state.windows, state.present = joined[-overlap - 1 : -1].clone(), present[-overlap - 1 : -1].clone()
        first = transform.n_fft // 2 if at_start else 0
        return samples[first : (len(windows) + (1 if final else 0)) * transform.hop_samples]
