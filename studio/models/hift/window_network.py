"""The vocoder over one window of each row, in fixed shapes: nothing here reads the device or depends on its values.

A window's place in its utterance is told by numbers on the device. What lies before the first or behind the last frame
counts as outside at every layer: zeros for convolutions, mirrored samples for the spectra. Weights are copies of a
`Hift`'s, channels innermost; that module is left as it is.
In float16 the decoder's convolutions read and write half as much memory, and add up in float32; with ten bits behind
the leading one it rounds as TF32 does. What goes on beside them stays float32 (window_kernels.py).
Axes: B rows, C channels, n positions of a span (window_geometry.py), as images [B, C, 1, n] of one line.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from studio.models.hift.generator import LAST_LEAK, LEAK, Hift, ResBlock
from studio.models.hift.noise import normal_noise
from studio.models.hift.window_geometry import Span, WindowGeometry
from studio.models.hift.window_kernels import (
    CHANNELS_INNERMOST,
    Leak,
    Snake,
    activated,
    narrowed,
    summed,
    summed_and_activated,
)

Precision = Literal["float32", "tf32", "float16"]
"""Of the decoder's convolutions; tf32 is float32 but on CUDA."""
CHANNEL_MULTIPLE = 8
"""Of what tensor cores read at once; other inputs cuDNN would pad itself, for each convolution."""


class Memory(NamedTuple):
    """What rows carry from pass to pass: mel [B, M, 80], pitch in Hz [B, P], and the phase at the centre of the first
    of these P frames, cycles [B, H], float64. All float32 else. Zeros before the first pass."""

    mel: Tensor
    f0: Tensor
    phase: Tensor


class Place(NamedTuple):
    """Where each row's window stands, int64 [B]: the frames before this pass, how many are new (at most a hop; after
    the last frame silence outside counts too), and all that the utterance has, or more than can be while unknown."""

    before: Tensor
    fresh: Tensor
    total: Tensor
    seed: Tensor


class _Weights(NamedTuple):
    """weight: in the type of the convolution's input; bias: float32, added behind it."""

    weight: Tensor
    bias: Tensor


class _Layer(NamedTuple):
    weights: _Weights
    padding: int
    dilation: int
    snake: Snake


class _Unfinished(NamedTuple):
    """A residual block but for its last sum: y + bias + x."""

    y: Tensor
    bias: Tensor
    x: Tensor


class WindowNetwork:
    """One vocoder's weights, ready for windows. precision: of the decoder, never of pitch and spectra."""

    def __init__(
        self, model: Hift, geometry: WindowGeometry, *, precision: Precision, f0_dtype: torch.dtype
    ) -> None:
        self.config, self.geometry = model.config, geometry
        self._tf32, self._f0_dtype = precision == "tf32", f0_dtype
        self._dtype = dtype = torch.float16 if precision == "float16" else torch.float32
        self._device = model.conv_post.weight.device
        self._source, self._spectrum = model.m_source, model.spectrum
        self._pre, self._post = _weights(model.conv_pre, dtype), _weights(model.conv_post, torch.float32)
        self._ups = [_weights(module, dtype) for module in model.ups]
        self._thinning = [_weights(module, dtype, padded=True) for module in model.source_downs]
        self._source_blocks = [_layers(block, dtype) for block in model.source_resblocks]
        self._blocks = [_layers(block, dtype) for block in model.resblocks]
        predictor = model.f0_predictor
        self._f0_layers = [
            (module.weight.detach().permute(2, 1, 0).flatten(0, 1).to(f0_dtype), module.bias.detach().to(f0_dtype))
            for module in predictor.condnet if isinstance(module, nn.Conv1d)
        ]  # fmt: skip
        self._f0_head = [
            p.detach().to(f0_dtype) for p in (predictor.classifier.weight, predictor.classifier.bias)
        ]
        self._spans = self._bordered_spans()
        self._rates, self._offsets, self._extra = self._positions()
        self._mel_shift = self._range(geometry.mel)
        self._f0_shift = self._range(geometry.f0)
        self._heard = self._range(geometry.heard)

    def memory(self, rows: int) -> Memory:
        """Memory of so many rows, all zeros."""
        mel, f0 = len(self.geometry.mel), len(self.geometry.f0)
        zeros = torch.zeros(rows, mel, self.config.mel_bins, device=self._device)
        phase = torch.zeros(rows, self.config.harmonics, dtype=torch.float64, device=self._device)
        return Memory(zeros, zeros.new_zeros(rows, f0), phase)

    def run(self, memory: Memory, place: Place, frames: Tensor) -> tuple[Tensor, Memory]:
        """Move every row on.

        Args:    memory: of the rows, left as it is; frames: float32 [B, hop, 80], of which the first are new.
        Returns: samples [B, hop x 480] up to what is held back behind the newest frame (those of earlier passes
                 first, if fewer frames are new; any finite value beyond either end of the utterance), and the memory.
        """
        end = place.before + place.fresh
        masks = self._masks(end, place.total)
        mel = self._mel(memory.mel, place, frames, masks[self.geometry.mel])
        f0, phase = self._f0(memory, place, mel, masks)
        source = self._excitation(f0, phase, place.seed, end)
        with self._convolving(self._tf32):
            x = self._decoded(mel, self._spectra(source, end, place.total, masks), end, masks)
        with self._convolving(False):  # its output is the logarithm of a magnitude, and a phase
            x = F.conv2d(x, *self._post)[:, :, 0]
        bins = self.config.n_fft // 2 + 1
        magnitude = torch.exp(x[:, :bins]).clamp_max(self.config.largest_magnitude)
        present = masks[self.geometry.windows]
        windows = self._spectrum.windows(magnitude, torch.sin(x[:, bins:])) * present[..., None]
        samples = self._spectrum.overlap_add(windows, present)
        limit = self.config.largest_sample
        return samples.clamp(-limit, limit), Memory(mel, f0, phase)

    # positions

    def _range(self, span: Span) -> Tensor:
        return torch.arange(len(span), device=self._device)

    def _bordered_spans(self) -> list[Span]:
        geometry = self.geometry
        spans = [geometry.mel, geometry.f0, geometry.pre, geometry.spectra, geometry.windows]
        for stage in geometry.stages:
            spans += [stage.thinned, stage.merged]
        return spans

    def _positions(self) -> tuple[Tensor, Tensor, Tensor]:
        """Of all bordered spans behind each other: rate, offset, and how many positions more the utterance has."""
        spans, longer = self._spans, self.config.spectra_per_frame  # spectra: one more than 120 a frame
        rates = torch.cat([torch.full((len(span),), span.rate) for span in spans])
        offsets = torch.cat([torch.arange(span.first, span.stop) for span in spans])
        return rates.to(self._device), offsets.to(self._device), (rates == longer).long().to(self._device)

    def _masks(self, end: Tensor, total: Tensor) -> dict[Span, Tensor]:
        """1 where a position lies in the utterance, float32 [B, n] of every bordered span."""
        position = end[:, None] * self._rates + self._offsets
        inside = (position >= 0) & (position < total[:, None] * self._rates + self._extra)
        pieces = inside.float().split([len(span) for span in self._spans], 1)
        return {span: piece.contiguous() for span, piece in zip(self._spans, pieces, strict=True)}

    # mel, pitch and source

    def _mel(self, old: Tensor, place: Place, frames: Tensor, mask: Tensor) -> Tensor:
        index = self._mel_shift + place.fresh[:, None]
        moved = torch.cat([old, frames], 1).gather(1, index[..., None].expand(-1, -1, old.shape[2]))
        # filled and not multiplied: what lies there was never given and may be anything
        return moved.masked_fill(mask[..., None] == 0, 0.0)

    def _f0(
        self, memory: Memory, place: Place, mel: Tensor, masks: dict[Span, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """The pitch track moved on, and the phase at its new first frame: old values stay what they were."""
        window, count = self._f0_shift, len(self.geometry.f0)
        steps = self._source.cycles_per_sample(memory.f0).double() * self.config.samples_per_frame
        other = (window == 0) | (window > place.fresh[:, None])
        phase = (memory.phase + steps.masked_fill(other[..., None], 0.0).sum(1)) % 1.0
        index = window + place.fresh[:, None]
        moved = memory.f0.gather(1, index.clamp_max(count - 1))
        made = F.pad(self._predicted(mel, masks), (count - self.geometry.hop, 0))
        f0 = torch.where(index < count, moved, made) * masks[self.geometry.f0]
        return f0, phase

    def _predicted(self, mel: Tensor, masks: dict[Span, Tensor]) -> Tensor:
        """Pitch of the newest hop of frames whose neighbours are known, Hz [B, hop].

        Each layer as one product over frames and their neighbours: in float64 that is fast on GPUs for computing,
        and in float32 it never takes TF32 as convolutions may.
        """
        x = mel[:, self.geometry.f0_mel.slice_of(self.geometry.mel)].to(self._f0_dtype)
        inside = masks[self.geometry.mel][:, self.geometry.f0_mel.slice_of(self.geometry.mel), None]
        for number, (weight, bias) in enumerate(self._f0_layers, 1):
            x = torch.cat([x[:, :-2], x[:, 1:-1], x[:, 2:]], 2) @ weight + bias
            x = F.elu(x) * inside[:, number:-number]
        weight, bias = self._f0_head
        return (x @ weight.T + bias)[..., 0].abs().float()

    def _excitation(self, f0: Tensor, phase: Tensor, seed: Tensor, end: Tensor) -> Tensor:
        """Source samples from frame centre to frame centre, [B, n] of the span `source`."""
        first = end + self.geometry.f0.first
        per_frame = self.config.samples_per_frame
        noise = normal_noise(seed, first * per_frame, f0.shape[1] * per_frame)
        samples = self._source(f0, noise, phase, begins=-first)
        return samples[:, per_frame // 2 : -(per_frame // 2)]

    def _spectra(self, source: Tensor, end: Tensor, total: Tensor, masks: dict[Span, Tensor]) -> Tensor:
        """Source spectra [B, 18, 1, n]; beyond both ends of the utterance its samples are mirrored."""
        heard, made = self.geometry.heard, self.geometry.source
        start, last = end[:, None] * made.rate, total[:, None] * made.rate - 1
        position = start + heard.first + self._heard
        position = torch.where(position > last, 2 * last - position, position.abs())
        index = (position - start - made.first).clamp(0, len(made) - 1)
        spectra = self._spectrum.analyse(source.gather(1, index)) * masks[self.geometry.spectra][:, None]
        return spectra[:, :, None]

    # decoder

    @contextmanager
    def _convolving(self, tf32: bool) -> Iterator[None]:
        """Fixed shapes, so cuDNN may try its algorithms at each one's first call."""
        if self._device.type != "cuda":
            yield
            return
        with torch.backends.cudnn.flags(enabled=True, benchmark=True, deterministic=False, allow_tf32=tf32):
            yield

    def _decoded(self, mel: Tensor, spectra: Tensor, end: Tensor, masks: dict[Span, Tensor]) -> Tensor:
        """Input of the last convolution, float32 [B, C, 1, n]."""
        geometry, reach = self.geometry, self.config.pre_kernel // 2
        x = mel[:, geometry.pre.wider(reach, reach).slice_of(geometry.mel)]
        y = F.conv2d(self._read(x.transpose(1, 2)[:, :, None]), self._pre.weight)
        active = activated(y, self._pre.bias, masks[geometry.pre], by=Leak(LEAK), dtype=self._dtype)
        span, spectra = geometry.pre, self._read(_padded(spectra))
        for stage, spans in enumerate(geometry.stages):
            mask = masks[spans.merged]
            branch = self._branch(stage, spectra, masks)
            y = self._upsampled(stage, active, span)
            if stage == len(geometry.stages) - 1:
                self._mirror(y, end, spans.merged)
            first = self._of_stage(stage)[0][0][0].snake
            x, active = summed_and_activated(
                y, self._ups[stage].bias, mask, branch, by=first, dtype=self._dtype
            )
            span, active = spans.out, self._merged(stage, x, active, mask)
        return active

    def _read(self, x: Tensor) -> Tensor:
        """As the decoder's convolutions read it."""
        return narrowed(x, self._dtype).contiguous(memory_format=CHANNELS_INNERMOST)

    def _branch(self, stage: int, spectra: Tensor, masks: dict[Span, Tensor]) -> Tensor:
        spans, stride = self.geometry.stages[stage], self.config.source_strides[stage]
        read = spectra[..., self.geometry.thinning(self.config, stage).slice_of(self.geometry.spectra)]
        thinning, layers, mask = self._thinning[stage], self._source_blocks[stage], masks[spans.thinned]
        y = F.conv2d(read.contiguous(memory_format=CHANNELS_INNERMOST), thinning.weight, stride=(1, stride))
        x, active = summed_and_activated(y, thinning.bias, mask, by=layers[0][0].snake, dtype=self._dtype)
        block = self._residual(layers, x, active, mask)
        part = spans.merged.slice_of(spans.thinned)
        return summed(block.y[..., part], block.bias, mask[:, part], block.x[..., part])

    def _upsampled(self, stage: int, active: Tensor, span: Span) -> Tensor:
        """Without the bias."""
        rate, kernel = self.config.upsample_rates[stage], self.config.upsample_kernels[stage]
        y = F.conv_transpose2d(
            active, self._ups[stage].weight, stride=(1, rate), padding=(0, (kernel - rate) // 2)
        )
        wanted = self.geometry.stages[stage].upsampled
        return y[..., wanted.slice_of(Span(wanted.rate, rate * span.first, rate * span.stop))]

    def _mirror(self, x: Tensor, end: Tensor, span: Span) -> None:
        """The last stage's first position, where it is in the window, takes the value two positions on."""
        zero = -(end * span.rate + span.first)
        there = (zero >= 0) & (zero < len(span) - 2)
        at = (zero * there)[:, None, None, None].expand(-1, x.shape[1], 1, 1)
        ahead = at + 2 * there[:, None, None, None]
        x.scatter_(3, at, x.gather(3, ahead))

    def _of_stage(self, stage: int) -> list[list[tuple[_Layer, _Layer]]]:
        kernels = len(self.config.resblock_kernels)
        return self._blocks[stage * kernels : (stage + 1) * kernels]

    def _merged(self, stage: int, x: Tensor, active: Tensor, mask: Tensor) -> Tensor:
        """Mean of the stage's blocks over x, of which active is the first activation; then as what follows reads it,
        of the span `out`."""
        first, *others = self._of_stage(stage)
        total: tuple[Tensor, ...] = ()
        block = self._residual(first, x, active, mask)
        for layers in others:
            total = (summed(block.y, block.bias, mask, block.x, *total),)
            active = activated(x, None, None, by=layers[0][0].snake, dtype=self._dtype)
            block = self._residual(layers, x, active, mask)
        spans, ends = self.geometry.stages[stage], stage == len(self.geometry.stages) - 1
        part = spans.out.slice_of(spans.merged)
        return activated(
            block.y[..., part],
            block.bias,
            mask[:, part],
            *(tensor[..., part] for tensor in (block.x, *total)),
            by=Leak(LAST_LEAK if ends else LEAK, 1 / (1 + len(others))),
            dtype=torch.float32 if ends else self._dtype,
        )

    def _residual(
        self, layers: list[tuple[_Layer, _Layer]], x: Tensor, active: Tensor, mask: Tensor
    ) -> _Unfinished:
        """As `ResBlock.forward`, each convolution's bias and border with what follows it; active: x behind the first
        snake."""
        ahead = [first.snake for first, _ in layers[1:]]
        for number, (first, second) in enumerate(layers):
            y = _convolved(first, active)
            y = _convolved(second, activated(y, first.weights.bias, mask, by=second.snake, dtype=self._dtype))
            if number < len(ahead):
                x, active = summed_and_activated(
                    y, second.weights.bias, mask, x, by=ahead[number], dtype=self._dtype
                )
        return _Unfinished(y, second.weights.bias, x)


def _convolved(layer: _Layer, x: Tensor) -> Tensor:
    """Without the bias."""
    return F.conv2d(x, layer.weights.weight, padding=(0, layer.padding), dilation=(1, layer.dilation))


def _padded(x: Tensor) -> Tensor:
    """[., C, 1, .] with zeros behind its channels."""
    return F.pad(x, (0, 0, 0, 0, 0, -x.shape[1] % CHANNEL_MULTIPLE))


def _weights(module: nn.Module, dtype: torch.dtype, padded: bool = False) -> _Weights:
    weight = module.weight.detach()[:, :, None]
    narrow = narrowed(_padded(weight) if padded else weight, dtype).contiguous(
        memory_format=CHANNELS_INNERMOST
    )
    return _Weights(narrow, module.bias.detach())


def _layers(block: ResBlock, dtype: torch.dtype) -> list[tuple[_Layer, _Layer]]:
    def layer(convolution: nn.Module, activation: nn.Module) -> _Layer:
        return _Layer(
            _weights(convolution, dtype),
            convolution.padding[0],
            convolution.dilation[0],
            Snake.of(activation.alpha),
        )

    return [
        (layer(block.convs1[i], block.activations1[i]), layer(block.convs2[i], block.activations2[i]))
        for i in range(len(block.convs1))
    ]
