"""`python -m studio.bench.seeds`: whether a seed gives the same speech tokens beside others as alone, and at what cost.

Asks the speech LM's worker alone, without page and sound. On a GPU it runs twice, without and with vLLM's batch
invariance. A row is one JSON line, printed and kept as soon as it is known; a table comes last. Exit status 1 where it
did not start, or where the worker says that its seeds hold beside others and one did not.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from statistics import median

import numpy as np

from studio.bench.conditions import conditions
from studio.bench.figures import table
from studio.bench.rows import Out, Row
from studio.bench.service import ROOT, show_workers
from studio.bench.texts import BY_SECONDS
from studio.checkpoint import read_checkpoint
from studio.engine.lm_client import SpeechLMClient
from studio.engine.worker import WorkerProcess
from studio.errors import StudioError
from studio.protocols import LmPrompt, SpeechLM
from studio.setup.registration import ensure_registered
from studio.speech import Sampling
from studio.text.frontend import TextFrontend

Tokens = list[int]

PROMPT_TOKENS = 75
"""Prompt speech of a request: 3 s."""


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m studio.bench.seeds", description=__doc__.split("\n\n")[0]
    )
    add_model(parser)
    parser.add_argument("--dtype", default="auto", choices=("auto", "float32", "bfloat16", "float16"))
    parser.add_argument("--requests", type=int, default=100, help="requests that are compared")
    parser.add_argument("--beside", type=int, default=31, help="others that run beside each of them")
    parser.add_argument("--most-tokens", type=int, default=250, help="tokens of a request that are compared")
    parser.add_argument(
        "--seconds", type=int, default=6, choices=sorted(BY_SECONDS), help="length of the texts, about"
    )
    parser.add_argument("--out", type=Path, help="file to which the JSON line is appended")
    return parser.parse_args(argv)


def add_model(parser: argparse.ArgumentParser) -> None:
    """Which checkpoint a worker of the speech LM is started with, and where."""
    parser.add_argument("--model-dir", type=Path, default=ROOT / "assets" / "voice")
    parser.add_argument(
        "--cache-dir", type=Path, help="folder for the converted checkpoint; else a passing one"
    )
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))


async def run(args: argparse.Namespace, out: Out) -> None:
    """A row without batch invariance and, on a GPU, one with it."""
    with tempfile.TemporaryDirectory(prefix="studio-seeds-") as passing:
        cache = args.cache_dir or Path(passing)
        out.add(await measured(args, cache, batch_invariant=False))
        if out.rows[0].get("device") != "cpu":
            out.add(await measured(args, cache, batch_invariant=True))


async def measured(args: argparse.Namespace, cache: Path, *, batch_invariant: bool) -> Row:
    """One worker's row; why it did not start, where it did not."""
    settings = {
        "model_dir": str(args.model_dir), "cache_dir": str(cache), "device": args.device, "dtype": args.dtype,
        "max_num_seqs": args.beside + 1, "max_model_len": 2048, "batch_invariant": batch_invariant,
    }  # fmt: skip
    worker = WorkerProcess([sys.executable, "-m", "studio.backends.vllm_lm"], "speech LM", settings)
    await worker.start()
    try:
        facts = (await worker.wait_started()).facts
        about = {
            "batch_invariant": batch_invariant,
            "device": facts["device"],
            "seed_holds": facts["seed_holds"],
        }
        texts = BY_SECONDS[args.seconds]
        prompts = prompts_of(args.model_dir, texts, args.requests + args.beside, facts["speech_codes"])
        return about | await compared(
            SpeechLMClient(worker), prompts, args.requests, args.beside, args.most_tokens
        )
    except StudioError as error:
        return {"batch_invariant": batch_invariant, "failed": str(error)}
    finally:
        await worker.close()


def prompts_of(model_dir: Path, texts: Sequence[str], count: int, speech_codes: int) -> list[LmPrompt]:
    """Zero-shot prompts: our sentences as transcript and text, and speech tokens drawn at random."""
    about = read_checkpoint(model_dir)
    frontend = TextFrontend.load(
        about.tokenizer_folder, about.text_frontend, about.languages, 1000, about.sound_tags, about.version
    )
    ids = [frontend.segments(text)[0].token_ids for text in texts]
    draws = (np.random.RandomState(n).randint(0, speech_codes, PROMPT_TOKENS) for n in range(count))
    return [
        LmPrompt(ids[(n + 1) % len(ids)], ids[n % len(ids)], draw.astype(np.int32))
        for n, draw in enumerate(draws)
    ]


async def compared(lm: SpeechLM, prompts: Sequence[LmPrompt], requests: int, beside: int, most: int) -> Row:
    """The first so many prompts alone, then with others beside; the prompts behind them only keep the last company."""
    began_s = time.monotonic()
    alone = [await spoken(lm, prompts[n], n, f"alone {n}", most) for n in range(requests)]
    alone_s = time.monotonic() - began_s
    together: dict[int, Tokens] = {}
    waiting = iter(range(len(prompts)))

    async def one_after_the_other() -> None:
        for n in waiting:
            together[n] = await spoken(lm, prompts[n], n, f"beside {n}", most)

    began_s = time.monotonic()
    await asyncio.gather(*(one_after_the_other() for _ in range(beside + 1)))
    together_s = time.monotonic() - began_s
    return agreement(alone, [together[n] for n in range(requests)]) | {
        "beside": beside,
        "tokens_per_s_alone": round(sum(map(len, alone)) / alone_s, 1),
        "tokens_per_s_beside": round(sum(map(len, together.values())) / together_s, 1),
    }


async def spoken(lm: SpeechLM, prompt: LmPrompt, seed: int, request_id: str, most: int) -> Tokens:
    """The first tokens of a request, which ends with the last of them."""
    tokens: Tokens = []
    async with aclosing(lm.generate(prompt, Sampling(seed=seed), request_id)) as deltas:  # type: ignore[type-var]
        async for delta in deltas:
            tokens += delta.tokens
            if len(tokens) >= most:
                break
    return tokens[:most]


def agreement(alone: Sequence[Tokens], beside: Sequence[Tokens]) -> Row:
    """How many requests are the same, and after how many tokens the others part: the least and the median."""
    parted = [_shared(one, other) for one, other in zip(alone, beside, strict=True) if one != other]
    return {
        "requests": len(alone),
        "tokens": sum(map(len, alone)),
        "same": len(alone) - len(parted),
        "parted_least": min(parted, default=None),
        "parted_p50": median(parted) if parted else None,
    }


def _shared(one: Tokens, other: Tokens) -> int:
    """Leading tokens that are the same."""
    return next(
        (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def is_kept(row: Row) -> bool:
    """Whether the worker ran, and what it says of its seeds is so."""
    return "failed" not in row and (row["seed_holds"] == "alone" or row["same"] == row["requests"])


def main(argv: Sequence[str]) -> int:
    args = arguments(argv)
    ensure_registered(ROOT)
    show_workers()
    out = Out(args.out, {**conditions(args.dtype), "bench": "seeds", "model": args.model_dir.name})
    asyncio.run(run(args, out))
    print(table(out.rows))
    return 0 if all(map(is_kept, out.rows)) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
