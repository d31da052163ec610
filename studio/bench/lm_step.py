"""`python -m studio.bench.lm_step`: milliseconds of a speech LM step by batch size, alone and beside token2wav.

The workers are the studio's own, each in its process, so both share the device as they do when serving. Prints a table;
each row is appended to --out as soon as it is known. Exit status 1 where a worker did not start.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

from studio.bench.conditions import conditions
from studio.bench.figures import percentile, table
from studio.bench.rows import Out, Row
from studio.bench.seeds import add_model, prompts_of
from studio.bench.service import ROOT, gpu_bytes, show_workers
from studio.bench.texts import BY_SECONDS
from studio.bench.voicing_load import VoicingLoad, drawn_voice
from studio.engine.lm_client import SpeechLMClient
from studio.engine.token2wav_client import Token2WavClient
from studio.engine.worker import WorkerProcess
from studio.errors import StudioError
from studio.protocols import LmPrompt, SpeechLM
from studio.settings import load
from studio.setup.registration import ensure_registered
from studio.speech import Sampling

WARMING_TOKENS = 10
Gap = tuple[float, int]
"""Seconds between two deltas of a request, and the tokens of the second."""


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m studio.bench.lm_step", description=__doc__.split("\n\n")[0]
    )
    add_model(parser)
    parser.add_argument("--streams", default="1,8,64,128", help="requests at once")
    parser.add_argument("--tokens", type=int, default=200, help="tokens of a request that are timed")
    parser.add_argument("--beside-rows", default="", help="then token2wav alone and beside, by rows: 1,32")
    parser.add_argument(
        "--beside-streams", default="1,64", help="requests at once of the LM beside token2wav"
    )
    parser.add_argument("--seconds", type=float, default=4.0, help="of each load of token2wav alone")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the workers"
    )
    parser.add_argument("--commit", default="", help="where no checkout is")
    parser.add_argument("--out", type=Path, help="file to which JSON lines are appended")
    args = parser.parse_args(argv)
    args.streams, args.beside_rows, args.beside_streams = (
        [int(n) for n in given.split(",") if n]
        for given in (args.streams, args.beside_rows, args.beside_streams)
    )
    return args


async def run(args: argparse.Namespace, out: Out) -> list[Row]:
    """Rows of the LM alone, then of token2wav alone and of both."""
    most = max(args.streams + args.beside_streams)
    with tempfile.TemporaryDirectory(prefix="studio-lm-step-") as passing:
        settings = {
            "model_dir": str(args.model_dir), "cache_dir": str(args.cache_dir or passing), "device": args.device,
            "max_num_seqs": most, "max_model_len": 2048, **typed(args.set),
        }  # fmt: skip
        lm_worker = WorkerProcess([sys.executable, "-m", "studio.backends.vllm_lm"], "speech LM", settings)
        voicing_worker = WorkerProcess(
            [sys.executable, "-m", "studio.backends.torch_token2wav"], "token2wav", settings
        )
        try:
            await lm_worker.start()
            facts = (await lm_worker.wait_started()).facts
            out.add({"lm_start_s": {k: v for k, v in facts.items() if k.endswith("_s")}})
            lm = SpeechLMClient(lm_worker)
            prompts = prompts_of(args.model_dir, BY_SECONDS[6], most, facts["speech_codes"])
            for streams in args.streams:
                out.add(await stepped(lm, prompts[:streams], args.tokens))
            if args.beside_rows:
                await voicing_worker.start()
                await voicing_worker.wait_started()
                voice = drawn_voice(facts["speech_codes"])
                loads = [
                    VoicingLoad(Token2WavClient(voicing_worker), rows, voice) for rows in args.beside_rows
                ]
                await beside(args, lm, prompts, loads, out)
        finally:
            await asyncio.gather(lm_worker.close(), voicing_worker.close())
    return out.rows


async def beside(
    args: argparse.Namespace,
    lm: SpeechLM,
    prompts: Sequence[LmPrompt],
    loads: Sequence[VoicingLoad],
    out: Out,
) -> None:
    """Each load of token2wav alone, then beside the LM at each number of streams."""
    for voicing in loads:
        await voicing.warm()
        async with voicing.running():
            await asyncio.sleep(args.seconds)
        out.add(voicing.row() | {"lm_streams": 0})
        for streams in args.beside_streams:
            async with voicing.running():
                lm_row = await stepped(lm, prompts[:streams], args.tokens, args.seconds)
            out.add(lm_row | {"beside_rows": voicing.rows})
            out.add(voicing.row() | {"lm_streams": streams})


async def stepped(lm: SpeechLM, prompts: Sequence[LmPrompt], tokens: int, least_s: float = 0.0) -> Row:
    """All prompts at once, each to so many tokens, again and again for so long: seconds a step of a full batch."""
    await _round(lm, prompts, WARMING_TOKENS)
    began_s = time.monotonic()
    firsts: list[float] = []
    gaps: list[Gap] = []
    made = 0
    while not made or time.monotonic() - began_s < least_s:
        more = await _round(lm, prompts, tokens)
        firsts, gaps, made = firsts + more[0], gaps + more[1], made + more[2]
    return {"streams": len(prompts), **step_figures(firsts, gaps, made, time.monotonic() - began_s)}


async def _round(
    lm: SpeechLM, prompts: Sequence[LmPrompt], tokens: int
) -> tuple[list[float], list[Gap], int]:
    """Seconds to the first token of each, the gaps while all were under way, and tokens in all."""
    began_s = time.monotonic()
    firsts: list[float] = []
    gaps: list[Gap] = []
    made, going = 0, len(prompts)

    async def spoken(prompt: LmPrompt, number: int) -> None:
        nonlocal made, going
        mine, last_s = 0, 0.0
        name = f"step {uuid.uuid4().hex[:8]} {number}"
        async with aclosing(lm.generate(prompt, Sampling(seed=number), name)) as deltas:  # type: ignore[type-var]
            async for delta in deltas:
                now_s = time.monotonic()
                mine, made = mine + len(delta.tokens), made + len(delta.tokens)
                if not last_s:
                    firsts.append(now_s - began_s)
                elif len(firsts) == going == len(prompts) and delta.tokens:
                    gaps.append((now_s - last_s, len(delta.tokens)))
                last_s = now_s
                if mine >= tokens:
                    break
        going -= 1

    await asyncio.gather(*(spoken(prompt, number) for number, prompt in enumerate(prompts)))
    return firsts, gaps, made


def step_figures(firsts: Sequence[float], gaps: Sequence[Gap], tokens: int, wall_s: float) -> Row:
    """firsts: seconds to each first token; gaps: of all requests while all were under way; tokens: in all."""
    row: Row = {"tokens": tokens, "tokens_per_s": round(tokens / wall_s, 1)}
    row |= {f"first_token_p{p}_ms": _ms(percentile(firsts, p / 100)) for p in (50, 99)}
    if gaps:
        each = [seconds / count for seconds, count in gaps]
        row |= {f"step_p{p}_ms": _ms(percentile(each, p / 100)) for p in (50, 95, 99)}
        row["tokens_per_delta"] = round(sum(count for _, count in gaps) / len(gaps), 2)
    return row


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 2)


def typed(given: Sequence[str]) -> dict[str, object]:
    """NAME=VALUE each as Settings would take it. Raises SettingsError."""
    flags = [part for one in given for part in (f"--{one.partition('=')[0]}", one.partition("=")[2])]
    wanted = load(flags, {}).model_dump()
    return {name: wanted[name] for name in (one.partition("=")[0].replace("-", "_") for one in given)}


def main(argv: Sequence[str]) -> int:
    args = arguments(argv)
    ensure_registered(ROOT)
    show_workers()
    out = Out(
        args.out, {**conditions(commit_given=args.commit), "bench": "lm_step", "model": args.model_dir.name}
    )
    failed = ""
    try:
        asyncio.run(run(args, out))
    except StudioError as error:
        failed = str(error)
        out.add({"failed": failed})
    print(table(out.rows))
    print(f"gpu_bytes: {gpu_bytes()}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
