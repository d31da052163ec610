"""Train the speech LM of the embedded voice on packed documents; everything that must be fast is one CUDA graph.

    python -m studio.training.lm DATA.npz OUT --minutes 13 --device cuda:0

Losses: next speech token (1), and, for training only, the phonemes of that token and the progress through the text
(falling from 0.4 to 0.05), which teach the alignment quickly. Weights are averaged (EMA) and saved every two minutes.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from studio.models.speech_lm.qwen2 import SpeechLm, SpeechLmSizes
from studio.training import lm_data
from studio.training.averaging import RunningAverage
from studio.training.beginning import add_common
from studio.training.corpus import PHONEME_CLASSES
from studio.training.lm_batches import IGNORE, BatchStream, DocumentMaker, pack_rows
from studio.training.lm_data import LmData
from studio.training.lm_decoding import judge_briefly, make_trials, reading_floor, train_reader
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
from studio.training.text import TEXT_VOCABULARY

log = logging.getLogger(__name__)

GUIDE_FIRST, GUIDE_LAST = 0.4, 0.05
CHECKPOINT_EVERY_S = 120.0
FIELDS = ("ids", "position", "document", "target", "progress", "labels")


class GuidedLm(nn.Module):
    """The LM and the heads that only training has."""

    def __init__(self, sizes: SpeechLmSizes, dropout: float):
        super().__init__()
        self.lm, self.dropout = SpeechLm(sizes), dropout
        self.phoneme = nn.Linear(sizes.hidden, 2 * PHONEME_CLASSES)
        self.progress = nn.Linear(sizes.hidden, lm_data.PROGRESS_STEPS)
        self.apply(_start)
        for layer in self.lm.stack.layers:  # keeps the residual stream's size independent of the depth
            for last in (layer.self_attn.o_proj, layer.mlp.down_proj):
                last.weight.data.mul_((2 * sizes.layers) ** -0.5)

    def forward(self, batch: dict[str, Tensor], dropout: float | None = None) -> dict[str, Tensor]:
        """Mean losses over the targets of a packed batch (`lm_batches.pack_rows`)."""
        seen = document_mask(batch["document"])
        rate = self.dropout if dropout is None else dropout
        hidden = self.lm(batch["ids"], batch["position"], expanded_attend(seen), dropout=rate)
        hidden = hidden.flatten(0, 1)
        target = batch["target"].flatten().long()
        scores = self.lm.scores(hidden).float()
        right = (scores.argmax(-1) == target) & (target != IGNORE)
        return {
            "speech": F.cross_entropy(scores, target, ignore_index=IGNORE),
            "phoneme": F.cross_entropy(
                self.phoneme(hidden).float().view(-1, PHONEME_CLASSES), batch["labels"].flatten().long(),
                ignore_index=IGNORE,
            ),
            "progress": F.cross_entropy(
                self.progress(hidden).float(), batch["progress"].flatten().long(), ignore_index=IGNORE
            ),
            "accuracy": right.sum() / (target != IGNORE).sum().clamp(min=1),
        }  # fmt: skip


def _start(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def document_mask(document: Tensor) -> Tensor:
    """int [B, T], -1 for padding -> bool [B, 1, T, T]: earlier positions of the same document."""
    causal = torch.ones(document.shape[1], document.shape[1], dtype=torch.bool, device=document.device).tril()
    return ((document[:, :, None] == document[:, None, :]) & causal)[:, None]


def expanded_attend(seen: Tensor) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Attention with every head's own keys written out: the fused kernels take a mask, but not with shared heads."""
    bias = torch.zeros(seen.shape, dtype=torch.float32, device=seen.device).masked_fill_(~seen, -1e4)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        share = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(share, 1), v.repeat_interleave(share, 1)
        mask = bias.to(q.dtype).expand(-1, q.shape[1], -1, -1)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    return attend


class Feed:
    """Fixed device tensors that a captured step reads, filled from worker batches through pinned memory."""

    def __init__(self, rows: int, width: int, device: str):
        shapes = {name: (rows, width, 2) if name == "labels" else (rows, width) for name in FIELDS}
        pin = device.startswith("cuda")
        self.batch = {n: torch.zeros(s, dtype=torch.int32, device=device) for n, s in shapes.items()}
        self.staging = [
            {n: torch.zeros(s, dtype=torch.int32, pin_memory=pin) for n, s in shapes.items()} for _ in "ab"
        ]
        self.turn = 0

    def fill(self, arrays: dict[str, np.ndarray]) -> None:
        self.turn ^= 1
        for name, staged in self.staging[self.turn].items():
            staged.copy_(torch.from_numpy(arrays[name]))
            self.batch[name].copy_(staged, non_blocking=True)


def make_step(
    model: GuidedLm, feed: Feed, optimizer: Optimizer, guide: Tensor, average: RunningAverage, device: str
) -> GraphedStep:
    """One training step over the feed's batch, the running average included."""
    device_type = torch.device(device).type

    def step() -> dict[str, Tensor]:
        with torch.autocast(device_type, torch.bfloat16, enabled=device_type == "cuda", cache_enabled=False):
            terms = model(feed.batch)
        total = terms["speech"] + guide * (terms["phoneme"] + 0.5 * terms["progress"])
        norm = optimizer.step(total)
        average.update()
        return {**{name: value.detach() for name, value in terms.items()}, "norm": norm}

    return GraphedStep(step, device)


def validation_batch(data: LmData, rows: int, width: int, seed: int = 3) -> dict[str, np.ndarray]:
    """Fixed documents of validation clips, as the studio will write their text: singles and pairs."""
    maker = DocumentMaker(data, seed, validation=True)
    documents = []
    for number, clip in enumerate(maker.rng.permutation(maker.clips)):
        voice = maker.by_speaker[int(data.speaker[clip])]
        before = [int(maker.rng.choice(voice))] if number % 2 else []
        documents.append(maker.document([*before, int(clip)], [0] * (1 + len(before))))
    return pack_rows(documents, rows, width)[0]


@torch.no_grad()
def validate(model: GuidedLm, arrays: dict[str, np.ndarray], device: str) -> dict[str, float]:
    """The averaged model's losses on the fixed validation documents."""
    batch = {name: torch.from_numpy(arrays[name]).to(device) for name in FIELDS}
    with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=device != "cpu"):
        terms = model(batch, dropout=0.0)
    return {f"val_{name}": float(value) for name, value in terms.items()}


def unigram_entropy(data: LmData) -> float:
    """Nats a token of the best guess that knows nothing: what the speech loss must fall well below."""
    share = np.bincount(data.tokens, minlength=len(data.codes)) / len(data.tokens)
    return float(-(share * np.log(share + 1e-12)).sum())


def train(args: argparse.Namespace) -> None:
    began_s = run_began_s()
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    torch.backends.cuda.enable_cudnn_sdp(
        False
    )  # the memory-efficient kernel takes our mask and is safe to capture
    data = lm_data.load(args.data)
    stream = BatchStream(data, args.rows, args.width, args.workers, args.seed)  # forks before CUDA starts
    if args.device != "cpu":
        torch.cuda.set_device(args.device)
    run = RunLog(args.out, args.name)
    sizes = SpeechLmSizes(
        args.hidden, args.layers, args.hidden // 64, args.kv_heads, args.ffn, TEXT_VOCABULARY, len(data.codes)
    )
    model = GuidedLm(sizes, args.dropout).to(args.device)
    if args.resume:
        model.lm.load_official(load_weights(args.resume)[0])
    average = RunningAverage(model)
    averaged: GuidedLm = average.model
    run.write(
        clips=len(data), tokens=len(data.tokens), codes=len(data.codes), unigram=unigram_entropy(data),
        parameters=sum(p.numel() for p in model.lm.parameters()),
    )  # fmt: skip
    reader, accuracy = train_reader(data, args.device, args.reader_s)
    run.write(reader_accuracy=accuracy, per_floor=reading_floor(data, reader, args.device))
    trials = make_trials(data, args.trials)
    held = validation_batch(data, args.validation_rows, args.width)
    optimizer = Optimizer(model, args.rate, betas=(0.9, 0.95), decay=args.decay)
    guide = torch.tensor(GUIDE_FIRST, device=args.device)
    feed = Feed(args.rows, args.width, args.device)
    step = make_step(model, feed, optimizer, guide, average, args.device)
    # A slow start must not leave a budget below nothing: that would never be over.
    budget_s = max(5.0, args.minutes * 60 - (time.monotonic() - began_s) - args.finish_s)
    schedule = Schedule(
        time.monotonic(), budget_s, args.rate, args.max_steps, warmup_s=min(20.0, budget_s / 10), final_ratio=0.03
    )
    meta = {"codes": data.codes.tolist(), "sizes": {k: getattr(sizes, k) for k in sizes.__slots__}}

    def report(steps: int, **more: object) -> None:
        held_figures = validate(averaged, held, args.device)
        run.write(
            step=steps,
            rate=schedule.rate(steps),
            **meter.take(),
            **held_figures,
            **judge_briefly(averaged.lm, reader, trials, args.device),
            **more,
        )

    def save(name: str, steps: int) -> None:
        save_weights(args.out / f"{name}.pt", averaged.lm.official_tensors(), meta | {"steps": steps})

    meter, steps, report_s, saved_s = Meter(), 0, time.monotonic(), time.monotonic()
    while not schedule.over(steps):
        progress = schedule.progress(steps)
        stream.progress.value = progress
        optimizer.set_rate(schedule.rate(steps))
        guide.fill_(max(GUIDE_LAST, GUIDE_FIRST * (1 - 1.5 * progress)))
        average.plan(steps)
        feed.fill(stream.get())
        meter.add(step())
        steps += 1
        if steps % 4 == 0 and args.device != "cpu":
            torch.cuda.synchronize()  # staging buffers may be written again, and the wall clock means what it says
        if time.monotonic() - report_s > args.report_s:
            report(steps)
            report_s = time.monotonic()
        if time.monotonic() - saved_s > CHECKPOINT_EVERY_S:
            save(args.name, steps)
            saved_s = time.monotonic()
    stream.close()
    save(args.name, steps)
    report(steps, done=True)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train the speech LM.")
    parser.add_argument("data", type=Path, help="what lm_data packed")
    parser.add_argument("out", type=Path)
    add_common(parser, name="speech_lm", minutes=13.0, report_s=75.0, seed=1)
    parser.add_argument(
        "--finish-s", type=float, default=15.0, help="kept for the last report and the last file"
    )
    parser.add_argument("--hidden", type=int, default=384)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--kv-heads", type=int, default=2)
    parser.add_argument("--ffn", type=int, default=1024)
    parser.add_argument("--rows", type=int, default=48)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--validation-rows", type=int, default=24)
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--rate", type=float, default=1.5e-3)
    parser.add_argument("--decay", type=float, default=0.05)
    parser.add_argument("--dropout", type=float, default=0.12)
    parser.add_argument("--reader-s", type=float, default=15.0)
    parser.add_argument("--trials", type=int, default=48)
    parser.add_argument("--resume", type=Path)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    train(parse())
