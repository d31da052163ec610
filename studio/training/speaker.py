"""Train the speaker encoder: additive angular margin over speaker x resampling ratio, recordings disturbed at random.

    python -m studio.training.speaker CACHE SPEAKERS OUT --minutes 2.5 --device cuda:1

A clip played faster or slower is another person: pitch and formants move together. English and Mandarin of one voice
are one class, so the embedding does not tell the language.
"""

from __future__ import annotations

import argparse
import logging
import math
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from studio.models.prompt.speaker_encoder import SpeakerEncoder, SpeakerEncoderSize
from studio.training import augment
from studio.training.beginning import add_common, begin
from studio.training.corpus import load_part, part_names, speaker_names, wait_for_part
from studio.training.encode import embed
from studio.training.frame_store import Field, FrameStore, fbank_at
from studio.training.stepping import (
    GraphedStep,
    Meter,
    Optimizer,
    RunLog,
    Schedule,
    save_weights,
    varying_shapes,
)

log = logging.getLogger(__name__)

RATIOS = (1.0, 0.9, 1.1, 1.2)
MARGIN, SCALE = 0.2, 30.0
MARGIN_RAMP_SHARE = 0.25
"""The margin grows from 0 over this share of the budget; at once it keeps small batches from starting."""
HELD_OUT_STEP = 27
"""Every so-manyth speaker of the sorted list is never trained on: 6 unseen speakers measure the error rate."""
CHECKPOINT_EVERY_S = 60.0


def held_out_speakers(speakers: list[str]) -> frozenset[str]:
    return frozenset(speakers[HELD_OUT_STEP // 3 :: HELD_OUT_STEP])


def fields_for_ratios() -> dict[str, Field]:
    return {f"fbank_{ratio}": Field(4, 80, torch.float16, fbank_at(ratio)) for ratio in RATIOS}


class SpeakerTraining(nn.Module):
    """Encoder and class centres [speakers x ratios, 192]."""

    def __init__(self, size: SpeakerEncoderSize, classes: int) -> None:
        super().__init__()
        self.encoder = SpeakerEncoder(size)
        self.centres = nn.Parameter(torch.randn(classes, size.embedding) * 0.05)
        self.register_buffer("margin", torch.zeros(()), persistent=False)
        self.register_buffer("bin_hz", augment.mel_bin_hz(80, "kaldi"), persistent=False)

    def features(self, fbank: Tensor) -> Tensor:
        """Disturb raw filter banks [B, T, 80] and remove their mean over time."""
        x = augment.recording(fbank.float(), self.bin_hz, math.log(10), share=0.75)
        x = x - x.mean(1, keepdim=True)
        return augment.hide(x, 0.0, time_spans=1, span_frames=30, band_bins=8)

    def loss(self, embedding: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """Margin loss and the share of crops nearest to their own centre."""
        cosine = F.linear(F.normalize(embedding.float()), F.normalize(self.centres.float()))
        own = (
            torch.arange(len(self.centres), device=label.device) == label[:, None]
        )  # one_hot would read the device
        angle = cosine.clamp(-1 + 1e-6, 1 - 1e-6).acos()
        pushed = torch.where(own, (angle + self.margin).clamp(max=math.pi).cos(), cosine)
        return F.cross_entropy(SCALE * pushed, label), (cosine.argmax(1) == label).float().mean()


def draw_batch(store: FrameStore, rows: int, crop_tokens: int) -> tuple[Tensor, Tensor]:
    """Equal shares of every ratio: raw filter banks [rows, 4 crop, 80] and class numbers. Short clips are repeated."""
    crops, labels = [], []
    each = rows // len(RATIOS)
    for number, ratio in enumerate(RATIOS):
        clip, first, _ = store.draw(each, crop_tokens)
        # A faster clip has fewer frames: its rows end at tokens / ratio of the clip's place in the buffer.
        frames = (store.tokens[clip] * 4 / max(ratio, 1.0)).long() - 2
        begin = (first - store.first_token[clip]) * 4
        step = torch.arange(crop_tokens * 4, device=store.device)
        row = (store.first_token[clip] * 4)[:, None] + (begin[:, None] + step) % frames[:, None]
        crops.append(store.data[f"fbank_{ratio}"][row])
        labels.append(store.speaker[clip] * len(RATIOS) + number)
    return torch.cat(crops), torch.cat(labels)


def make_step(
    model: SpeakerTraining, store: FrameStore, optimizer: Optimizer, rows: int, crop_tokens: int
) -> GraphedStep:
    device_type = torch.device(store.device).type

    def step() -> dict[str, Tensor]:
        fbank, label = draw_batch(store, rows, crop_tokens)
        features = model.features(fbank)
        with torch.autocast(device_type, torch.bfloat16, enabled=device_type == "cuda", cache_enabled=False):
            embedding = model.encoder(features)
        loss, correct = model.loss(embedding, label)
        norm = optimizer.step(loss)
        return {"loss": loss.detach(), "correct": correct, "norm": norm}

    return GraphedStep(step, store.device)


def equal_error_rate(same: np.ndarray, other: np.ndarray) -> float:
    """Where the share of refused same-speaker pairs meets that of accepted others."""
    thresholds = np.sort(np.concatenate([same, other]))[:: max(1, (len(same) + len(other)) // 2000)]
    misses = np.searchsorted(np.sort(same), thresholds) / len(same)
    accepts = 1 - np.searchsorted(np.sort(other), thresholds) / len(other)
    nearest = np.argmin(np.abs(misses - accepts))
    return float((misses[nearest] + accepts[nearest]) / 2)


def pair_figures(embeddings: np.ndarray, speakers: np.ndarray, prefix: str) -> dict[str, float]:
    """embeddings: float [n, 192], unit length -> error rate and mean similarity within and between speakers."""
    similarity = embeddings @ embeddings.T
    upper = np.triu_indices(len(speakers), 1)
    same = (speakers[:, None] == speakers[None])[upper]
    values = similarity[upper]
    if not same.any() or same.all():
        return {}
    return {
        f"{prefix}_eer": equal_error_rate(values[same], values[~same]),
        f"{prefix}_within": float(values[same].mean()),
        f"{prefix}_between": float(values[~same].mean()),
    }


@torch.no_grad()
@varying_shapes()
def validate(
    model: SpeakerTraining, store: FrameStore, unseen: frozenset[int], most: int = 600
) -> dict[str, float]:
    """Error rates over whole clean clips: of unseen speakers, and of seen speakers' validation clips; ratio 1."""
    model.eval()
    clips, embeddings = [], []
    for clip in store.validation[:most]:
        fbank = store.clip_field("fbank_1.0", clip).float()[None]
        embeddings.append(embed(model.encoder, fbank)[0])
        clips.append(clip)
    model.train()
    if not clips:
        return {}
    vectors = torch.stack(embeddings).cpu().numpy()
    speakers = store.speaker[torch.tensor(clips, device=store.device)].cpu().numpy()
    new = np.isin(speakers, sorted(unseen))
    return pair_figures(vectors[new], speakers[new], "unseen") | pair_figures(
        vectors[~new], speakers[~new], "seen"
    )


def train(args: argparse.Namespace) -> None:
    began_s = begin(args)
    speakers = speaker_names(args.speakers)
    held_out = held_out_speakers(speakers)
    unseen = frozenset(i for i, name in enumerate(speakers) if name in held_out)
    store = FrameStore(fields_for_ratios(), speakers, args.device, args.capacity_tokens, args.capacity_clips)
    run = RunLog(args.out, args.name)

    def grow() -> None:
        for name in part_names(args.cache):
            if name not in store.parts and store.fits(part := load_part(args.cache, name)):
                store.add(part, held_out)
                run.write(part=name, tokens=store.used_tokens)

    wait_for_part(args.cache)
    grow()
    model = SpeakerTraining(SpeakerEncoderSize(channels=args.channels), len(speakers) * len(RATIOS)).to(
        args.device
    )
    schedule = Schedule(began_s, args.minutes * 60, args.rate, args.max_steps)
    optimizer = Optimizer(model, args.rate, betas=(0.9, 0.999), decay=0.01, clip=5.0)
    step = make_step(model, store, optimizer, args.rows, args.crop_tokens)
    meter, steps, report_s, saved_s = Meter(), 0, time.monotonic(), time.monotonic()
    while not schedule.over(steps):
        optimizer.set_rate(schedule.rate(steps))
        model.margin.fill_(MARGIN * min(1.0, schedule.progress(steps) / MARGIN_RAMP_SHARE))
        meter.add(step())
        steps += 1
        if steps % 20 == 0 and args.device != "cpu":
            torch.cuda.synchronize()
        now_s = time.monotonic()
        if now_s - report_s > args.report_s:
            run.write(step=steps, rate=schedule.rate(steps), **meter.take(), **validate(model, store, unseen))
            grow()
            report_s = time.monotonic()
        if now_s - saved_s > CHECKPOINT_EVERY_S:
            save_weights(
                args.out / f"{args.name}.pt", model.encoder.state_dict(), {"channels": args.channels}
            )
            saved_s = time.monotonic()
    figures = validate(model, store, unseen, most=1500)
    run.write(step=steps, done=True, **meter.take(), **figures)
    save_weights(
        args.out / f"{args.name}.pt",
        model.encoder.state_dict(),
        {"channels": args.channels, "figures": figures, "steps": steps},
    )


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train the speaker encoder.")
    parser.add_argument("cache", type=Path)
    parser.add_argument("speakers", type=Path, help="speakers.json of the corpus")
    parser.add_argument("out", type=Path)
    add_common(parser, name="speaker_encoder", minutes=2.5, report_s=20.0, seed=2)
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--crop-tokens", type=int, default=60)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--channels", type=int, default=192)
    parser.add_argument("--capacity-tokens", type=int, default=1_750_000)
    parser.add_argument("--capacity-clips", type=int, default=26_000)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    train(parse())
