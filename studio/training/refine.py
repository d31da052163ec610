"""Train a finished flow a little further for likeness, judged by the speaker encoder; made for two CPU cores.

    python -m studio.training.refine CACHE SPEAKERS TOKENIZER.pt SPEAKER.pt FLOW OUT --minutes 24 --device cpu

CACHE is what `corpus` decoded, FLOW a flow.safetensors or what `flow` wrote. Most rows of a step are voiced by the
flow from noise on, as when it is used, and judged by their voice (`voice_loss`). From the true path, on which a flow
learns, one step to the end would show nothing: there the noisy mel itself has the voice. The other rows are those of
`flow`, so that it stays one.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from studio.models.flow import Flow, training
from studio.models.flow.layers import WholeView
from studio.models.flow.sizes import FlowConfig
from studio.models.flow.solver import flow_times
from studio.models.weights import read_tensors
from studio.training import augment, flow_data, widen
from studio.training.averaging import RunningAverage
from studio.training.beginning import add_common
from studio.training.corpus import load_part, part_names, speaker_names
from studio.training.encode import load_speaker_encoder, load_tokenizer
from studio.training.flow import (
    CHECKPOINT_EVERY_S,
    EMBEDDING_NOISE,
    conditions,
    disturbed,
    draw,
    save,
    view_of,
)
from studio.training.flow_data import VoiceStore
from studio.training.stepping import Meter, Optimizer, RunLog, Schedule, load_weights
from studio.training.voice_loss import MelSpeakerEncoder, VoiceTerms, fit_filter_bank_map, voice_terms

BATCH_AUDIO_S = 200.0
"""Padded seconds that a feature batch may hold: the tokenizer's attention shares the memory of a small machine."""
LED_STEPS = 3
"""Steps of the solve whose first one or two lead a row: to flow time 0.13 or 0.5. The next goes to the end at once."""
LED_TWICE_SHARE = 0.6
LED_PROMPT = 0.35, 0.55
"""Bounds of the part of a crop that is the prompt of the led rows; one for all rows of a step."""
OWN_EMBEDDING_SHARE, WRONG_EMBEDDING_SHARE = 0.5, 0.25
"""Of rows in other voices; the rest has none. An embedding of its own is that of the prompt's mel."""
MISSING_EMBEDDING_SHARE = 0.2
"""Of rows in voices of the corpus."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The rows of one step: the first `led` begin at noise, those behind them lie on the true path.

    tokens: int64 [B, T]. mel: [B, 2 T, 80]. prompt: the same as the recording of a prompt would have it. embedding:
    [B, 192]. drawn: noise, times, and prompts; of led rows the time up to which they are led, in `led_steps` steps.
    """

    tokens: Tensor
    mel: Tensor
    prompt: Tensor
    embedding: Tensor
    drawn: training.Draw
    led: int
    led_steps: int
    led_prompt_frames: int


@torch.no_grad()
def draw_batch(store: VoiceStore, hear: MelSpeakerEncoder, chance: Tensor, args: argparse.Namespace) -> Batch:
    """Crops of random voices, most of them voices that no clip has; see `flow_data.stretch_chances` for chance."""
    led = args.rows
    tokens, mel, embedding = store.draw(led + args.usual_rows, args.crop_tokens, chance)
    mel, other = widen.in_other_voices(mel, args.other_voices)
    mel = widen.louder_or_softer(mel)
    least, most = LED_PROMPT
    prompt_frames = int(mel.shape[1] * (least + (most - least) * float(torch.rand(()))))
    led_steps = 1 + int(torch.rand(()) < LED_TWICE_SHARE)
    drawn = draw(mel)
    drawn.prompt_frames[:led] = prompt_frames
    drawn.keep[:led] = 1.0
    drawn.time[:led] = flow_times(LED_STEPS)[led_steps]
    embedding = embeddings_of(embedding, hear(mel[:, :prompt_frames]), other)
    bin_hz = augment.mel_bin_hz(80, "slaney").to(mel.device)
    return Batch(tokens, mel, disturbed(mel, bin_hz), embedding, drawn, led, led_steps, prompt_frames)


def embeddings_of(embedding: Tensor, own: Tensor, other: Tensor) -> Tensor:
    """What each row is told of its speaker, with noise; zeros say nothing.

    Args:    embedding, own: [B, 192] of the voice as it was, and as it is. other: bool [B], rows in other voices.
    """
    which = torch.rand(len(embedding), device=embedding.device)
    given = torch.where((other & (which < OWN_EMBEDDING_SHARE))[:, None], own, embedding)
    told_share = torch.where(other, OWN_EMBEDDING_SHARE + WRONG_EMBEDDING_SHARE, 1 - MISSING_EMBEDDING_SHARE)
    return (given + EMBEDDING_NOISE * torch.randn_like(given)) * (which < told_share)[:, None]


@torch.no_grad()
def lead(flow: Flow, x: Tensor, given: Tensor, steps: int, view: WholeView) -> Tensor:
    """The first steps of a solve of LED_STEPS from noise x [B, F, 80], without guidance."""
    times = flow_times(LED_STEPS).to(x.device)
    for now, then in itertools.pairwise(times[: steps + 1]):
        time_features = flow.estimator.time_features(now.expand(len(x)))
        x = x + (then - now) * flow.estimator(x, given, time_features, view)
    return x


def batch_losses(
    flow: Flow, hear: MelSpeakerEncoder, batch: Batch, streaming: bool
) -> tuple[Tensor, VoiceTerms]:
    """The flow's own loss, of the rows on the true path, and the voices of the led rows after their prompts."""
    led, behind = batch.led, batch.led_prompt_frames
    given = conditions(flow, batch.tokens, batch.prompt, batch.embedding, batch.drawn, streaming)
    view = view_of(batch.mel, streaming)
    x, target = training.noisy_mel(batch.mel, batch.drawn)
    led_x = lead(flow, batch.drawn.noise[:led], given[:led], batch.led_steps, view)
    x = torch.cat([led_x, x[led:]])
    velocity = flow.estimator(x, given, flow.estimator.time_features(batch.drawn.time), view)
    left = (1 - batch.drawn.time)[:led, None, None]
    end = (led_x + left * velocity[:led])[:, behind:]
    return F.mse_loss(velocity[led:], target[led:]), voice_terms(hear, end, batch.mel[:led, behind:])


def load_flow(path: Path) -> Flow:
    """A flow of a checkpoint's or a trainer's file, its token encoder frozen: only the voice is to change.

    In evaluation mode, that is without dropout: what leads a row must be what is used.
    """
    tensors = load_weights(path)[0] if path.suffix == ".pt" else read_tensors(path)
    flow = Flow(FlowConfig.from_tensors(tensors)).eval()
    flow.load_state_dict(tensors)
    flow.encoder.requires_grad_(False)
    flow.input_embedding.requires_grad_(False)
    return flow


def train(args: argparse.Namespace) -> None:
    torch.manual_seed(args.seed)
    run = RunLog(args.out, args.name)
    parts = [load_part(args.cache, name) for name in part_names(args.cache)]
    encoder = load_speaker_encoder(args.speaker_encoder, args.device)
    store = flow_data.build(
        parts, speaker_names(args.speakers), load_tokenizer(args.tokenizer, args.device), encoder,
        args.device, args.ratios, args.other_share, BATCH_AUDIO_S,
    )  # fmt: skip
    hear = MelSpeakerEncoder(encoder, fit_filter_bank_map(parts).to(args.device))
    flow = load_flow(args.flow).to(args.device)
    average = RunningAverage(flow, 1.0, args.average_steps)
    optimizer = Optimizer(flow, args.rate, betas=(0.9, 0.98), decay=0.01)
    chance = flow_data.stretch_chances(store, args.crop_tokens)
    run.write(tokens=len(store.tokens), voices=len(store.starts))
    budget_s = args.minutes * 60
    schedule = Schedule(
        time.monotonic(), budget_s, args.rate, args.max_steps, warmup_s=budget_s / 20, final_ratio=0.1
    )
    meter, steps, report_s, saved_s = Meter(), 0, time.monotonic(), time.monotonic()
    while not schedule.over(steps):
        optimizer.set_rate(schedule.rate(steps))
        average.plan(steps + 1)  # the first step's weights replace those that were loaded
        batch = draw_batch(store, hear, chance, args)
        matching, voice = batch_losses(flow, hear, batch, streaming=steps % 2 == 0)
        norm = optimizer.step(
            matching + voice.loss(args.cosine_weight, args.contrast_weight, args.colour_weight)
        )
        average.update()
        meter.add({"matching": matching, **voice._asdict(), "norm": norm})
        steps += 1
        if time.monotonic() - report_s > args.report_s:
            run.write(step=steps, rate=schedule.rate(steps), **meter.take())
            report_s = time.monotonic()
        if time.monotonic() - saved_s > CHECKPOINT_EVERY_S:
            save(average, args, steps)
            saved_s = time.monotonic()
    save(average, args, steps)
    run.write(step=steps, **meter.take(), done=True)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a finished flow further for likeness.")
    parser.add_argument("cache", type=Path)
    parser.add_argument("speakers", type=Path, help="speakers.json of the corpus")
    parser.add_argument("tokenizer", type=Path, help="weights of the trained speech tokenizer")
    parser.add_argument("speaker_encoder", type=Path, help="weights of the trained speaker encoder")
    parser.add_argument("flow", type=Path, help="flow.safetensors, or a flow as its trainer writes it")
    parser.add_argument("out", type=Path)
    # On two cores the start takes as long as the steps do, and most of it is the same in every run.
    counted = "wall time of the steps; the start comes before it"
    add_common(parser, name="refined", minutes=24.0, report_s=30.0, seed=1, counted=counted)
    parser.add_argument("--rows", type=int, default=8, help="rows that the flow leads from noise")
    parser.add_argument("--usual-rows", type=int, default=4, help="rows of the flow's own loss")
    parser.add_argument("--crop-tokens", type=int, default=112)
    parser.add_argument("--rate", type=float, default=2e-4)
    parser.add_argument(
        "--average-steps", type=float, default=50.0, help="steps that the weights are averaged over"
    )
    parser.add_argument("--cosine-weight", type=float, default=0.3)
    parser.add_argument("--contrast-weight", type=float, default=0.1)
    parser.add_argument("--colour-weight", type=float, default=0.5)
    parser.add_argument("--ratios", type=float, nargs="+", default=[1.0, 0.87, 1.15])
    parser.add_argument(
        "--other-share", type=float, default=0.2, help="clips that are also played at each other ratio"
    )
    parser.add_argument(
        "--other-voices", type=float, default=0.7, help="share of the crops in voices that no clip has"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    train(parse())
