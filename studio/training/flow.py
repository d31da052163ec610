"""Train the flow of the embedded voice on random crops of each voice; a step of either mask is one CUDA graph.

    python -m studio.training.flow CACHE SPEAKERS TOKENIZER.pt SPEAKER.pt OUT --minutes 13 --device cuda:1

CACHE is what `corpus` decoded. Half of the steps see the block-causal mask of streaming, half everything. Prompts in
the condition are random in length, some disturbed as a bad recording is, so that real people's prompts work. A share
of the crops is in voices that no clip has, so that the prompt is what is copied (`widen`).
"""

from __future__ import annotations

import argparse
import copy
import logging
import math
import time
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from studio.models.flow import Flow, training
from studio.models.flow.layers import WholeView, visibility
from studio.models.flow.sizes import BLOCK_FRAMES, FlowConfig
from studio.training import augment, flow_data, widen
from studio.training.averaging import RunningAverage
from studio.training.beginning import add_common
from studio.training.corpus import load_part, part_names, speaker_names
from studio.training.encode import load_speaker_encoder, load_tokenizer
from studio.training.flow_data import VoiceStore
from studio.training.stepping import (
    GraphedStep,
    Meter,
    Optimizer,
    RunLog,
    Schedule,
    load_weights,
    run_began_s,
    save_weights,
)

log = logging.getLogger(__name__)

PROMPT_SHARE, PROMPT_LIMIT = 0.7, 0.75
"""Share of the crops that have a prompt, and how much of the crop it may be."""
DISTURBED_SHARE = 0.25
EMBEDDING_NOISE = 0.03
CHECKPOINT_EVERY_S = 120.0
TRIAL_PROMPT_TOKENS = 100
MEL_FLOOR = math.log(1e-5)


def draw(mel: Tensor) -> training.Draw:
    """The random part of a step, with longer prompts than the official recipe's."""
    rows, frames, _ = mel.shape

    def uniform() -> Tensor:
        return torch.rand(rows, device=mel.device)

    prompted = uniform() < PROMPT_SHARE
    return training.Draw(
        noise=torch.randn_like(mel), time=1 - torch.cos(uniform() * 0.5 * math.pi),
        keep=(uniform() > training.CONDITION_DROPOUT).float(),
        prompt_frames=(uniform() * PROMPT_LIMIT * frames).long() * prompted,
    )  # fmt: skip


def disturbed(mel: Tensor, bin_hz: Tensor) -> Tensor:
    """Mels of which a share is as a noisier, duller recording would give it; amplitudes, so 10 dB is ln(10) / 2.

    Colour and level stay: a prompt that has another one than what follows teaches the flow not to copy it.
    """
    return augment.recording(mel, bin_hz, math.log(10) / 2, DISTURBED_SHARE, equalised=0.0).clamp(min=MEL_FLOOR)


def conditions(
    flow: Flow, tokens: Tensor, prompt: Tensor, embedding: Tensor, drawn: training.Draw, streaming: bool
) -> Tensor:
    """What the estimator is told of whole crops (nothing is padded): tokens, speaker and prompt, [B, F, 240]."""
    mu = flow.encoder_proj(flow.encoder(flow.embed_tokens(tokens), streaming=streaming))
    speaker = flow.speaker(embedding)[:, None].expand(-1, mu.shape[1], -1).to(mu.dtype)
    cond = training.prompt_of(prompt, drawn).to(mu.dtype)
    return torch.cat([mu, speaker, cond], dim=-1) * drawn.keep[:, None, None]


def view_of(mel: Tensor, streaming: bool) -> WholeView:
    """Which frames of whole crops [B, F, 80] see which."""
    return WholeView(visibility(mel.shape[1], None, BLOCK_FRAMES if streaming else None, mel.device))


def crop_loss(
    flow: Flow,
    tokens: Tensor,
    mel: Tensor,
    prompt: Tensor,
    embedding: Tensor,
    drawn: training.Draw,
    streaming: bool,
) -> Tensor:
    """The flow's loss on whole crops whose condition is `prompt`, not `mel` itself."""
    given = conditions(flow, tokens, prompt, embedding, drawn, streaming)
    x, target = training.noisy_mel(mel, drawn)
    time_features = flow.estimator.time_features(drawn.time)
    velocity = flow.estimator(x, given, time_features, view_of(mel, streaming))
    return F.mse_loss(velocity.float(), target)


def make_step(
    flow: Flow, store: VoiceStore, optimizer: Optimizer, average: RunningAverage, args: argparse.Namespace,
    streaming: bool,
) -> GraphedStep:  # fmt: skip
    device_type = torch.device(args.device).type
    chance = flow_data.stretch_chances(store, args.crop_tokens)
    bin_hz = augment.mel_bin_hz(80, "slaney").to(args.device)

    def step() -> dict[str, Tensor]:
        tokens, mel, embedding = store.draw(args.rows, args.crop_tokens, chance)
        embedding = embedding + EMBEDDING_NOISE * torch.randn_like(embedding)
        mel, embedding = widen.other_voices(mel, embedding, args.other_voices, args.missing_embeddings)
        mel = widen.louder_or_softer(mel)
        drawn = draw(mel)
        prompt = disturbed(mel, bin_hz)
        with torch.autocast(device_type, torch.bfloat16, enabled=device_type == "cuda", cache_enabled=False):
            loss = crop_loss(flow, tokens, mel, prompt, embedding, drawn, streaming)
        norm = optimizer.step(loss)
        average.update()
        return {"streaming" if streaming else "whole": loss.detach(), "norm": norm}

    return GraphedStep(step, args.device)


@torch.no_grad()
def validate(
    flow: Flow, store: VoiceStore, device: str, crops: int = 48, solves: int = 8
) -> dict[str, float]:
    """The averaged flow: the loss on fixed crops with fixed randomness, and a solve after a prompt of the voice."""
    clips = [
        (row, take) for row, take in store.validation if take.tokens >= 32 and take.voice in store.stretch_of
    ]
    if not clips:
        return {}
    state = torch.get_rng_state(), torch.cuda.get_rng_state_all() if device != "cpu" else None
    torch.manual_seed(11)
    losses = []
    for row, take in clips[:crops]:
        tokens, mel = store.span(torch.tensor([take.first], device=device), take.tokens)
        repeated = [
            part.expand(4, *part.shape[1:]) for part in (tokens, mel, store.embeddings[row : row + 1, 0])
        ]
        drawn = draw(repeated[1])
        losses.append(
            crop_loss(flow, repeated[0], repeated[1], repeated[1], repeated[2], drawn, streaming=True)
        )
    errors, levels = [], []
    for row, take in clips[:: max(1, len(clips) // solves)][:solves]:
        tokens, mel = store.span(torch.tensor([take.first], device=device), take.tokens)
        start = store.starts[store.stretch_of[take.voice]][None]
        size = int(store.sizes[store.stretch_of[take.voice]])
        prompt_tokens, prompt_mel = store.span(start, min(TRIAL_PROMPT_TOKENS, size))
        got = flow.synthesize(tokens[0], prompt_tokens[0], prompt_mel[0], store.embeddings[row, 0]).T
        errors.append((got - mel[0]).abs().mean())
        levels.append((got - mel[0]).mean())
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state_all(state[1])
    return {
        "val_loss": float(torch.stack(losses).mean()), "mel_l1": float(torch.stack(errors).mean()),
        "mel_bias": float(torch.stack(levels).mean()),
    }  # fmt: skip


def save(average: RunningAverage, args: argparse.Namespace, steps: int) -> None:
    """Write the averaged flow, its sizes and how many steps it has had, as OUT/NAME.pt."""
    sizes = {name: getattr(average.model.config, name) for name in FlowConfig.__slots__}
    save_weights(args.out / f"{args.name}.pt", average.model.state_dict(), {"config": sizes, "steps": steps})


def train(args: argparse.Namespace) -> None:
    began_s = run_began_s()
    if args.device != "cpu":
        torch.cuda.set_device(args.device)
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    torch.backends.cuda.enable_cudnn_sdp(
        False
    )  # its kernels for masks with a gradient are not safe to capture
    run = RunLog(args.out, args.name)
    parts = [load_part(args.cache, name) for name in part_names(args.cache)]
    tokenizer = load_tokenizer(args.tokenizer, args.device)
    store = flow_data.build(
        parts, speaker_names(args.speakers), tokenizer, load_speaker_encoder(args.speaker_encoder, args.device),
        args.device, args.ratios, args.other_share,
    )  # fmt: skip
    config = FlowConfig(
        speech_tokens=tokenizer.size.codes, encoder_dim=args.encoder, encoder_heads=args.encoder // 48,
        encoder_feed_forward=args.encoder_ffn, encoder_blocks=3, upsampled_blocks=2, estimator_channels=args.channels,
        estimator_heads=args.heads, estimator_head_dim=64, estimator_mid_blocks=args.mid, estimator_transformers=2,
        estimator_feed_forward=args.ffn,
    )  # fmt: skip
    flow = Flow(config).to(args.device).train()
    if args.resume:
        flow.load_state_dict(load_weights(args.resume)[0])
    widen.add_dropout(flow, args.dropout)
    average = RunningAverage(flow)
    run.write(
        parameters=sum(p.numel() for p in flow.parameters()), tokens=len(store.tokens), voices=len(store.starts),
        validation=len(store.validation), start_s=time.monotonic() - began_s,
    )  # fmt: skip
    optimizer = Optimizer(flow, args.rate, betas=(0.9, 0.99), decay=0.01)
    steps_of = [make_step(flow, store, optimizer, average, args, streaming) for streaming in (True, False)]
    # A slow start must not leave a budget below nothing: that would never be over.
    budget_s = max(5.0, args.minutes * 60 - (time.monotonic() - began_s) - args.finish_s)
    schedule = Schedule(
        time.monotonic(), budget_s, args.rate, args.max_steps, warmup_s=min(15.0, budget_s / 10), final_ratio=0.05
    )
    meters, steps, report_s, saved_s = (Meter(), Meter()), 0, time.monotonic(), time.monotonic()

    def report(**more: object) -> None:
        figures = meters[0].take() | meters[1].take()
        # A copy: the average changes in place, unknown to what a flow keeps of its weights once it has run.
        held_back = validate(copy.deepcopy(average.model), store, args.device)
        run.write(step=steps, rate=schedule.rate(steps), **figures, **held_back, **more)

    while not schedule.over(steps):
        optimizer.set_rate(schedule.rate(steps))
        average.plan(steps)
        which = steps % 2
        meters[which].add(steps_of[which]())
        steps += 1
        if steps % 10 == 0 and args.device != "cpu":
            torch.cuda.synchronize()  # keeps the queue short, so that the wall clock means what it says
        if time.monotonic() - report_s > args.report_s:
            report()
            report_s = time.monotonic()
        if time.monotonic() - saved_s > CHECKPOINT_EVERY_S:
            save(average, args, steps)
            saved_s = time.monotonic()
    save(average, args, steps)
    report(done=True)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train the flow.")
    parser.add_argument("cache", type=Path)
    parser.add_argument("speakers", type=Path, help="speakers.json of the corpus")
    parser.add_argument("tokenizer", type=Path, help="weights of the trained speech tokenizer")
    parser.add_argument("speaker_encoder", type=Path, help="weights of the trained speaker encoder")
    parser.add_argument("out", type=Path)
    add_common(parser, name="flow", minutes=13.0, report_s=75.0, seed=3)
    parser.add_argument(
        "--finish-s", type=float, default=15.0, help="kept for the last file and the last report"
    )
    parser.add_argument("--rows", type=int, default=112)
    parser.add_argument("--crop-tokens", type=int, default=144)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--encoder", type=int, default=192)
    parser.add_argument("--encoder-ffn", type=int, default=512)
    parser.add_argument("--channels", type=int, default=160)
    parser.add_argument("--heads", type=int, default=3)
    parser.add_argument("--mid", type=int, default=4)
    parser.add_argument("--ffn", type=int, default=512)
    parser.add_argument("--ratios", type=float, nargs="+", default=[1.0, 0.8, 0.87, 0.94, 1.07, 1.15, 1.24])
    parser.add_argument(
        "--other-share", type=float, default=0.4, help="clips that are also played at each other ratio"
    )
    parser.add_argument(
        "--other-voices", type=float, default=0.4, help="share of the crops in voices that no clip has"
    )
    parser.add_argument(
        "--missing-embeddings", type=float, default=0.2, help="share of the other crops without an embedding"
    )
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--resume", type=Path)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    train(parse())
