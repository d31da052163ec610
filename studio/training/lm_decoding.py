"""Free-running speech of the LM in training: batched decoding with the served sampler's law, judged by phonemes.

A small network learns to read phonemes off speech tokens from the corpus' exact times; what it reads off generated
tokens is held against what it reads off the teacher's tokens of the same text. The studio itself decodes in vLLM.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from studio.models.speech_lm.qwen2 import SpeechLm, SpeechLmSizes, masked_attend
from studio.training import lm_data
from studio.training.corpus import PHONEME_CLASSES
from studio.training.lm_batches import DocumentMaker, MergedIds
from studio.training.lm_data import LmData
from studio.training.stepping import load_weights

READER_SPAN = 256
SILENT = frozenset({0, 16, 3, 4, 1, 2, 5, 6})
"""Classes that are no sound: pads, blanks, marks."""


class PhonemeReader(nn.Module):
    """Speech tokens int64 [B, N] -> scores of the two phoneme classes of each token [B, N, 2, classes]."""

    def __init__(self, codes: int, width: int = 256):
        super().__init__()
        self.embed = nn.Embedding(codes + 1, width, padding_idx=codes)
        self.convs = nn.ModuleList(nn.Conv1d(width, width, 5, padding=2) for _ in range(3))
        self.out = nn.Linear(width, 2 * PHONEME_CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens).transpose(1, 2)
        for conv in self.convs:
            x = x + F.gelu(conv(x))
        return self.out(x.transpose(1, 2)).unflatten(-1, (2, PHONEME_CLASSES))


def train_reader(data: LmData, device: str, seconds: float, rows: int = 64) -> tuple[PhonemeReader, float]:
    """Train a reader for a while on random stretches; gives it and its accuracy on tokens not trained on."""
    codes = len(data.codes)
    reader = PhonemeReader(codes).to(device)
    optimizer = torch.optim.AdamW(reader.parameters(), 2e-3)
    speech = torch.from_numpy(data.tokens.astype(np.int64)).to(device)
    labels = torch.from_numpy(data.labels.astype(np.int64)).to(device).view(-1, 2)
    split = max(len(speech) - max(4 * READER_SPAN, len(speech) // 50), READER_SPAN + 1)
    span = torch.arange(READER_SPAN, device=device)
    began_s = time.monotonic()
    while (spent := (time.monotonic() - began_s) / seconds) < 1:
        optimizer.param_groups[0]["lr"] = 2e-3 * (1.05 - spent)
        at = torch.randint(0, split - READER_SPAN, (rows, 1), device=device) + span
        loss = F.cross_entropy(reader(speech[at]).flatten(0, 2), labels[at].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        held = speech[split:][None]
        right = (reader(held).argmax(-1)[0] == labels[split:]).float().mean()
    return reader.eval(), float(right)


@torch.no_grad()
def read_phonemes(reader: PhonemeReader, tokens: NDArray[np.int64], device: str) -> list[int]:
    """The phonemes heard in some speech tokens: repeats joined, silence dropped."""
    if len(tokens) == 0:
        return []
    classes = (
        reader(torch.from_numpy(np.asarray(tokens, dtype=np.int64)).to(device)[None])
        .argmax(-1)
        .flatten()
        .tolist()
    )
    joined = [c for i, c in enumerate(classes) if i == 0 or c != classes[i - 1]]
    return [c for c in joined if c not in SILENT]


def edit_distance(a: list[int], b: list[int]) -> int:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            diagonal, row[j] = row[j], min(diagonal + (x != y), row[j] + 1, row[j - 1] + 1)
    return row[-1]


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """A text to speak: prompt ids of the merged vocabulary, and the teacher's tokens of it."""

    prompt: NDArray[np.int64]
    teacher: NDArray[np.int64]
    text_ids: int
    language: int
    prompted: bool

    @property
    def most_tokens(self) -> int:
        """Where a row that does not end is cut: far enough to count as gone wrong."""
        return 2 * len(self.teacher) + 20


def make_trials(data: LmData, count: int, seed: int = 5) -> list[Trial]:
    """Validation clips as zero-shot tasks: three in four with another validation clip of the voice as prompt."""
    maker = DocumentMaker(data, seed, validation=True)
    trials = []
    for number, clip in enumerate(maker.rng.permutation(maker.clips)[:count]):
        voice = maker.by_speaker[int(data.speaker[clip])]
        others = [int(c) for c in voice if data.text_key[c] != data.text_key[clip]]
        before = [int(maker.rng.choice(others))] if others and number % 4 else []
        ids = maker.document([*before, int(clip)], [0] * (len(before) + 1)).ids
        teacher = data.speech(int(clip)).astype(np.int64)
        prompt = ids[: len(ids) - len(teacher)]
        trials.append(
            Trial(prompt, teacher, len(data.text(int(clip), 0)), int(data.language[clip]), bool(before))
        )
    return trials


@dataclass(frozen=True, slots=True)
class Law:
    """How tokens are drawn; `window` 0 is plain nucleus sampling."""

    top_p: float = 0.8
    top_k: int = 25
    window: int = 10
    temperature: float = 1.0


@torch.no_grad()
def generate(lm: SpeechLm, trials: list[Trial], law: Law | None = None) -> list[list[int]]:
    """Decode all trials together; a row that does not end in time is cut at its most."""
    law = law or Law()
    window = law.window
    device = lm.llm_decoder.weight.device
    ids = MergedIds(lm.sizes.speech_codes)
    longest = max(len(t.prompt) for t in trials)
    most = max(t.most_tokens for t in trials)
    rows = len(trials)
    prompt = torch.zeros(rows, longest, dtype=torch.long, device=device)
    seen = torch.zeros(rows, longest + most, dtype=torch.bool, device=device)
    for row, trial in enumerate(trials):  # padded on the left, so that all rows speak at once
        prompt[row, longest - len(trial.prompt) :] = torch.from_numpy(trial.prompt)
        seen[row, longest - len(trial.prompt) :] = True
    least = torch.tensor([t.text_ids // 2 for t in trials], device=device)
    limit = torch.tensor([t.most_tokens for t in trials], device=device)
    start = longest - torch.tensor([len(t.prompt) for t in trials], device=device)
    caches = lm.new_caches(rows, longest + most)
    place = torch.arange(longest, device=device)
    mask = (place[:, None] >= place) & seen[:, None, None, :longest]
    mask = mask | torch.eye(longest, dtype=torch.bool, device=device)  # a padded query must see something
    hidden = lm(prompt, (place - start[:, None]).clamp(min=0), masked_attend(mask), caches)[:, -1]
    spoken = torch.full((rows, most + window), -1, dtype=torch.long, device=device)
    done = torch.zeros(rows, dtype=torch.bool, device=device)
    for step in range(most):
        scores = lm.scores(hidden).float() / law.temperature
        scores[:, ids.end + 1 :] = -torch.inf
        scores[:, ids.end] = torch.where(least > step, -torch.inf, scores[:, ids.end])
        drawn = draw_repetition_aware(scores, spoken[:, step : step + window], law)
        done = done | (drawn == ids.end) | (limit <= step)
        spoken[:, step + window] = torch.where(done, -1, drawn)
        if step % 16 == 0 and bool(done.all()):
            break
        end = longest + step + 1
        fed = torch.where(done, 0, drawn)[:, None]
        now_seen = seen[:, None, None, :end]
        hidden = lm(fed, (longest + step - start)[:, None], masked_attend(now_seen), caches)[:, -1]
    return [[t for t in row if t >= 0] for row in spoken.tolist()]


def draw_repetition_aware(scores: Tensor, recent: Tensor, law: Law) -> Tensor:
    """One token a row: from the nucleus; if it is among the recent ones, again from all others: [B]."""
    probability = scores.softmax(-1)
    best, index = probability.topk(min(law.top_k, scores.shape[-1]), dim=-1)
    before = best.cumsum(-1) - best
    nucleus = best * (before < law.top_p)
    drawn = index.gather(1, torch.multinomial(nucleus, 1))
    again = torch.multinomial(probability.scatter(1, drawn, 0.0) + 1e-20, 1)
    repeated = (recent == drawn).any(1, keepdim=True)
    return torch.where(repeated, again, drawn)[:, 0]


def judge(
    lm: SpeechLm,
    reader: PhonemeReader,
    trials: list[Trial],
    device: str,
    law: Law | None = None,
    prefix: str = "",
) -> dict[str, float]:
    """Free-running figures: phoneme error against the teacher's reading, length ratio, share that ended."""
    spoken = generate(lm, trials, law)
    errors, lengths, bad, stopped = [], [], 0, 0
    by_language: dict[int, list[float]] = {0: [], 1: []}
    for trial, tokens in zip(trials, spoken, strict=True):
        wanted = read_phonemes(reader, trial.teacher, device)
        heard = read_phonemes(reader, np.array(tokens, dtype=np.int64), device)
        error = edit_distance(wanted, heard) / max(1, len(wanted))
        ratio = len(tokens) / len(trial.teacher)
        errors.append(error)
        by_language[trial.language].append(error)
        lengths.append(ratio)
        stopped += len(tokens) < trial.most_tokens
        bad += error > 0.5 or not 1 / 1.6 < ratio < 1.6
    count = len(trials)
    mean = lambda values: float(np.mean(values)) if values else float("nan")  # noqa: E731
    figures = {
        "per": mean(errors), "per_median": float(np.median(errors)), "per_en": mean(by_language[0]),
        "per_zh": mean(by_language[1]), "length_ratio": mean(lengths), "bad": bad / count,
        "stopped": stopped / count,
    }  # fmt: skip
    return {prefix + name: round(value, 4) for name, value in figures.items()}


def judge_briefly(lm: SpeechLm, reader: PhonemeReader, trials: list[Trial], device: str) -> dict[str, float]:
    """The served law, and two figures of plain nucleus sampling beside it: is the repetition rule in the way?"""
    plain = judge(lm, reader, trials, device, Law(window=0), "plain_")
    return judge(lm, reader, trials, device) | {n: plain[n] for n in ("plain_per", "plain_bad")}


def reading_floor(data: LmData, reader: PhonemeReader, device: str, most: int = 200) -> float:
    """The figure that a perfect LM would have: phoneme error between two of the teacher's readings of one text."""
    clips = np.nonzero(data.played == 1.0)[0]
    order = clips[np.argsort(data.text_key[clips], kind="stable")]
    same = np.nonzero(data.text_key[order][1:] == data.text_key[order][:-1])[0]
    errors = []
    for i in same[:: max(1, len(same) // most)][:most]:
        first, second = (read_phonemes(reader, data.speech(int(order[j])), device) for j in (i, i + 1))
        errors.append(edit_distance(first, second) / max(1, len(first)))
    return float(np.mean(errors)) if errors else float("nan")


LAWS = (
    Law(), Law(window=0), Law(window=3), Law(top_p=0.6, window=0), Law(top_p=0.9, window=0),
    Law(window=0, temperature=0.8), Law(window=10, temperature=0.8),
)  # fmt: skip


def main() -> None:
    """Compare sampling laws on a trained LM: one JSON line each."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("weights", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--trials", type=int, default=48)
    parser.add_argument("--reader-s", type=float, default=120.0)
    args = parser.parse_args()
    torch.manual_seed(1)
    data = lm_data.load(args.data)
    weights, meta = load_weights(args.weights)
    lm = SpeechLm(SpeechLmSizes(**meta["sizes"])).to(args.device).eval()
    lm.load_official(weights)
    reader, accuracy = train_reader(data, args.device, args.reader_s)
    floor = reading_floor(data, reader, args.device)
    print(json.dumps({"reader_accuracy": accuracy, "per_floor": floor}), flush=True)
    trials = make_trials(data, args.trials)
    for law in LAWS:
        figures = judge(lm, reader, trials, args.device, law)
        print(json.dumps({"law": str(law), **figures}), flush=True)


if __name__ == "__main__":
    main()
