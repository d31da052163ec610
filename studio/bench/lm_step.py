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
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from studio.bench.conditions import conditions
from studio.bench.cores import Host, quota, split
from studio.bench.figures import percentile, table
from studio.bench.rows import Out, Row
from studio.bench.seeds import add_model, prompts_of
from studio.bench.service import ROOT, cores, gpu_bytes, show_workers
from studio.bench.stacks import sampled
from studio.bench.texts import BY_SECONDS
from studio.bench.voicing_load import VoicingLoad, drawn_voice
from studio.engine.lm_client import SpeechLMClient
from studio.engine.mps import OF_TOKEN2WAV, gpu_sharing
from studio.engine.token2wav_client import Token2WavClient
from studio.engine.worker import WorkerProcess
from studio.engine.worker_command import Variables, worker_command, worker_variables
from studio.errors import StudioError
from studio.protocols import LmPrompt, SpeechLM
from studio.settings import load
from studio.setup.registration import ensure_registered
from studio.speech import Sampling

WARMING_TOKENS = 10
CHECKED, CHECKED_TOKENS, LIKELIEST = 8, 4, 100
WAYS = {
    "default": "as the studio starts it",
    "loud": "with half of the cores for threads, which turn while they wait",
    "later": "below the LM in MPS' order",
}
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
    parser.add_argument(
        "--ways", default="default", help=f"of token2wav to be beside, a start each: {', '.join(WAYS)}"
    )
    parser.add_argument("--split", action="store_true", help="beside once more with cores of its own for each")
    parser.add_argument("--check", action="store_true", help="compare the law of a step with that of a prompt")
    parser.add_argument("--stacks", action="store_true", help="where the LM's processes are found, if py-spy is there")
    parser.add_argument("--label", default="", help="name of a variant, whose rows are none of the table")
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
    args.ways = args.ways.split(",")
    if unknown := set(args.ways) - WAYS.keys():
        parser.error(f"--ways knows no {', '.join(unknown)}")
    return args


async def run(args: argparse.Namespace, out: Out) -> list[Row]:
    """Rows of the LM alone, then of token2wav alone and of both, once for each way in which they are neighbours."""
    most = max(args.streams + args.beside_streams)
    with tempfile.TemporaryDirectory(prefix="studio-lm-step-") as passing:
        place = ["--model-dir", str(args.model_dir), "--cache-dir", str(args.cache_dir or passing)]
        sizes = ["--max-num-seqs", str(most), "--max-model-len", "2048"]
        settings = load([*place, "--device", args.device, *sizes, *flags_of(args.set)], {})
        device = settings.found_device()
        with gpu_sharing(settings.gpu_sharing, settings.folder("cache"), device) as shared:
            neighbours = Neighbours(settings.for_worker(), device, shared)
            lm_worker = neighbours.lm()
            ways = {way: neighbours.token2wav(way) for way in (args.ways if args.beside_rows else ())}
            try:
                # The first token2wav starts meanwhile, and does nothing until its turn: a start takes half a minute.
                for worker in (lm_worker, *list(ways.values())[:1]):
                    await worker.start()
                facts = (await lm_worker.wait_started()).facts
                prompts = prompts_of(args.model_dir, BY_SECONDS[6], most, facts["speech_codes"])
                for worker in list(ways.values())[:1]:
                    await worker.wait_started()
                out.add({"lm_start_s": {k: v for k, v in facts.items() if k.endswith("_s")}, **quota()})
                await alone(args, lm_worker, prompts, out)
                for way, voicing_worker in ways.items():
                    await voicing_worker.start()
                    await voicing_worker.wait_started()
                    of_way = replace(out, conditions=out.conditions | {"way": way})
                    await beside(args, lm_worker, voicing_worker, prompts, of_way)
                    await voicing_worker.close()
            finally:
                await asyncio.gather(*(worker.close() for worker in (lm_worker, *ways.values())))
    return out.rows


async def alone(args: argparse.Namespace, lm_worker: WorkerProcess, prompts: Sequence[LmPrompt], out: Out) -> None:
    """Each number of streams, and how far a step's law is from a prompt's."""
    host = Host({"lm": pid_of(lm_worker)})
    for streams in args.streams:
        with host.watched():
            row = await stepped(SpeechLMClient(lm_worker), prompts[:streams], args.tokens)
        out.add(row | host.row)
    if args.check:
        out.add(await law_error(lm_worker, prompts))
    if args.stacks:
        await stacks(lm_worker, prompts[: args.streams[-1]], args, out)


async def beside(
    args: argparse.Namespace,
    lm_worker: WorkerProcess,
    voicing_worker: WorkerProcess,
    prompts: Sequence[LmPrompt],
    out: Out,
) -> None:
    """Each load of token2wav alone, then beside the LM at each number of streams; the last again on split cores."""
    host = Host({"lm": pid_of(lm_worker), "token2wav": pid_of(voicing_worker)})
    voice = drawn_voice(lm_worker.state.facts["speech_codes"])
    loads = [VoicingLoad(Token2WavClient(voicing_worker), rows, voice) for rows in args.beside_rows]
    for voicing in loads:
        await voicing.warm()
        async with voicing.running():
            await asyncio.sleep(args.seconds)
        out.add(voicing.row() | {"lm_streams": 0})
        for streams in args.beside_streams:
            await both(args, lm_worker, voicing, prompts[:streams], host, out)
    if args.stacks:
        async with loads[0].running():
            await stacks(lm_worker, prompts[: args.beside_streams[-1]], args, out)
    if args.split:
        with split(list(host.pids.values())):
            apart = replace(out, conditions=out.conditions | {"cores": "split"})
            await both(args, lm_worker, loads[0], prompts[: args.beside_streams[-1]], host, apart)


async def stacks(
    lm_worker: WorkerProcess, prompts: Sequence[LmPrompt], args: argparse.Namespace, out: Out
) -> None:
    """What vLLM's engine process and the worker before it are found in while so many requests run."""
    speaking = asyncio.create_task(stepped(SpeechLMClient(lm_worker), prompts, args.tokens, args.seconds + 1))
    try:
        for name, pid in (("engine", lm_worker.state.facts["engine_pids"][0]), ("worker", pid_of(lm_worker))):
            if found := await sampled(pid, args.seconds / 2):
                out.add({"stacks": name, "lm_streams": len(prompts), **found})
    finally:
        await speaking


async def both(
    args: argparse.Namespace,
    lm_worker: WorkerProcess,
    voicing: VoicingLoad,
    prompts: Sequence[LmPrompt],
    host: Host,
    out: Out,
) -> None:
    with host.watched():
        async with voicing.running():
            lm_row = await stepped(SpeechLMClient(lm_worker), prompts, args.tokens, args.seconds)
    out.add(lm_row | host.row | {"beside_rows": voicing.rows})
    out.add(voicing.row() | {"lm_streams": len(prompts)})


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The two workers of one studio. shared: what they must know to share the GPU."""

    values: Mapping[str, Any]
    device: str
    shared: Variables

    def lm(self) -> WorkerProcess:
        variables = worker_variables("lm", self.values, self.device, self.shared)
        return WorkerProcess(worker_command("vllm_lm", variables), "speech LM", dict(self.values))

    def token2wav(self, way: str) -> WorkerProcess:
        """way: see WAYS."""
        values = dict(self.values)
        variables = worker_variables("token2wav", values, self.device, self.shared)
        if way == "loud":
            values["token2wav_threads"] = max(1, cores() // 2)
            variables = dict(self.shared.get("token2wav", {}))
        if way == "later":
            variables |= OF_TOKEN2WAV["mps_lm_first"]
        return WorkerProcess(worker_command("torch_token2wav", variables), "token2wav", values)


async def law_error(worker: WorkerProcess, prompts: Sequence[LmPrompt]) -> Row:
    """How far a decode step's log-probabilities are from those of the same tokens read as a prompt, while others run.

    Of the likeliest tokens alone: rounding, unless one of the two is wrong. first_law: three tokens and their
    log-probabilities behind the first prompt, the same in every variant but for rounding.
    """
    asked, others = prompts[:CHECKED], prompts[CHECKED:]
    name = uuid.uuid4().hex[:8]

    async def error(number: int, prompt: LmPrompt) -> float:
        said, law = await worker.call(
            "greedy_log_probs", prompt=prompt, count=CHECKED_TOKENS, request_id=f"law {name} {number}"
        )
        read = await worker.call(
            "next_log_probs", prompt=prompt, spoken=said[:-1], request_id=f"read {name} {number}"
        )
        likeliest = np.argsort(read)[-LIKELIEST:]
        return float(np.abs(law - read)[likeliest].max())

    first = await worker.call("next_log_probs", prompt=asked[0], spoken=(), request_id=f"first {name}")
    crowd = asyncio.create_task(_round(SpeechLMClient(worker), others, CHECKED_TOKENS * 4))
    errors = await asyncio.gather(*(error(number, prompt) for number, prompt in enumerate(asked)))
    await crowd
    return {
        "check": "law", "law_error_p50": float(f"{percentile(errors, 0.5):.2g}"),
        "law_error_max": float(f"{max(errors):.2g}"),
        "first_law": [[int(i), round(float(first[i]), 3)] for i in np.argsort(first)[:-4:-1]],
    }  # fmt: skip


def pid_of(worker: WorkerProcess) -> int:
    assert worker.state.pid is not None
    return worker.state.pid


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


def flags_of(given: Sequence[str]) -> list[str]:
    """NAME=VALUE each as app.py takes it."""
    return [part for one in given for part in (f"--{one.partition('=')[0]}", one.partition("=")[2])]


def main(argv: Sequence[str]) -> int:
    args = arguments(argv)
    ensure_registered(ROOT)
    show_workers()
    about = {"bench": "lm_variant" if args.label else "lm_step", "model": args.model_dir.name, "variant": args.label}
    out = Out(args.out, {**conditions(commit_given=args.commit), **about})
    failed = ""
    try:
        asyncio.run(run(args, out))
    except StudioError as error:
        failed = str(error)
        out.add({"failed": failed})
    print(table([row for row in out.rows if "stacks" not in row]))
    print(f"gpu_bytes: {gpu_bytes()}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
