"""`python -m studio.bench.profile_step [flags of app.py]`: what a token2wav step launches, and how busy the device is.

The worker's own methods in this process, under torch's profiler: for flow and vocoder of a step of one row and of many,
launches by the host, work on the device by kernel, and the share of the step in which the device worked. Each summary
is written as soon as it is known.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from studio.backends import torch_token2wav
from studio.backends.serve import Service
from studio.bench.conditions import conditions
from studio.bench.voicing_load import drawn_voice
from studio.protocols import RowStep, StepResult
from studio.settings import load
from studio.speech import BLOCK_TOKENS, LOOKAHEAD_TOKENS, Int32

SHOWN = 45
"""Kernels of a summary."""
STEPS = 4
"""Steps of a row, of which the last but one is looked at: the first and the last are others than those between."""
LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel", "cudaGraphLaunch")


@dataclass(frozen=True, slots=True)
class Work:
    """Something that ran from begin_s to end_s, by the profiler's clock."""

    name: str
    begin_s: float
    end_s: float


def arguments(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Ours, and those of app.py."""
    parser = argparse.ArgumentParser(
        prog="python -m studio.bench.profile_step", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("--rows", default="1,32", help="rows of the steps that are looked at")
    parser.add_argument("--codes", type=int, default=6561, help="speech tokens that the flow knows")
    parser.add_argument("--commit", default="", help="where no checkout is")
    parser.add_argument("--out", type=Path, help="text file to which the summaries are appended")
    return parser.parse_known_args(argv)


class Here(Executor):
    """Does what it is given at once, where it is asked: of the host the profiler sees its own thread alone."""

    def __init__(self, *_: object) -> None:
        pass

    def submit(self, fn: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **named))
        return done


async def run(args: argparse.Namespace, flags: Sequence[str]) -> None:
    setattr(torch_token2wav, "ThreadPoolExecutor", Here)  # noqa: B010
    service = await torch_token2wav._setup(load(flags).model_dump(), lambda *_, **__: None)
    for rows in map(int, args.rows.split(",")):
        text = await profiled(service, rows, args.codes)
        print(text, flush=True)
        if args.out:
            with args.out.open("a", encoding="utf-8") as file:
                file.write(text)


async def profiled(service: Service, rows: int, codes: int) -> str:
    """Rows of a 5 s prompt, the third step of each under the profiler, as text."""
    names = [f"row {number}" for number in range(rows)]
    voice = drawn_voice(codes)
    firsts = [int(await service.handlers["open"](row_id=name, voice=voice, seed=0)) for name in names]  # type: ignore[misc]
    ids = torch.arange(LOOKAHEAD_TOKENS + 2 * BLOCK_TOKENS, dtype=torch.int32).numpy()
    text = ""
    for number in range(STEPS):
        steps = [
            _step(name, ids, first if number == 0 else BLOCK_TOKENS, number)
            for name, first in zip(names, firsts, strict=True)
        ]
        if number != STEPS - 2:
            await service.handlers["step"](rows=steps)  # type: ignore[misc]
            continue
        watched = ProfilerActivity.CUDA if torch.cuda.is_available() else ProfilerActivity.CPU
        with profile(activities=[watched]) as seen:
            began_s = time.perf_counter()
            results = await service.handlers["step"](rows=steps)  # type: ignore[misc]
            wall_s = time.perf_counter() - began_s
        text = _told(rows, seen, results[0], wall_s)
    return text


def _step(name: str, ids: Int32, count: int, number: int) -> RowStep:
    final = number == STEPS - 1
    return RowStep(name, ids[:count], ids[: 0 if final else LOOKAHEAD_TOKENS], final)


def _told(rows: int, seen: profile, first: StepResult, wall_s: float) -> str:
    events = seen.profiler.kineto_results.events()
    every = [
        (Work(e.name(), e.start_ns() / 1e9, (e.start_ns() + e.duration_ns()) / 1e9), e.device_type())
        for e in events
    ]
    device = [work for work, kind in every if kind != torch.autograd.DeviceType.CPU]
    launches = sum(work.name.startswith(LAUNCHES) for work, _ in every)
    head = (
        f"== {rows} rows: step {1000 * wall_s:.2f} ms under the profiler, flow {1000 * first.flow_s:.2f} ms, "
        f"vocoder {1000 * first.vocoder_s:.2f} ms, {launches} launches by the host\n"
    )
    if not device:
        return head + summary("host, for there is no device", [work for work, _ in every])
    # Both run on one stream, so what began later than the flow's own time after the first kernel is the vocoder's.
    border_s = min(work.begin_s for work in device) + first.flow_s
    flow, vocoder = ([w for w in device if (w.begin_s < border_s) == is_flow] for is_flow in (True, False))
    return head + summary("flow", flow) + summary("vocoder", vocoder)


def summary(title: str, works: Sequence[Work]) -> str:
    """Number, span, busy share, and the names that cost most, as lines."""
    if not works:
        return f"{title}: nothing\n"
    span_s = max(w.end_s for w in works) - min(w.begin_s for w in works)
    busy = busy_s(works) / span_s if span_s else 0.0
    lines = [f"{title}: {len(works)} pieces of work in {1000 * span_s:.2f} ms, busy {busy:.0%} of it"]
    by_name: defaultdict[str, list[float]] = defaultdict(list)
    for work in works:
        by_name[work.name].append(work.end_s - work.begin_s)
    total_s = sum(map(sum, by_name.values()))
    for name, times in sorted(by_name.items(), key=lambda item: -sum(item[1]))[:SHOWN]:
        lines.append(
            f"{1000 * sum(times):9.3f} ms {sum(times) / total_s:6.1%} {len(times):6d} x  {name[:120]}"
        )
    return "\n".join(lines) + "\n"


def busy_s(works: Iterable[Work]) -> float:
    """Seconds in which at least one of them ran."""
    busy, until_s = 0.0, float("-inf")
    for work in sorted(works, key=lambda w: w.begin_s):
        busy += max(0.0, work.end_s - max(work.begin_s, until_s))
        until_s = max(until_s, work.end_s)
    return busy


def main(argv: Sequence[str]) -> None:
    args, flags = arguments(argv)
    if args.out:
        with args.out.open("a", encoding="utf-8") as file:
            file.write(f"{conditions(commit_given=args.commit)}\n")
    asyncio.run(run(args, flags))


if __name__ == "__main__":
    main(sys.argv[1:])
