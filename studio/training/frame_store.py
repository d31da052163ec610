"""All training frames of the corpus on one device, in fixed buffers, with random crops drawn there.

Every field is laid out by speech token (960 samples): a field of p frames a token holds rows p*t .. p*t + p - 1 of
token t. Buffers never move, so a crop can be part of a captured CUDA graph while parts are still being added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from studio.training import signal
from studio.training.corpus import (
    SAMPLE_RATE_HZ,
    SAMPLES_PER_TOKEN,
    CorpusPart,
    phoneme_labels,
    resampled_samples,
)
from studio.training.pitch import track_f0

BATCH_AUDIO_S = 2000.0
"""Padded seconds that one feature batch may hold."""


@dataclass(frozen=True, slots=True)
class Field:
    """A per-token field. make: (24 kHz rows, lengths) -> [B, frames, ...], or None for what `add` fills itself."""

    frames_per_token: int
    width: int
    dtype: torch.dtype
    make: Callable[[Tensor, Tensor], Tensor] | None


def _audio_rows(x24: Tensor, lengths: Tensor) -> Tensor:
    return (x24 * 32768).round()[:, :, None]


def to_16k(x24: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """24 kHz rows, zero beyond their lengths -> 16 kHz rows, likewise, and their lengths."""
    lengths16 = signal.resampled_length(lengths, SAMPLE_RATE_HZ, 16_000)
    x16 = signal.resample(x24, SAMPLE_RATE_HZ, 16_000)
    beyond = torch.arange(x16.shape[1], device=x16.device)[None] >= lengths16[:, None]
    return x16.masked_fill(beyond, 0.0), lengths16


def _whisper(x24: Tensor, lengths: Tensor) -> Tensor:
    return signal.whisper_log10_mel(*to_16k(x24, lengths))


def _mel(x24: Tensor, lengths: Tensor) -> Tensor:
    return signal.log_mel(x24, lengths)


def fbank_at(ratio: float) -> Callable[[Tensor, Tensor], Tensor]:
    """Filter banks of the clip played `ratio` times faster (pitch and formants up together), as a feature."""

    def make(x24: Tensor, lengths: Tensor) -> Tensor:
        return signal.kaldi_fbank(signal.resample(x24, round(SAMPLE_RATE_HZ * ratio), 16_000))

    return make


def _pitch(x24: Tensor, lengths: Tensor) -> Tensor:
    return track_f0(x24, lengths)[:, :, None]


FIELDS: dict[str, Field] = {
    "audio": Field(960, 1, torch.int16, _audio_rows),
    "whisper": Field(4, 128, torch.float16, _whisper),
    "mel": Field(2, 80, torch.float16, _mel),
    "f0": Field(2, 1, torch.float32, _pitch),
    "fbank": Field(4, 80, torch.float16, fbank_at(1.0)),
    "phoneme": Field(2, 1, torch.int16, None),
}


@torch.no_grad()
def resampled_batches(
    part: CorpusPart, ratio: float, device: str
) -> Iterator[tuple[np.ndarray, Tensor, Tensor]]:
    """Clips of a part, shortest first, as (clip numbers, float rows [B, n] zero beyond their lengths, lengths [B])."""
    audio = torch.from_numpy(np.array(part.audio)).to(device)
    samples = np.array([clip.samples for clip in part.clips])
    order = np.argsort(samples, kind="stable")
    at = 0
    while at < len(order):
        padded = samples[order[at:]] * np.arange(1, len(order) - at + 1)
        size = max(1, int((padded <= BATCH_AUDIO_S * SAMPLE_RATE_HZ).sum()))
        rows = order[at : at + size]
        at += size
        lengths = torch.from_numpy(samples[rows]).to(device)
        position = torch.arange(int(samples[rows[-1]]), device=device)[None]
        index = torch.from_numpy(np.array(part.starts)[rows]).to(device)[:, None] + position
        inside = position < lengths[:, None]
        x24 = torch.where(inside, audio[index.clamp(max=len(audio) - 1)].float() / 32768, 0.0)
        if ratio != 1.0:
            played_hz = round(SAMPLE_RATE_HZ * ratio)
            x24 = signal.resample(x24, played_hz, SAMPLE_RATE_HZ)
            lengths = signal.resampled_length(lengths, played_hz, SAMPLE_RATE_HZ)
            x24 = x24.masked_fill(torch.arange(x24.shape[1], device=device)[None] >= lengths[:, None], 0.0)
        yield rows, x24, lengths


class FrameStore:
    """Fields of up to `capacity_tokens` tokens and `capacity_clips` clips; grows by parts, never moves.

    Per clip: first_token, tokens, speaker [capacity_clips] int64; draw_weight for training clips (0:
    validation or unused). Owner: one trainer process; `add` must not run while a step is in flight.
    """

    def __init__(
        self,
        fields: dict[str, Field],
        speakers: Sequence[str],
        device: str,
        capacity_tokens: int,
        capacity_clips: int,
    ) -> None:
        self.fields, self.device = fields, device
        self.speaker_number = {name: i for i, name in enumerate(speakers)}
        self.capacity_tokens, self.capacity_clips = capacity_tokens, capacity_clips
        self.data = {
            name: torch.zeros((capacity_tokens * f.frames_per_token, f.width), dtype=f.dtype, device=device)
            for name, f in fields.items()
        }
        self.first_token, self.tokens, self.speaker = (
            torch.zeros(capacity_clips, dtype=torch.long, device=device) for _ in range(3)
        )
        self.draw_edges = torch.zeros(capacity_clips, dtype=torch.float64, device=device)
        self.draw_weight = np.zeros(capacity_clips)
        self.validation: list[int] = []
        self.clip_ids: list[str] = []
        self.parts: list[str] = []
        self.used_tokens = 0

    def fits(self, part: CorpusPart, ratio: float = 1.0) -> bool:
        tokens = sum(resampled_samples(clip, ratio) // SAMPLES_PER_TOKEN for clip in part.clips)
        return (
            self.used_tokens + tokens <= self.capacity_tokens
            and len(self.clip_ids) + len(part.clips) <= self.capacity_clips
        )

    def add(
        self,
        part: CorpusPart,
        exclude_speakers: frozenset[str] = frozenset(),
        ratio: float = 1.0,
        voice_shift: int = 0,
    ) -> None:
        """Upload a part and compute its fields. Clips of `exclude_speakers` count as validation.

        ratio: playing speed, another voice for another ratio: speaker numbers are moved by `voice_shift`.
        What is played at another speed than its own is for training only.
        """
        first_clip = len(self.clip_ids)
        samples = np.array([resampled_samples(clip, ratio) for clip in part.clips], dtype=np.int64)
        tokens = samples // SAMPLES_PER_TOKEN
        first = self.used_tokens + np.concatenate([[0], np.cumsum(tokens)])
        last_clip = first_clip + len(part.clips)
        if first[-1] > self.capacity_tokens or last_clip > self.capacity_clips:
            raise ValueError(f"part {part.name} does not fit: {first[-1]} tokens, {last_clip} clips")
        place = slice(first_clip, last_clip)
        held_out = np.array([clip.validation or clip.speaker in exclude_speakers for clip in part.clips])
        speakers = np.array([self.speaker_number.get(clip.speaker, 0) for clip in part.clips]) + voice_shift
        for target, values in (
            (self.first_token, first[:-1]),
            (self.tokens, tokens),
            (self.speaker, speakers),
        ):
            target[place] = torch.from_numpy(values).to(self.device)
        if "phoneme" in self.data:
            labels = np.concatenate([phoneme_labels(clip, 50, ratio) for clip in part.clips]).astype(np.int16)
            self.data["phoneme"][2 * self.used_tokens : 2 * int(first[-1]), 0] = torch.from_numpy(labels).to(
                self.device
            )
        with signal.exact_float32():
            for rows, x24, lengths in resampled_batches(part, ratio, self.device):
                self._write(x24, lengths, torch.from_numpy(first[rows]).to(self.device))
        self.draw_weight[place] = np.where(held_out, 0.0, tokens)
        self.draw_edges.copy_(torch.from_numpy(np.cumsum(self.draw_weight)).to(self.device))
        if ratio == 1.0:
            self.validation += [first_clip + int(i) for i in np.nonzero(held_out)[0]]
        self.clip_ids += [clip.id for clip in part.clips]
        self.parts.append(part.name if ratio == 1.0 else f"{part.name}@{ratio}")
        self.used_tokens = int(first[-1])

    @torch.no_grad()
    def _write(self, x24: Tensor, lengths: Tensor, first: Tensor) -> None:
        tokens = lengths // SAMPLES_PER_TOKEN
        for name, field in self.fields.items():
            if field.make is None:
                continue
            frames = field.make(x24, lengths)
            per = field.frames_per_token
            wanted = int(tokens.max()) * per
            if frames.shape[1] < wanted:  # filter banks end early: their last frame is repeated
                frames = torch.cat([frames, frames[:, -1:].expand(-1, wanted - frames.shape[1], -1)], 1)
            step = torch.arange(wanted, device=self.device)
            inside = step[None] < (tokens * per)[:, None]
            rows = (first * per)[:, None] + step
            self.data[name][rows[inside]] = frames[:, :wanted][inside].to(field.dtype)

    def draw(self, rows: int, crop_tokens: int) -> tuple[Tensor, Tensor, Tensor]:
        """Random training crops: clip number [B], first token in the buffers [B], inside its clip [B, crop] bool.

        A clip is drawn in proportion to its length; one shorter than the crop starts at its beginning.
        Device work only.
        """
        u = torch.rand(rows, device=self.device, dtype=torch.float64)
        clip = torch.searchsorted(self.draw_edges, u * self.draw_edges[-1], right=True).clamp(
            max=self.capacity_clips - 1
        )
        spare = (self.tokens[clip] - crop_tokens).clamp(min=0)
        offset = (torch.rand(rows, device=self.device) * (spare + 1)).long().clamp(max=spare)
        inside = offset[:, None] + torch.arange(crop_tokens, device=self.device) < self.tokens[clip][:, None]
        return clip, self.first_token[clip] + offset, inside

    def take(self, name: str, first_token: Tensor, crop_tokens: int) -> Tensor:
        """Rows of a field from each first token on: [B, crop * frames a token, width], in the stored dtype."""
        per = self.fields[name].frames_per_token
        rows = first_token[:, None] * per + torch.arange(crop_tokens * per, device=self.device)
        return self.data[name][rows.clamp(max=len(self.data[name]) - 1)]

    def clip_field(self, name: str, clip: int) -> Tensor:
        """One whole clip of a field: [tokens * frames a token, width]."""
        per = self.fields[name].frames_per_token
        first, count = int(self.first_token[clip]), int(self.tokens[clip])
        return self.data[name][first * per : (first + count) * per]
