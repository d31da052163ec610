"""What the flow is trained on, on one device: each voice's clips end to end as speech tokens, mel and embeddings.

A crop of such a stretch may run over the seam of two clips, which is what voicing new speech after a prompt is. Each
clip can be there again played faster or slower: another voice, whose tokens and embeddings are computed from its sound.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from studio.models.prompt.speaker_encoder import SpeakerEncoder
from studio.models.prompt.speech_tokenizer import SpeechTokenizer
from studio.training import signal
from studio.training.corpus import SAMPLE_RATE_HZ, SAMPLES_PER_TOKEN, CorpusPart
from studio.training.encode import embed, tokenise_rows
from studio.training.frame_store import to_16k

BATCH_AUDIO_S = 900.0
EMBEDDING_CROPS = 3
EMBEDDING_FRAMES = 220
FBANK_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Take:
    """One clip as it will be heard. voice: number of speaker and ratio together; first: its place in the buffers."""

    part: int
    clip: int
    ratio: float
    voice: int
    tokens: int
    first: int


@dataclass(frozen=True, slots=True, eq=False)
class VoiceStore:
    """tokens int16 [N]; mel float16 [2 N, 80]; embeddings float32 [takes, 3, 192].

    Training takes come first, voice after voice. starts, sizes: tokens of each voice's stretch; first_take, takes: its
    takes. validation: takes of clips that are never trained on, each with the voice's number in `stretch_of`.
    """

    tokens: Tensor
    mel: Tensor
    embeddings: Tensor
    starts: Tensor
    sizes: Tensor
    first_take: Tensor
    takes: Tensor
    validation: tuple[tuple[int, Take], ...]
    stretch_of: dict[int, int]

    def draw(self, rows: int, crop_tokens: int, chance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Random crops, on the device: tokens int64 [B, T], mel [B, 2 T, 80], embedding of some clip of the voice.

        chance: running sums of each stretch's probability, float64.
        """
        device = self.tokens.device
        u = torch.rand(rows, device=device, dtype=torch.float64)
        voice = torch.searchsorted(chance, u, right=True).clamp(max=len(self.starts) - 1)
        spare = self.sizes[voice] - crop_tokens
        first = self.starts[voice] + (torch.rand(rows, device=device) * (spare + 1)).long().minimum(spare)
        take = (torch.rand(rows, device=device) * self.takes[voice]).long().minimum(self.takes[voice] - 1)
        crop = torch.randint(0, EMBEDDING_CROPS, (rows,), device=device)
        embedding = self.embeddings[self.first_take[voice] + take, crop]
        return *self.span(first, crop_tokens), embedding

    def span(self, first: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """tokens [B, count] and mel [B, 2 count, 80] from each first token on."""
        step = torch.arange(count, device=self.tokens.device)
        frame = torch.arange(2 * count, device=self.tokens.device)
        return self.tokens[first[:, None] + step].long(), self.mel[2 * first[:, None] + frame].float()


def stretch_chances(store: VoiceStore, crop_tokens: int) -> Tensor:
    """Running probability of each stretch: by its length, 0 for one that is shorter than a crop."""
    weight = (store.sizes - crop_tokens + 1).clamp(min=0).double()
    return torch.cumsum(weight / weight.sum(), 0)


def plan(
    parts: Sequence[CorpusPart], speakers: Sequence[str], ratios: Sequence[float], other_share: float
) -> tuple[list[Take], list[Take]]:
    """Training and validation takes in buffer order; ratios other than 1 get a share of the clips."""
    number = {name: i for i, name in enumerate(speakers)}
    training: list[tuple[int, int, int, float, int]] = []
    held: list[tuple[int, int, int, float, int]] = []
    for p, part in enumerate(parts):
        for c, clip in enumerate(part.clips):
            for r, ratio in enumerate(ratios):
                tokens = _played(clip.samples, ratio) // SAMPLES_PER_TOKEN
                entry = (number[clip.speaker] * len(ratios) + r, p, c, ratio, tokens)
                if clip.validation and ratio == 1.0:
                    held.append(entry)
                elif not clip.validation and (ratio == 1.0 or _hash01(p, c, r) < other_share):
                    training.append(entry)
    training.sort(key=lambda e: e[:3])
    placed, first = [], 0
    for voice, p, c, ratio, tokens in (*training, *held):
        placed.append(Take(p, c, ratio, voice, tokens, first))
        first += tokens
    return placed[: len(training)], placed[len(training) :]


def _played(samples: int, ratio: float) -> int:
    rate_hz = round(SAMPLE_RATE_HZ * ratio)
    divisor = math.gcd(rate_hz, SAMPLE_RATE_HZ)
    return -(-samples * (SAMPLE_RATE_HZ // divisor) // (rate_hz // divisor))


def _hash01(*numbers: int) -> float:
    value = 0
    for n in numbers:
        value = (value * 1_000_003 + n * 7919 + 12345) % 1_000_000_007
    return value / 1_000_000_007


@torch.no_grad()
def build(
    parts: Sequence[CorpusPart], speakers: Sequence[str], tokenizer: SpeechTokenizer, encoder: SpeakerEncoder,
    device: str, ratios: Sequence[float] = (1.0,), other_share: float = 0.5, batch_audio_s: float = BATCH_AUDIO_S,
) -> VoiceStore:  # fmt: skip
    """Compute everything from the clips' sound, at most so many padded seconds at a time; 17 h are seconds on a GPU."""
    training, held = plan(parts, speakers, ratios, other_share)
    takes = [*training, *held]
    total = takes[-1].first + takes[-1].tokens
    tokens = torch.zeros(total, dtype=torch.int16, device=device)
    mel = torch.zeros(2 * total, 80, dtype=torch.float16, device=device)
    fbank = torch.zeros(FBANK_PER_TOKEN * total, 80, dtype=torch.float16, device=device)
    for p, part in enumerate(parts):
        audio = torch.from_numpy(np.array(part.audio)).to(device)
        for ratio in ratios:
            for group in _batches([t for t in takes if t.part == p and t.ratio == ratio], batch_audio_s):
                x24, lengths = _sound(audio, part, group, ratio, device)
                first = torch.tensor([t.first for t in group], device=device)
                count = torch.tensor([t.tokens for t in group], device=device)
                _put(mel, signal.log_mel(x24, lengths), first, count, 2)
                _put(fbank, signal.kaldi_fbank(to_16k(x24, lengths)[0]), first, count, FBANK_PER_TOKEN)
                ids = [
                    torch.from_numpy(row.astype(np.int16)) for row in tokenise_rows(tokenizer, x24, lengths)
                ]
                ids = nn.utils.rnn.pad_sequence(ids, batch_first=True).to(device)
                _put(tokens[:, None], ids[..., None], first, count, 1)
    embeddings = embed_takes(encoder, fbank, takes, device)
    voices, spans = [], []
    for voice, numbered in itertools.groupby(enumerate(training), key=lambda pair: pair[1].voice):
        stretch = list(numbered)
        voices.append(voice)
        spans.append([stretch[0][1].first, sum(t.tokens for _, t in stretch), stretch[0][0], len(stretch)])
    edges = torch.tensor(spans, device=device)
    held_takes = tuple((len(training) + i, take) for i, take in enumerate(held))
    starts, sizes, first_take, takes = edges.unbind(1)
    return VoiceStore(
        tokens, mel, embeddings, starts, sizes, first_take, takes, held_takes, {v: i for i, v in enumerate(voices)}
    )


def _batches(takes: list[Take], batch_audio_s: float) -> Iterator[list[Take]]:
    """Takes of about one length together, as many as a feature batch may hold."""
    group: list[Take] = []
    for take in sorted(takes, key=lambda t: t.tokens):
        if group and (len(group) + 1) * take.tokens > batch_audio_s * 25:
            yield group
            group = []
        group.append(take)
    if group:
        yield group


def _sound(
    audio: Tensor, part: CorpusPart, group: list[Take], ratio: float, device: str
) -> tuple[Tensor, Tensor]:
    """24 kHz rows of some clips played at a ratio, zero beyond their lengths."""
    lengths = torch.tensor([part.clips[t.clip].samples for t in group], device=device)
    starts = torch.tensor([int(part.starts[t.clip]) for t in group], device=device)
    position = torch.arange(int(lengths.max()), device=device)[None]
    index = (starts[:, None] + position).clamp(max=len(audio) - 1)
    x24 = torch.where(position < lengths[:, None], audio[index].float() / 32768, 0.0)
    if ratio == 1.0:
        return x24, lengths
    rate_hz = round(SAMPLE_RATE_HZ * ratio)
    x24 = signal.resample(x24, rate_hz, SAMPLE_RATE_HZ)
    lengths = signal.resampled_length(lengths, rate_hz, SAMPLE_RATE_HZ)
    beyond = torch.arange(x24.shape[1], device=device)[None] >= lengths[:, None]
    return x24.masked_fill(beyond, 0.0), lengths


def _put(target: Tensor, frames: Tensor, first: Tensor, count: Tensor, per: int) -> None:
    """Write each row's frames to its place; a row that is short by a frame repeats its last one."""
    wanted = int(count.max()) * per
    if frames.shape[1] < wanted:
        frames = torch.cat([frames, frames[:, -1:].expand(-1, wanted - frames.shape[1], -1)], 1)
    step = torch.arange(wanted, device=target.device)
    inside = step[None] < (count * per)[:, None]
    target[((first * per)[:, None] + step)[inside]] = frames[:, :wanted][inside].to(target.dtype)


def embed_takes(encoder: SpeakerEncoder, fbank: Tensor, takes: Sequence[Take], device: str) -> Tensor:
    """Embeddings of random crops of each take, [takes, 3, 192] of unit length; short clips are repeated."""
    first = torch.tensor([t.first for t in takes], device=device) * FBANK_PER_TOKEN
    frames = torch.tensor([t.tokens for t in takes], device=device) * FBANK_PER_TOKEN - 2
    step = torch.arange(EMBEDDING_FRAMES, device=device)
    made = []
    for _ in range(EMBEDDING_CROPS):
        begin = (torch.rand(len(takes), device=device) * frames).long()
        rows = []
        for some in torch.arange(len(takes), device=device).split(1024):
            at = first[some, None] + (begin[some, None] + step) % frames[some, None]
            crop = fbank[at].float()
            rows.append(embed(encoder, crop))
        made.append(torch.cat(rows))
    return torch.stack(made, 1)
