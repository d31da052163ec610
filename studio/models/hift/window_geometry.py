"""Which positions of every part a pass over a bounded window computes; arithmetic only, no tensors.

A pass moves a row on by up to `hop` frames. It computes what the samples of `hop` frames see, from the mel to the
sound, and each part only as wide as the parts behind it look. All spans stand against the row's newest frame, so
they are the same for every pass of every row: position p of a part is rate x frames + offset.
"""

from __future__ import annotations

from dataclasses import dataclass

from studio.models.hift.config import HiftConfig
from studio.models.hift.geometry import HiftGeometry

HOP_FRAMES = 50  # a block of the flow


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets first .. stop - 1 against rate x the frames so far."""

    rate: int
    first: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.first

    def wider(self, left: int, right: int) -> Span:
        return Span(self.rate, self.first - left, self.stop + right)

    def slice_of(self, outer: Span) -> slice:
        """This span's place in a wider one of the same rate."""
        if outer.rate != self.rate or outer.first > self.first or outer.stop < self.stop:
            raise ValueError(f"{self} does not lie in {outer}")
        return slice(self.first - outer.first, self.stop - outer.first)


@dataclass(frozen=True, slots=True)
class StageSpans:
    """thinned: source branch behind its strided convolution; merged: input of the residual blocks, before that
    upsampled (of the last stage one position in front more); out: what of the blocks is right and read."""

    thinned: Span
    merged: Span
    upsampled: Span
    out: Span


class WindowGeometry:
    """Spans of a pass over one vocoder, worked out from the samples back to the mel. Raises ValueError if a part
    would look beyond the newest frame."""

    def __init__(self, config: HiftConfig, hop: int = HOP_FRAMES) -> None:
        exact, self.hop = HiftGeometry(config), hop
        per_frame, hop_samples = config.samples_per_frame, config.hop_samples
        parts = config.n_fft // hop_samples
        self.held_back = exact.lookahead_samples
        """Samples that a pass leaves behind the newest frame."""
        self.end_frames = -(-self.held_back // per_frame)
        """Frames of silence outside that bring the last samples out: passes go on so far behind a row's last frame."""
        stop = -(self.held_back // hop_samples)
        self.blocks = Span(
            config.spectra_per_frame, stop - hop * config.spectra_per_frame, stop
        )  # hops of samples
        self.windows = self.blocks.wider(parts // 2 - 1, parts // 2)  # spectra whose sound reaches them
        self.spectra_in = self.windows.wider(config.post_kernel // 2, config.post_kernel // 2)
        self.stages: list[StageSpans] = []
        below = self.spectra_in
        for stage in reversed(range(exact.stages)):
            self.stages.insert(0, self._stage(config, exact, stage, below))
            rate, kernel = config.upsample_rates[stage], config.upsample_kernels[stage]
            padding, upsampled = (kernel - rate) // 2, self.stages[0].upsampled
            below = Span(
                upsampled.rate // rate,
                -(-(upsampled.first + padding - kernel + 1) // rate),
                (upsampled.stop - 1 + padding) // rate + 1,
            )
        self.pre = below  # output of the first convolution
        self.spectra = self._spectra(config)
        first, last = hop_samples * self.spectra.first, hop_samples * (self.spectra.stop - 1)
        self.heard = Span(per_frame, first - config.n_fft // 2, last + config.n_fft // 2)
        # the source is made from the centre of one frame to the centre of another
        half = per_frame // 2
        self.f0 = Span(1, (self.heard.first - half) // per_frame, -config.f0_layers)
        self.source = Span(per_frame, self.f0.first * per_frame + half, self.f0.stop * per_frame - half)
        self.mel = Span(1, min(self.pre.first - config.pre_kernel // 2, -hop - 2 * config.f0_layers), 0)
        self.f0_mel = Span(1, -hop - 2 * config.f0_layers, 0)
        for inner, outer in (
            (self.heard, self.source),
            (self.pre.wider(0, config.pre_kernel // 2), self.mel),
        ):
            if inner.stop > outer.stop:
                raise ValueError(f"a pass needs {inner}, and has {outer}")

    def _stage(self, config: HiftConfig, exact: HiftGeometry, stage: int, out: Span) -> StageSpans:
        # the geometry counts the last convolution to the last stage
        own = exact.stage_reach(stage) - (config.post_kernel // 2 if exact.is_last(stage) else 0)
        merged = out.wider(own, own)
        # the last stage's sequence begins one position earlier: its position p is the upsampled p - 1
        upsampled = merged.wider(1, -1) if exact.is_last(stage) else merged
        reach = exact.branch_reach(stage)
        return StageSpans(merged.wider(reach, reach), merged, upsampled, out)

    def thinning(self, config: HiftConfig, stage: int) -> Span:
        """The spectra that a stage's strided convolution reads, without padding."""
        stride, thinned = config.source_strides[stage], self.stages[stage].thinned
        kernel = 1 if stride == 1 else 2 * stride
        first = stride * thinned.first - stride // 2
        return Span(config.spectra_per_frame, first, first + stride * (len(thinned) - 1) + kernel)

    def _spectra(self, config: HiftConfig) -> Span:
        read = [self.thinning(config, stage) for stage in range(len(self.stages))]
        return Span(
            config.spectra_per_frame, min(span.first for span in read), max(span.stop for span in read)
        )

    def samples_until(self, frames: int, total: int | None, per_frame: int) -> int:
        """Samples given once passes have come to so many frames; total: the row's frames once all are known."""
        ready = max(0, frames * per_frame - self.held_back)
        return ready if total is None else min(ready, total * per_frame)
