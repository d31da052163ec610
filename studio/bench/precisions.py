"""`python -m studio.bench.precisions`: what fewer bits of the speech LM change, and what they gain.

The same prompts and seeds are spoken by the LM's worker under each variant, one worker after the other. The first is
the reference: the laws of the others are compared with its own behind the same tokens. A row a variant.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from studio.bench.conditions import conditions
from studio.bench.figures import table
from studio.bench.lm_step import flags_of
from studio.bench.rows import Out, Row
from studio.bench.seeds import Tokens, add_model, agreement, prompts_of, spoken
from studio.bench.service import ROOT, show_workers
from studio.bench.texts import BY_SECONDS
from studio.engine.lm_client import SpeechLMClient
from studio.engine.worker import WorkerProcess
from studio.errors import StudioError
from studio.protocols import LmPrompt
from studio.settings import load
from studio.setup.registration import ensure_registered
from studio.speech import Float32

REFERENCE = "dtype=auto"
VARIANTS = (REFERENCE, "quantization=fp8", "kv_cache_dtype=fp8")
PLACES = (5, 20, 60)
"""Spoken tokens behind which laws are compared, of each speech that is so long."""


@dataclass(frozen=True, slots=True)
class Said:
    """What the reference spoke, and its laws: log-probabilities float32 [S + 3], by prompt and place."""

    tokens: list[Tokens]
    laws: dict[tuple[int, int], Float32]


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m studio.bench.precisions", description=__doc__.split("\n\n")[0]
    )
    add_model(parser)
    parser.add_argument(
        "--variants", nargs="+", default=VARIANTS, metavar="NAME=VALUE,...", help="the first is the reference"
    )
    parser.add_argument("--requests", type=int, default=24, help="requests that are compared")
    parser.add_argument("--most-tokens", type=int, default=200, help="tokens of a request that are compared")
    parser.add_argument("--streams", type=int, default=64, help="requests at once for the tokens a second")
    parser.add_argument(
        "--seconds", type=int, default=6, choices=sorted(BY_SECONDS), help="length of the texts, about"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of all variants"
    )
    parser.add_argument("--commit", default="", help="what this tree is, where there is no checkout")
    parser.add_argument("--out", type=Path, help="file to which the JSON lines are appended")
    return parser.parse_args(argv)


async def run(args: argparse.Namespace, out: Out) -> None:
    reference: Said | None = None
    with tempfile.TemporaryDirectory(prefix="studio-precisions-") as passing:
        for variant in args.variants:
            try:
                row, said = await measured(args, args.cache_dir or Path(passing), variant, reference)
            except StudioError as error:
                out.add({"variant": variant, "failed": str(error)})
                continue
            if variant == args.variants[0]:
                reference = said
            out.add(row)


async def measured(
    args: argparse.Namespace, cache: Path, variant: str, reference: Said | None
) -> tuple[Row, Said]:
    """One worker's row, and what it said. Raises StudioError if it does not start or does not speak."""
    place = ["--model-dir", str(args.model_dir), "--cache-dir", str(cache), "--device", args.device]
    sizes = ["--max-num-seqs", str(args.streams), "--max-model-len", "2048"]
    settings = load([*place, *sizes, *flags_of([*args.set, *variant.split(",")])], {}).for_worker()
    worker = WorkerProcess([sys.executable, "-m", "studio.backends.vllm_lm"], "speech LM", settings)
    await worker.start()
    try:
        facts = (await worker.wait_started()).facts
        count, texts = max(args.requests, args.streams), BY_SECONDS[args.seconds]
        prompts = prompts_of(args.model_dir, texts, count, facts["speech_codes"])
        lm, most = SpeechLMClient(worker), args.most_tokens
        began_s = time.monotonic()
        alone = [await spoken(lm, prompts[n], n, f"alone {n}", most) for n in range(args.requests)]
        alone_s = time.monotonic() - began_s
        together_s, made = await _together(lm, prompts[: args.streams], most)
        behind = reference.tokens if reference else alone
        laws = {
            (n, place): await _law(worker, prompts[n], tokens[:place])
            for n, tokens in enumerate(behind)
            for place in PLACES
            if place <= len(tokens)
        }
        row = {"variant": variant, "device": facts["device"], "kv_cache_blocks": facts["kv_cache_blocks"]}
        row |= agreement(behind, alone) | difference(reference.laws if reference else laws, laws)
        row |= {
            "tokens_per_s_alone": round(sum(map(len, alone)) / alone_s, 1),
            "streams": args.streams,
            "tokens_per_s_together": round(made / together_s, 1),
        }
        return row, Said(alone, laws)
    finally:
        await worker.close()


async def _together(lm: SpeechLMClient, prompts: Sequence[LmPrompt], most: int) -> tuple[float, int]:
    """Seconds in which all were spoken at once, and their tokens."""
    began_s = time.monotonic()
    all_of_them = await asyncio.gather(
        *(spoken(lm, prompt, n, f"together {n}", most) for n, prompt in enumerate(prompts))
    )
    return time.monotonic() - began_s, sum(map(len, all_of_them))


async def _law(worker: WorkerProcess, prompt: LmPrompt, tokens: Tokens) -> Float32:
    """The model's own log-probabilities of what follows the tokens, float32 [S + 3]."""
    return np.asarray(
        await worker.call("next_log_probs", prompt=prompt, spoken=tokens, request_id=f"law {id(tokens)}"),
        np.float32,
    )


def difference(one: dict[tuple[int, int], Float32], other: dict[tuple[int, int], Float32]) -> Row:
    """How far laws are from one's: Kullback-Leibler divergence (nats), total variation, share whose likeliest agrees.

    Args: both by the same prompts and places, float32 [S + 3] of log-probabilities.
    """
    pairs = [(one[key].astype(np.float64), other[key].astype(np.float64)) for key in one]
    divergences = [float(np.sum(np.exp(p) * (p - q))) for p, q in pairs]
    apart = [float(np.abs(np.exp(p) - np.exp(q)).sum() / 2) for p, q in pairs]
    return {
        "laws": len(pairs),
        "kl_mean": float(f"{np.mean(divergences):.3g}"),
        "variation_mean": float(f"{np.mean(apart):.3g}"),
        "variation_most": float(f"{np.max(apart):.3g}"),
        "likeliest_same": round(float(np.mean([p.argmax() == q.argmax() for p, q in pairs])), 4),
    }


def main(argv: Sequence[str]) -> int:
    args = arguments(argv)
    ensure_registered(ROOT)
    show_workers()
    out = Out(args.out, {**conditions("auto", args.commit), "bench": "precisions", "model": args.model_dir.name})
    asyncio.run(run(args, out))
    print(table(out.rows))
    return 1 if any("failed" in row for row in out.rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
