"""The vocoder as an exact stream: each part keeps the tail of its input and runs on that plus what is new.

Splitting never changes the sound: every value is computed with all that it sees in the whole utterance,
and zero or mirrored borders stand only where the utterance begins and ends. Cost: the two ends of the
residual blocks of each stage are computed again at each step (about 16 frames' worth of one stage of three).
Axes: B rows, C channels, n positions of one stream (rates in geometry.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from studio.models.hift.geometry import HiftGeometry
from studio.models.hift.noise import normal_noise

if TYPE_CHECKING:
    from studio.models.hift.generator import Hift


@dataclass(slots=True)
class Stream:
    """The kept part of one stream of one row: data [C, n] of positions start .. start + n - 1."""

    data: Tensor
    start: int = 0

    @property
    def end(self) -> int:
        return self.start + self.data.shape[-1]

    def append(self, data: Tensor) -> None:
        self.data = torch.cat([self.data, data], -1) if self.data.shape[-1] else data

    def since(self, position: int) -> Tensor:
        return self.data[..., position - self.start:]

    def forget(self, before: int) -> None:
        """Drop what no later step reads."""
        if before > self.start:
            # a copy: a slice would keep the whole step's memory
            self.data = self.data[..., before - self.start:].clone()
            self.start = before


@dataclass(slots=True)
class HiftState:
    """What one row's stream remembers; owned by the row, changed by `step` only."""

    seed: int
    mel: Stream
    f0: Stream                              # [1, n]; the last frame of the step before stays
    source: Stream                          # [1, n] samples
    spectra: Stream
    branches: list[Stream]
    stages: list[Stream]                    # outputs of all stages but the last
    windows: Tensor                         # [3, 16]: the newest windows, whose samples others still cover
    present: Tensor                         # [3]: which of them are real
    phase: Tensor | None = None             # cycles at the centre of the kept f0 frame, float64 [9]
    spectra_done: int = 0                   # output positions of the last stage that became windows
    samples_given: int = 0
    closed: bool = False

    def copy(self) -> HiftState:
        """A state that a step may change without changing this one; tensors are shared, for steps replace them."""
        return replace(
            self, mel=replace(self.mel), f0=replace(self.f0), source=replace(self.source),
            spectra=replace(self.spectra), branches=[replace(s) for s in self.branches],
            stages=[replace(s) for s in self.stages])

    def bytes(self) -> int:
        streams = [self.mel, self.f0, self.source, self.spectra, *self.branches, *self.stages]
        return sum(s.data.element_size() * s.data.nelement() for s in streams)


def open_state(model: Hift, seed: int) -> HiftState:
    """State of a row before its first frame."""
    config, like = model.config, model.conv_post.bias

    def empty(channels: int) -> Stream:
        return Stream(like.new_empty(channels, 0))

    stages = range(len(config.upsample_rates))
    overlap = model.spectrum.parts - 1
    return HiftState(
        seed=seed, mel=empty(config.mel_bins), f0=empty(1), source=empty(1), spectra=empty(config.n_fft + 2),
        branches=[empty(config.channels(i)) for i in stages],
        stages=[empty(config.channels(i)) for i in stages[:-1]],
        windows=like.new_zeros(overlap, config.n_fft), present=like.new_zeros(overlap))


@dataclass(slots=True)
class _Row:
    """One row during one step."""

    state: HiftState
    final: bool
    frames: int = 0                         # mel frames so far; all of them when final
    output: list[Tensor] = field(default_factory=list)


_Span = tuple[_Row, int, int]               # a row, and the positions from and to which its stream grows


def _batch(pieces: Sequence[Tensor], length: int | None = None) -> Tensor:
    """Stack [C, n_i], zero-padded on the right (or cut) to one length."""
    length = max(p.shape[-1] for p in pieces) if length is None else length
    return torch.stack([F.pad(p, (0, length - p.shape[-1])) for p in pieces])


def _mask(lengths: Sequence[int], like: Tensor) -> Tensor | None:
    """[B, 1, n], or nothing when all rows are equally long."""
    if len(set(lengths)) == 1:
        return None
    limit = torch.tensor(lengths, device=like.device)[:, None]
    return (torch.arange(max(lengths), device=like.device) < limit)[:, None].to(like.dtype)


class _Step:
    """One batched step; each method moves every row's stream on by what its input allows."""

    def __init__(self, model: Hift, geometry: HiftGeometry, rows: Sequence[_Row]) -> None:
        self.model, self.geometry, self.rows = model, geometry, rows

    def run(self) -> None:
        self.advance_f0_and_source()
        self.advance_spectra()
        for stage in range(self.geometry.stages):
            self.advance_branch(stage)
            self.advance_stage(stage)

    def growing(self, begin: Callable[[_Row], int], end: Callable[[_Row], int]) -> list[_Span]:
        """Rows whose stream grows in this step, and from where to where."""
        spans = [(row, begin(row), end(row)) for row in self.rows]
        return [span for span in spans if span[2] > span[1]]

    def advance_f0_and_source(self) -> None:
        geometry = self.geometry
        grown = self.growing(
            lambda r: r.state.f0.end, lambda r: r.frames if r.final else geometry.f0_end(r.frames))
        if grown:
            starts = [geometry.f0_start(begin) for _, begin, _ in grown]
            pieces = [row.state.mel.since(start) for (row, _, _), start in zip(grown, starts, strict=True)]
            lengths = [p.shape[-1] for p in pieces]
            limit = None if len(set(lengths)) == 1 else torch.tensor(lengths, device=pieces[0].device)
            f0 = self.model.f0_predictor.precise(_batch(pieces), limit)
            for i, ((row, begin, end), start) in enumerate(zip(grown, starts, strict=True)):
                row.state.f0.append(f0[i:i + 1, begin - start:end - start])
        per_frame = self.model.config.samples_per_frame
        ready = self.growing(
            lambda r: r.state.source.end,
            lambda r: r.frames * per_frame if r.final else geometry.source_end(r.state.f0.end))
        if ready:
            self.make_source(ready)

    def make_source(self, ready: list[_Span]) -> None:
        source, per_frame = self.model.m_source, self.model.config.samples_per_frame
        states = [row.state for row, _, _ in ready]
        f0 = _batch([s.f0.data for s in states])[:, 0]                              # [B, F]
        cycles = source.cycles_per_sample(f0)
        first = torch.stack([cycles[i, 0].double() * per_frame if s.phase is None else s.phase
                             for i, s in enumerate(states)])
        starts = torch.tensor([s.f0.start * per_frame for s in states], device=f0.device)
        seeds = torch.tensor([s.seed for s in states], device=f0.device)
        samples = source(f0, normal_noise(seeds, starts, f0.shape[1] * per_frame), first)
        centres = source.centre_phase(cycles, first)
        for i, (row, begin, end) in enumerate(ready):
            state = row.state
            offset = state.f0.start * per_frame
            state.source.append(samples[i:i + 1, begin - offset:end - offset])
            kept = state.f0.end - 1
            state.phase = centres[i, kept - state.f0.start].clone()
            state.f0.forget(kept)

    def advance_spectra(self) -> None:
        geometry, transform = self.geometry, self.model.spectrum
        half, hop = transform.n_fft // 2, transform.hop_samples
        grown = self.growing(
            lambda r: r.state.spectra.end,
            lambda r: (r.frames * self.model.config.spectra_per_frame + 1 if r.final
                       else geometry.spectra_end(r.state.source.end)))
        if not grown:
            return
        pieces = []
        for row, begin, _ in grown:
            source = row.state.source
            piece = source.since(max(0, hop * begin - half))[None]
            piece = F.pad(piece, (half if begin == 0 else 0, half if row.final else 0), mode="reflect")
            pieces.append(piece[0])
        spectra = transform.analyse(_batch(pieces)[:, 0])
        for i, (row, begin, end) in enumerate(grown):
            row.state.spectra.append(spectra[i, :, :end - begin])
            row.state.source.forget(max(0, hop * end - half))

    def advance_branch(self, stage: int) -> None:
        geometry = self.geometry
        grown = self.growing(
            lambda r: r.state.branches[stage].end,
            lambda r: (geometry.total(stage, r.frames) if r.final
                       else geometry.branch_end(stage, r.state.spectra.end)))
        if not grown:
            return
        stride = self.model.config.source_strides[stage]
        starts = [geometry.branch_start(stage, begin) for _, begin, _ in grown]
        pieces = [row.state.spectra.since(start) for (row, _, _), start in zip(grown, starts, strict=True)]
        lengths = [(geometry.total(stage, row.frames) if row.final
                    else geometry.branch_valid(stage, row.state.spectra.end)) - start // stride
                   for (row, _, _), start in zip(grown, starts, strict=True)]
        out = self.model.source_branch(stage, _batch(pieces), _mask(lengths, pieces[0]), max(lengths))
        for i, ((row, begin, end), start) in enumerate(zip(grown, starts, strict=True)):
            first = start // stride
            row.state.branches[stage].append(out[i, :, begin - first:end - first])

    def advance_stage(self, stage: int) -> None:
        geometry, model = self.geometry, self.model
        last = geometry.is_last(stage)

        def source_of(row: _Row) -> Stream:
            return row.state.stages[stage - 1] if stage else row.state.mel

        def valid(row: _Row) -> int:
            if row.final:
                return geometry.total(stage, row.frames)
            return geometry.stage_valid(stage, source_of(row).end, row.state.branches[stage].end)

        def done(row: _Row) -> int:
            return row.state.spectra_done if last else row.state.stages[stage].end

        grown = self.growing(done, lambda r: valid(r) if r.final else geometry.stage_end(
            stage, source_of(r).end, r.state.branches[stage].end))
        if grown:
            rate = model.config.upsample_rates[stage]
            starts = [geometry.stage_start(stage, begin) for _, begin, _ in grown]
            inputs = [source_of(row).since(start) for (row, _, _), start in zip(grown, starts, strict=True)]
            lengths = [valid(row) - rate * start for (row, _, _), start in zip(grown, starts, strict=True)]
            branches = [row.state.branches[stage].since(rate * start)[..., :length]
                        for (row, _, _), start, length in zip(grown, starts, lengths, strict=True)]
            x = self.stage_input(stage, inputs, max(lengths))
            x = x + _batch(branches, max(lengths))
            mask = _mask(lengths, x)
            x = model.merge(stage, x if mask is None else x * mask, mask)
            spans = [(row, begin - rate * start, end - rate * start)
                     for (row, begin, end), start in zip(grown, starts, strict=True)]
            if last:
                self.give_samples(x, spans)
            else:
                for i, (row, begin, end) in enumerate(spans):
                    row.state.stages[stage].append(x[i, :, begin:end])
        for row in self.rows:
            start = geometry.stage_start(stage, done(row))
            row.state.branches[stage].forget(model.config.upsample_rates[stage] * start)
            if stage:
                source_of(row).forget(start)

    def stage_input(self, stage: int, inputs: list[Tensor], length: int) -> Tensor:
        """Batch the inputs of a stage and upsample them, cut to `length`."""
        x = _batch(inputs)
        if stage == 0:
            x = self.model.conv_pre(x)
            mask = _mask([i.shape[-1] for i in inputs], x)
            x = x if mask is None else x * mask
        x = self.model.upsample(stage, x)
        return x[..., :length]

    def give_samples(self, x: Tensor, spans: list[_Span]) -> None:
        """Turn the last stage's new outputs into samples, each once all windows over it are there."""
        transform = self.model.spectrum
        overlap = transform.parts - 1
        magnitude, phase = self.model.spectra(x)
        windows = transform.windows(magnitude, phase)                               # [B, T, 16]
        sizes = [end - begin for _, begin, end in spans]
        joined = windows.new_zeros(len(spans), overlap + max(sizes) + 1, transform.n_fft)
        present = windows.new_zeros(joined.shape[:2])
        for i, (row, begin, end) in enumerate(spans):
            joined[i, :overlap], present[i, :overlap] = row.state.windows, row.state.present
            joined[i, overlap:overlap + sizes[i]] = windows[i, begin:end]
            present[i, overlap:overlap + sizes[i]] = 1
        limit = self.model.config.largest_sample
        samples = transform.overlap_add(joined, present).clamp(-limit, limit)
        for i, (row, _, _) in enumerate(spans):
            state = row.state
            # half a window in front of sample 0 is cut, as is the other half behind the end
            first = transform.n_fft // 2 if state.spectra_done == 0 else 0
            count = (sizes[i] + (1 if row.final else 0)) * transform.hop_samples
            row.output.append(samples[i, first:count])
            state.spectra_done += sizes[i]
            state.windows = joined[i, sizes[i]:sizes[i] + overlap].clone()
            state.present = present[i, sizes[i]:sizes[i] + overlap].clone()


def step(model: Hift, geometry: HiftGeometry, states: Sequence[HiftState], mels: Sequence[Tensor],
         finals: Sequence[bool]) -> list[Tensor]:
    """See `Hift.step`."""
    rows = []
    for state, mel, final in zip(states, mels, finals, strict=True):
        if state.closed:
            raise ValueError("this row has had its final step")
        state.mel.append(mel)
        rows.append(_Row(state, final, state.mel.end))
    _Step(model, geometry, [row for row in rows if row.frames]).run()
    waveforms = []
    for row in rows:
        state = row.state
        state.closed = row.final
        state.mel.forget(min(geometry.f0_start(state.f0.end), geometry.stage_start(0, state.stages[0].end)))
        state.spectra.forget(min(geometry.branch_start(i, b.end) for i, b in enumerate(state.branches)))
        waveform = torch.cat(row.output) if row.output else state.mel.data.new_empty(0)
        state.samples_given += len(waveform)
        waveforms.append(waveform)
    return waveforms
