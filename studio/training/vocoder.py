"""Train the HiFT vocoder: multi-resolution mel first, then judges with feature matching; the pitch predictor beside.

    python -m studio.training.vocoder CACHE SPEAKERS OUT --minutes 8 --device cuda:1

The source gets the measured pitch, and the predicted one in a growing share of the rows, as the studio will give it.
"""

from __future__ import annotations

import argparse
import logging
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from studio.models.hift.config import HiftConfig
from studio.models.hift.generator import Hift
from studio.training.beginning import add_common, begin
from studio.training.corpus import load_part, part_names, speaker_names, wait_for_part
from studio.training.discriminators import Judges, judge_loss, maker_losses
from studio.training.frame_store import FIELDS, FrameStore
from studio.training.signal import slaney_filters
from studio.training.stepping import (
    GraphedStep,
    Meter,
    Optimizer,
    RunLog,
    Schedule,
    load_weights,
    save_weights,
    varying_shapes,
)

log = logging.getLogger(__name__)

MEL_SCALES = ((256, 64, 32), (512, 128, 64), (1024, 256, 100), (2048, 480, 160))
"""(window = FFT size, hop, mel bins up to 12 kHz) of the spectral loss."""
EDGE_FRAMES = 2
"""Crop borders see padding instead of speech; they are not judged."""
MEL_WEIGHT, MATCH_WEIGHT, FOOL_WEIGHT, F0_WEIGHT = 15.0, 4.0, 1.0, 0.02
AVERAGE_DECAY = 0.998
CHECKPOINT_EVERY_S = 120.0
SAMPLES_PER_FRAME = 480


def mel_distance(made: Tensor, real: Tensor) -> Tensor:
    """Mean absolute difference of log mels over the scales: [B, S] twice."""
    total = torch.zeros((), device=made.device)
    for n_fft, hop, bins in MEL_SCALES:
        window = torch.hann_window(n_fft, device=made.device)
        filters = slaney_filters(24_000, n_fft, bins, 12_000.0, str(made.device))

        def log_mel(x: Tensor) -> Tensor:
            spectrum = torch.stft(x, n_fft, hop, window=window, center=True, return_complex=True)  # noqa: B023
            magnitude = (spectrum.real.square() + spectrum.imag.square() + 1e-9).sqrt()
            return (magnitude.transpose(1, 2) @ filters).clamp(min=1e-5).log()  # noqa: B023

        total = total + (log_mel(made) - log_mel(real)).abs().mean()
    return total / len(MEL_SCALES)


@dataclass(slots=True, eq=False)
class VocoderTraining:
    """Everything a step touches. average: the vocoder whose weights are kept, a running mean of the trained one."""

    vocoder: Hift
    average: Hift
    judges: Judges
    store: FrameStore
    optimizer: Optimizer
    judge_optimizer: Optimizer
    predicted_share: Tensor
    rows: int
    crop_tokens: int

    def draw(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """mel [B, 80, F], f0 [B, F], real samples [B, S], inside [B, S] float."""
        _, first, inside = self.store.draw(self.rows, self.crop_tokens)
        mel = self.store.take("mel", first, self.crop_tokens).float()
        frames = inside.repeat_interleave(2, 1)
        mel = torch.where(frames[..., None], mel, -11.5129).transpose(1, 2)
        f0 = self.store.take("f0", first, self.crop_tokens)[..., 0] * frames
        samples = self.store.take("audio", first, self.crop_tokens)[..., 0].float() / 32768
        return mel, f0, samples * frames.repeat_interleave(SAMPLES_PER_FRAME, 1), frames

    def voice(self, mel: Tensor, f0: Tensor) -> tuple[Tensor, Tensor]:
        """Made samples and the pitch predictor's error in Hz."""
        predicted = self.vocoder.f0_predictor(mel)
        use_predicted = torch.rand((len(mel), 1), device=mel.device) < self.predicted_share
        made = self.vocoder(mel, torch.where(use_predicted, predicted.detach(), f0))
        return made, F.l1_loss(predicted, f0)

    def follow(self) -> None:
        with torch.no_grad():
            torch._foreach_lerp_(
                list(self.average.parameters()), list(self.vocoder.parameters()), 1 - AVERAGE_DECAY
            )

    def spectral_step(self) -> dict[str, Tensor]:
        mel, f0, real, _ = self.draw()
        made, f0_error = self.voice(mel, f0)
        distance = mel_distance(_inner(made), _inner(real))
        norm = self.optimizer.step(MEL_WEIGHT * distance + F0_WEIGHT * f0_error)
        self.follow()
        return {"mel": distance.detach(), "f0_hz": f0_error.detach(), "norm": norm}

    def judged_step(self) -> dict[str, Tensor]:
        mel, f0, real, _ = self.draw()
        made, f0_error = self.voice(mel, f0)
        made, real = _inner(made), _inner(real)
        self.judges.requires_grad_(True)
        with _half(made):
            verdict = judge_loss(self.judges(real), self.judges(made.detach()))
        self.judge_optimizer.step(verdict)
        self.judges.requires_grad_(False)
        with _half(made):
            with torch.no_grad():
                judged_real = self.judges(real)
            fooled, matching = maker_losses(judged_real, self.judges(made))
        distance = mel_distance(made, real)
        total = MEL_WEIGHT * distance + MATCH_WEIGHT * matching + FOOL_WEIGHT * fooled + F0_WEIGHT * f0_error
        norm = self.optimizer.step(total)
        self.follow()
        return {
            "mel": distance.detach(),
            "f0_hz": f0_error.detach(),
            "judges": verdict.detach(),
            "fooled": fooled.detach(),
            "matching": matching.detach(),
            "norm": norm,
        }


def _half(like: Tensor) -> torch.autocast:
    device_type = like.device.type
    return torch.autocast(device_type, torch.bfloat16, enabled=device_type == "cuda", cache_enabled=False)


def _inner(samples: Tensor) -> Tensor:
    edge = EDGE_FRAMES * SAMPLES_PER_FRAME
    return samples[:, edge:-edge]


@torch.no_grad()
@varying_shapes()
def validate(training: VocoderTraining, most: int = 24) -> dict[str, float]:
    """Whole validation clips through the averaged vocoder with its own pitch: mel distance, pitch error,
    voicing error."""
    vocoder, store = training.average, training.store
    distance = f0_error = voicing = 0.0
    clips = store.validation[:most]
    for clip in clips:
        mel = store.clip_field("mel", clip).float().T[None]
        f0 = store.clip_field("f0", clip)[:, 0]
        real = store.clip_field("audio", clip)[:, 0].float()[None] / 32768
        predicted = vocoder.f0_predictor(mel)
        made = vocoder(mel, predicted, torch.randn(1, real.shape[1], device=mel.device))
        distance += float(mel_distance(made, real))
        both = (predicted[0] > 10) & (f0 > 0)
        f0_error += (
            float(((predicted[0] / f0.clamp(min=1)).log2().abs() * 1200)[both].mean())
            if bool(both.any())
            else 0.0
        )
        voicing += float(((predicted[0] > 10) != (f0 > 0)).float().mean())
    count = max(1, len(clips))
    return {
        "val_mel": distance / count,
        "val_f0_cents": f0_error / count,
        "val_voicing_error": voicing / count,
    }


def build(args: argparse.Namespace, store: FrameStore) -> VocoderTraining:
    config = HiftConfig(base_channels=args.base, f0_channels=args.f0_channels)
    vocoder, average = (Hift(config).to(args.device) for _ in range(2))
    if args.resume:
        vocoder.load_state_dict(load_weights(args.resume)[0])
    else:
        with (
            torch.no_grad()
        ):  # Hz are large numbers: without this the predictor spends its first minute growing
            vocoder.f0_predictor.classifier.weight.mul_(40.0)
            vocoder.f0_predictor.classifier.bias.fill_(100.0)
    average.load_state_dict(vocoder.state_dict())
    average.requires_grad_(False)
    judges = Judges(args.period_width, args.spectrum_width).to(args.device)
    if args.resume and (judged := args.resume.with_name(args.resume.stem + "_judges.pt")).exists():
        judges.load_state_dict(load_weights(judged)[0])
    return VocoderTraining(
        vocoder.train(),
        average.train(),
        judges,
        store,
        Optimizer(vocoder, args.rate, betas=(0.8, 0.99), decay=0.001, clip=20.0),
        Optimizer(judges, args.judge_rate, betas=(0.8, 0.99), decay=0.001, clip=20.0),
        torch.zeros((), device=args.device),
        args.rows,
        args.crop_tokens,
    )


def train(args: argparse.Namespace) -> None:
    began_s = begin(args)
    speakers = speaker_names(args.speakers)
    fields = {name: FIELDS[name] for name in ("audio", "mel", "f0")}
    store = FrameStore(fields, speakers, args.device, args.capacity_tokens, args.capacity_clips)
    run = RunLog(args.out, args.name)

    def grow() -> None:
        for name in part_names(args.cache):
            if name not in store.parts and store.fits(part := load_part(args.cache, name)):
                store.add(part)
                run.write(part=name, tokens=store.used_tokens)

    wait_for_part(args.cache)
    grow()
    training = build(args, store)
    schedule = Schedule(began_s, args.minutes * 60, args.rate, args.max_steps, final_ratio=args.final_ratio)
    judge_schedule = Schedule(
        began_s, args.minutes * 60, args.judge_rate, args.max_steps, warmup_s=0.0, final_ratio=args.final_ratio
    )
    spectral = GraphedStep(training.spectral_step, args.device)
    judged = GraphedStep(training.judged_step, args.device)
    meter, steps, judged_steps = Meter(), 0, 0
    report_s = saved_s = time.monotonic()
    while not schedule.over(steps):
        training.optimizer.set_rate(schedule.rate(steps))
        training.judge_optimizer.set_rate(judge_schedule.rate(steps))
        training.predicted_share.fill_(max(0.0, min(0.75, 2 * schedule.progress(steps) - 0.5)))
        judging = schedule.progress(steps) >= args.judges_from
        if judging and judged_steps == 0:
            run.write(step=steps, **meter.take(), **validate(training))
        meter.add((judged if judging else spectral)())
        judged_steps += judging
        steps += 1
        if steps % 10 == 0 and args.device != "cpu":
            torch.cuda.synchronize()
        now_s = time.monotonic()
        if now_s - report_s > args.report_s:
            run.write(
                step=steps,
                judged_steps=judged_steps,
                rate=schedule.rate(steps),
                **meter.take(),
                **validate(training),
            )
            grow()
            report_s = time.monotonic()
        if now_s - saved_s > CHECKPOINT_EVERY_S:
            save(args, training, {"steps": steps})
            saved_s = time.monotonic()
    figures = validate(training)
    run.write(step=steps, judged_steps=judged_steps, done=True, **meter.take(), **figures)
    save(args, training, {"steps": steps, "figures": figures})


def save(args: argparse.Namespace, training: VocoderTraining, meta: dict[str, object]) -> None:
    meta = {"base": args.base, "f0_channels": args.f0_channels} | meta
    save_weights(args.out / f"{args.name}.pt", training.average.state_dict(), meta)
    save_weights(args.out / f"{args.name}_judges.pt", training.judges.state_dict(), {})


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train the HiFT vocoder.")
    parser.add_argument("cache", type=Path)
    parser.add_argument("speakers", type=Path, help="speakers.json of the corpus")
    parser.add_argument("out", type=Path)
    add_common(parser, name="hift", minutes=8.0, report_s=30.0, seed=3)
    parser.add_argument(
        "--judges-from", type=float, default=0.35, help="share of the budget after which judges start"
    )
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--crop-tokens", type=int, default=16)
    parser.add_argument("--rate", type=float, default=8e-4)
    parser.add_argument("--judge-rate", type=float, default=4e-4)
    parser.add_argument("--final-ratio", type=float, default=0.1)
    parser.add_argument("--base", type=int, default=160)
    parser.add_argument("--f0-channels", type=int, default=128)
    parser.add_argument("--period-width", type=int, default=16)
    parser.add_argument("--spectrum-width", type=int, default=16)
    parser.add_argument("--capacity-tokens", type=int, default=1_750_000)
    parser.add_argument("--capacity-clips", type=int, default=26_000)
    parser.add_argument("--resume", type=Path)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    train(parse())
