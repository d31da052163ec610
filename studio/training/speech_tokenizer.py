"""Train the speech tokenizer on exact phoneme times, relative pitch, energy and mel; speaker made hard to read.

    python -m studio.training.speech_tokenizer CACHE SPEAKERS OUT --minutes 6 --device cuda:0

There is no CTC loss: the corpus gives the phoneme of every 20 ms, which says all that CTC would have to guess.
"""

from __future__ import annotations

import argparse
import logging
import math
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from studio.models.prompt.speech_tokenizer import (
    LocalBlock,
    SpeechTokenizer,
    SpeechTokenizerSize,
    rotary_table,
    window_mask,
)
from studio.training import augment
from studio.training.beginning import add_common, begin
from studio.training.corpus import PHONEME_CLASSES, load_part, part_names, speaker_names, wait_for_part
from studio.training.frame_store import FIELDS, FrameStore
from studio.training.signal import whisper_scale
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

LABELS_PER_TOKEN = 2
WEIGHTS = {"phoneme": 1.0, "local": 0.2, "prosody": 0.3, "mel": 0.3, "speaker": 0.05, "balance": 0.5}
MEL_MEAN, MEL_SPREAD = -6.0, 2.5
"""About the corpus' own mel statistics; only to bring the loss near 1."""
RATIOS = (1.0, 0.9, 1.1)
"""Playing speeds: each makes other voices of the same corpus, so that tokens of unheard people stay phonetic."""
LEVEL_RMS = 0.65
"""Of the unrounded code values when all three levels are about equally used."""
CHECKPOINT_EVERY_S = 120.0


class ReverseGradient(torch.autograd.Function):
    """Identity forward, minus the gradient backward: what follows learns to read, what precedes learns to hide."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        return -gradient


class TokenReader(nn.Module):
    """What a token must tell, read back from rounded codes [B, N, code_dims]; dropped after training."""

    def __init__(
        self, size: SpeechTokenizerSize, speakers: int, dropout: float = 0.1, context_tokens: int = 8
    ) -> None:
        super().__init__()
        self.size, self.context_tokens = size, context_tokens
        self.enter = nn.Linear(size.code_dims, size.dim)
        self.blocks = nn.ModuleList(LocalBlock(size.dim, size.head_dim, 5, dropout) for _ in range(2))
        self.norm = nn.LayerNorm(size.dim)
        self.phoneme = nn.Linear(size.dim, LABELS_PER_TOKEN * PHONEME_CLASSES)
        self.prosody = nn.Linear(size.dim, LABELS_PER_TOKEN * 3)  # relative log F0, voiced, relative energy
        self.local = nn.Sequential(
            nn.Linear(size.code_dims, 256), nn.GELU(), nn.Linear(256, LABELS_PER_TOKEN * PHONEME_CLASSES)
        )
        self.voice = nn.Embedding(speakers, size.dim)
        self.mel_block = LocalBlock(size.dim, size.head_dim, 5, dropout)
        self.mel = nn.Linear(size.dim, LABELS_PER_TOKEN * 80)
        self.spy_in = nn.Sequential(nn.Linear(size.code_dims, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU())
        self.spy_out = nn.Linear(256, speakers)

    def forward(self, code: Tensor, speaker: Tensor, inside: Tensor) -> dict[str, Tensor]:
        """speaker: int64 [B]; inside: bool [B, N]. Heads are laid out at 50 Hz: [B, 2 N, ...]."""
        tokens = code.shape[1]
        look = window_mask(tokens, self.context_tokens, code) & inside[:, None, :]
        look = (look | torch.eye(tokens, dtype=torch.bool, device=code.device))[:, None]
        table = rotary_table(tokens, self.size.head_dim, code)
        x = self.enter(code)
        for block in self.blocks:
            x = block(x, look, table, inside)
        voiced = self.mel_block(x + self.voice(speaker)[:, None], look, table, inside)
        x = self.norm(x)
        spied = self.spy_in(ReverseGradient.apply(code)) * inside[..., None]
        count = inside.sum(1, keepdim=True).clamp(min=1)
        mean = spied.sum(1) / count
        spread = ((spied.square().sum(1) / count - mean.square()).clamp(min=0) + 1e-4).sqrt()
        at_50_hz = lambda y: y.unflatten(-1, (LABELS_PER_TOKEN, -1)).flatten(1, 2)  # noqa: E731
        return {
            "phoneme": at_50_hz(self.phoneme(x)),
            "prosody": at_50_hz(self.prosody(x)),
            "local": at_50_hz(self.local(code)),
            "mel": at_50_hz(self.mel(voiced)),
            "speaker": self.spy_out(torch.cat([mean, spread], -1)),
        }


class TokenizerTraining(nn.Module):
    """Tokenizer and reader together, and their losses."""

    def __init__(self, size: SpeechTokenizerSize, speakers: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.tokenizer = SpeechTokenizer(size, dropout)
        self.reader = TokenReader(size, speakers, dropout)
        self.register_buffer("bin_hz", augment.mel_bin_hz(128, "slaney"), persistent=False)

    def features(self, log10_mel: Tensor, inside: Tensor, disturbed: bool) -> Tensor:
        """Raw log10 mel [B, 4 N, 128] -> scaled features [B, 128, 4 N], zero outside as a convolution's padding is."""
        x = log10_mel.float()
        wide = inside.repeat_interleave(4, 1)[..., None]
        if disturbed:
            x = augment.recording(x, self.bin_hz, 1.0)
        largest = x.masked_fill(~wide, -10.0).amax((1, 2), keepdim=True)
        x = whisper_scale(x, largest)
        if disturbed:
            x = augment.hide(x, 0.0, time_spans=2, span_frames=12, band_bins=16)
        return (x * wide).transpose(1, 2)

    def forward(self, features: Tensor, speaker: Tensor, inside: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Give the rounded code values [B, N, code_dims] and the heads, with the unrounded ones under "soft"."""
        soft = self.tokenizer.encode(features, inside)
        code = soft + (soft.round() - soft).detach()
        return code, self.reader(code, speaker, inside) | {"soft": soft}


def prosody_targets(f0: Tensor, mel: Tensor, inside: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """f0, mel: 50 Hz frames [B, 2 N], [B, 2 N, 80] -> log F0 about the crop's mean, voiced, energy about its mean."""
    wide = inside.repeat_interleave(2, 1)
    voiced = (f0 > 0) & wide
    log_f0 = f0.clamp(min=1.0).log()
    mean = (log_f0 * voiced).sum(1, keepdim=True) / voiced.sum(1, keepdim=True).clamp(min=1)
    energy = mel.mean(2)
    energy = energy - (energy * wide).sum(1, keepdim=True) / wide.sum(1, keepdim=True).clamp(min=1)
    return (log_f0 - mean) * voiced * 4.0, voiced, energy / 2.0


def losses(heads: dict[str, Tensor], batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Each term as a mean over what lies inside the clips."""
    wide = batch["inside"].repeat_interleave(2, 1)
    count = wide.sum().clamp(min=1)
    labels = batch["phoneme"].masked_fill(~wide, -100)
    relative_f0, voiced, energy = prosody_targets(batch["f0"], batch["mel"], batch["inside"])
    prosody = heads["prosody"].float()
    f0_error = (prosody[..., 0] - relative_f0).abs() * voiced
    voicing = F.binary_cross_entropy_with_logits(prosody[..., 1], voiced.float(), reduction="none") * wide
    energy_error = (prosody[..., 2] - energy).abs() * wide
    mel_error = (heads["mel"].float() - (batch["mel"] - MEL_MEAN) / MEL_SPREAD).abs().mean(2) * wide
    return {
        "phoneme": F.cross_entropy(heads["phoneme"].float().flatten(0, 1), labels.flatten()),
        "local": F.cross_entropy(heads["local"].float().flatten(0, 1), labels.flatten()),
        "prosody": f0_error.sum() / voiced.sum().clamp(min=1)
        + (0.5 * voicing.sum() + energy_error.sum()) / count,
        "mel": mel_error.sum() / count,
        "speaker": F.cross_entropy(heads["speaker"].float(), batch["speaker"]),
        "balance": level_balance(heads["soft"], batch["inside"]),
    }


def level_balance(soft: Tensor, inside: Tensor) -> Tensor:
    """How far each quantiser dimension is from using its three levels alike; keeps codes from dying out."""
    count = inside.sum().clamp(min=1)
    mean = (soft * inside[..., None]).sum((0, 1)) / count
    power = (soft.square() * inside[..., None]).sum((0, 1)) / count
    return (mean.square() + ((power + 1e-6).sqrt() - LEVEL_RMS).square()).mean()


def read_batch(store: FrameStore, clip: Tensor, first: Tensor, inside: Tensor) -> dict[str, Tensor]:
    crop = inside.shape[1]
    return {
        "whisper": store.take("whisper", first, crop),
        "mel": store.take("mel", first, crop).float(),
        "f0": store.take("f0", first, crop)[..., 0],
        "phoneme": store.take("phoneme", first, crop)[..., 0].long(),
        "speaker": store.speaker[clip],
        "inside": inside,
    }


def make_step(
    model: TokenizerTraining, store: FrameStore, optimizer: Optimizer, rows: int, crop_tokens: int
) -> GraphedStep:
    device_type = torch.device(store.device).type

    def step() -> dict[str, Tensor]:
        batch = read_batch(store, *store.draw(rows, crop_tokens))
        with torch.autocast(device_type, torch.bfloat16, enabled=device_type == "cuda", cache_enabled=False):
            features = model.features(batch["whisper"], batch["inside"], disturbed=True)
            _, heads = model(features, batch["speaker"], batch["inside"])
        terms = losses(heads, batch)
        total = sum(WEIGHTS[name] * value for name, value in terms.items())
        norm = optimizer.step(total)
        return {**{name: value.detach() for name, value in terms.items()}, "norm": norm}

    return GraphedStep(step, store.device)


@torch.no_grad()
@varying_shapes()
def validate(
    model: TokenizerTraining, store: FrameStore, rows: int = 256, crop_tokens: int = 128
) -> dict[str, float]:
    """Figures on whole validation clips (cut at the crop): accuracy, code use, steadiness under disturbance."""
    model.eval()
    clips = torch.tensor(store.validation[:rows], device=store.device)
    inside = torch.arange(crop_tokens, device=store.device) < store.tokens[clips][:, None]
    batch = read_batch(store, clips, store.first_token[clips], inside)
    clean, heads = model(model.features(batch["whisper"], inside, disturbed=False), batch["speaker"], inside)
    noisy, noisy_heads = model(
        model.features(batch["whisper"], inside, disturbed=True), batch["speaker"], inside
    )
    wide = inside.repeat_interleave(2, 1)
    share = torch.bincount(model.tokenizer.ids(clean)[inside], minlength=model.tokenizer.size.codes).float()
    share = share / share.sum()
    ids, noisy_ids = model.tokenizer.ids(clean), model.tokenizer.ids(noisy)
    relative_f0, voiced, _ = prosody_targets(batch["f0"], batch["mel"], inside)
    correct = lambda h, name: float((h[name].argmax(-1) == batch["phoneme"])[wide].float().mean())  # noqa: E731
    terms = losses(heads, batch)
    labels = batch["phoneme"]
    interior = wide.clone()  # frames in the middle of a phoneme: no quarrel about where it begins
    interior[:, 1:] &= labels[:, 1:] == labels[:, :-1]
    interior[:, :-1] &= labels[:, 1:] == labels[:, :-1]
    pairs = inside[:, 1:] & inside[:, :-1]
    figures = {
        "phoneme_accuracy": correct(heads, "phoneme"),
        "local_accuracy": correct(heads, "local"),
        "interior_accuracy": float((heads["phoneme"].argmax(-1) == labels)[interior].float().mean()),
        "noisy_accuracy": correct(noisy_heads, "phoneme"),
        "codes_used": int((share > 0).sum()),
        "code_perplexity": float(torch.exp(-(share * (share + 1e-9).log()).sum())),
        "same_under_noise": float((ids == noisy_ids)[inside].float().mean()),
        "repeats": float((ids[:, 1:] == ids[:, :-1])[pairs].float().mean()),
        "f0_error_octaves": float(
            ((heads["prosody"][..., 0] - relative_f0).abs() / 4)[voiced].mean() / math.log(2)
        ),
        "speaker_accuracy": float((heads["speaker"].argmax(-1) == batch["speaker"]).float().mean()),
        **{f"val_{name}": float(value) for name, value in terms.items()},
    }
    model.train()
    return figures


def grow(store: FrameStore, cache: Path, voices: int) -> list[str]:
    """Add the parts that have been decoded since, at every playing speed; gives their names."""
    fresh = [name for name in part_names(cache) if name not in store.parts]
    for name in fresh:
        part = load_part(cache, name)
        for number, ratio in enumerate(RATIOS):
            if store.fits(part, ratio):
                store.add(part, ratio=ratio, voice_shift=number * voices)
    return fresh


def train(args: argparse.Namespace) -> None:
    began_s = begin(args)
    torch.backends.cuda.enable_cudnn_sdp(False)  # its kernels for masks are not safe to capture
    speakers = speaker_names(args.speakers)
    fields = {name: FIELDS[name] for name in ("whisper", "mel", "f0", "phoneme")}
    store = FrameStore(fields, speakers, args.device, args.capacity_tokens, args.capacity_clips)
    run = RunLog(args.out, args.name)
    wait_for_part(args.cache)
    run.write(parts=grow(store, args.cache, len(speakers)), tokens=store.used_tokens)
    size = SpeechTokenizerSize(dim=args.dim, blocks=args.blocks, code_dims=args.code_dims)
    model = TokenizerTraining(size, len(speakers) * len(RATIOS)).to(args.device)
    if args.resume:
        model.tokenizer.load_state_dict(load_weights(args.resume)[0])
    schedule = Schedule(began_s, args.minutes * 60, args.rate, args.max_steps)
    optimizer = Optimizer(model, args.rate)
    step = make_step(model, store, optimizer, args.rows, args.crop_tokens)
    meter, steps, report_s, saved_s = Meter(), 0, time.monotonic(), time.monotonic()
    meta = {"dim": size.dim, "blocks": size.blocks, "code_dims": size.code_dims, "head_dim": size.head_dim}
    while not schedule.over(steps):
        optimizer.set_rate(schedule.rate(steps))
        meter.add(step())
        steps += 1
        if steps % 20 == 0 and args.device != "cpu":
            torch.cuda.synchronize()  # keeps the queue short, so that the wall clock means what it says
        now_s = time.monotonic()
        if now_s - report_s > args.report_s:
            run.write(step=steps, rate=schedule.rate(steps), **meter.take(), **validate(model, store))
            fresh = grow(store, args.cache, len(speakers))
            if fresh:
                run.write(parts=fresh, tokens=store.used_tokens)
            report_s = time.monotonic()
        if now_s - saved_s > CHECKPOINT_EVERY_S:
            save_weights(args.out / f"{args.name}.pt", model.tokenizer.state_dict(), meta)
            saved_s = time.monotonic()
    figures = validate(model, store)
    run.write(step=steps, done=True, **meter.take(), **figures)
    save_weights(
        args.out / f"{args.name}.pt",
        model.tokenizer.state_dict(),
        meta | {"figures": figures, "steps": steps},
    )


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train the speech tokenizer.")
    parser.add_argument("cache", type=Path)
    parser.add_argument("speakers", type=Path, help="speakers.json of the corpus")
    parser.add_argument("out", type=Path)
    add_common(parser, name="speech_tokenizer", minutes=6.0, report_s=20.0, seed=1)
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--crop-tokens", type=int, default=80)
    parser.add_argument("--rate", type=float, default=8e-4)
    parser.add_argument("--dim", type=int, default=192)
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--code-dims", type=int, default=6)
    parser.add_argument("--capacity-tokens", type=int, default=5_200_000)
    parser.add_argument("--capacity-clips", type=int, default=78_000)
    parser.add_argument("--resume", type=Path)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    train(parse())
