"""`python -m studio.bench.flow_solve --device cuda --size full`: what a solve of the flow costs, by how it is computed.

Launches and milliseconds by slots, with the products of the library and with our own; then milliseconds by seconds of
speech that are kept, for each number of programs among which a stream's keys are split. Streams are given pages that
nobody wrote: time does not depend on what is in them. Random weights. One JSON object a line.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from studio.bench.conditions import conditions
from studio.bench.flow_step import SIZES, TYPES, drawn_flow
from studio.bench.rows import tell
from studio.models.flow.paged import PagedFlow, PagedPrompt, PagedState
from studio.models.flow.paged.graphs import Graphs
from studio.models.flow.sizes import BLOCK_TOKENS, LOOKAHEAD_TOKENS, MEL_BINS

SHORT_S = 8
"""Seconds kept where slots are compared: 5 of prompt and 3 of speech."""


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m studio.bench.flow_solve", description=__doc__.split("\n\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--size", default="mini", choices=SIZES)
    parser.add_argument("--slots", default="1,8,32,128")
    parser.add_argument("--storage", default="fp8", choices=TYPES)
    parser.add_argument("--compute", choices=TYPES, help="of the estimator; on a GPU bfloat16")
    parser.add_argument("--seconds", default="6,15,30,65", help="kept, in the growth curves: prompt and speech")
    parser.add_argument("--splits", default="1:1,2,4,8,16,32;8:1,4,8,16;32:1,2,4", help="slots:splits to try, ...")
    parser.add_argument("--pool-gib", type=float, default=100.0, help="most memory of all pages")
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--commit", default="", help="where no checkout is")
    parser.add_argument("--out", type=Path, help="file to which the lines are appended")
    return parser.parse_args(argv)


class Bench:
    """One flow and one pool, and the lines about its solve."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.device = torch.device(args.device)
        on_gpu = self.device.type == "cuda"
        compute = args.compute or ("bfloat16" if on_gpu else "float32")
        self.slots = [int(n) for n in args.slots.split(",")]
        self.curves = {
            int(slots): [int(n) for n in splits.split(",")]
            for slots, splits in (curve.split(":") for curve in args.splits.split(";") if curve)
        }
        self.seconds = [int(n) for n in args.seconds.split(",")]
        self.about = {"device": args.device, "size": args.size, "storage": args.storage, "compute": compute}
        self.about |= conditions(commit_given=args.commit)
        flow = drawn_flow(args.size, self.device)
        storage, types = TYPES[args.storage], TYPES[compute]
        most = max(max(self.slots) * (SHORT_S + 2), max(self.curves, default=0) * (max(self.seconds) + 2))
        pages = min(most, int(args.pool_gib * 2**30) // PagedFlow.page_bytes_of(flow, storage, types) - 2)
        self.pages = pages
        self.paged = PagedFlow(
            flow, pool_bytes=(pages + 2) * PagedFlow.page_bytes_of(flow, storage, types), storage=storage,
            compute=types, max_slots=max([*self.slots, *self.curves]),
        )  # fmt: skip

    def tell(self, what: str, **figures: object) -> None:
        tell({"bench": "flow-solve", "what": what, **figures, **self.about}, self.args.out)

    def run(self) -> None:
        shipped = self.paged._fused_slots
        for fused in (0, max(self.slots)):
            self.paged._fused_slots = fused
            for slots in self.slots:
                self.fresh()
                with self.loaded(slots, SHORT_S):
                    launches = self.launches(slots)
                    self.tell("slots", slots=slots, fused=bool(fused), launches=launches, **self.solve_ms(slots))
        self.paged._fused_slots = shipped
        for slots, every in self.curves.items():
            for splits in every:
                self.fresh()
                with split(splits):
                    curve: dict[str, float] = {}
                    for seconds in self.seconds:
                        if slots * (seconds + 1) > self.pages:
                            continue
                        with self.loaded(slots, seconds):
                            curve[str(seconds)] = self.solve_ms(slots)["ms"]
                    times = list(curve.values())
                    ratio = round(times[-1] / times[0], 3) if times else None
                    fused = slots <= shipped
                    self.tell("growth", slots=slots, fused=fused, splits=splits, last_over_first=ratio, ms=curve)

    def fresh(self) -> None:
        """No graph and none of their memory: the next is of the kernels as they are set now."""
        self.paged.graphs = Graphs(self.device)
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    @contextmanager
    def loaded(self, slots: int, seconds: int) -> Iterator[None]:
        """So many streams of so many seconds have had a step; the slots are as that left them."""
        states = [self._aged(seconds) for _ in range(slots)]
        tokens = torch.arange(BLOCK_TOKENS + LOOKAHEAD_TOKENS)
        try:
            self.paged.step_packed(states, [tokens] * slots, [False] * slots)
            yield
        finally:
            for state in states:
                state.release()

    def _aged(self, seconds: int) -> PagedState:
        pages, mel = self.paged.pool.take(seconds), np.zeros((0, MEL_BINS), np.float32)
        speaker, tokens = np.zeros(MEL_BINS, np.float32), torch.empty(0, dtype=torch.int64)
        prompt = PagedPrompt(self.paged.pool, pages, speaker, tokens, mel, self.paged.flow.guidance)
        state = self.paged.open(prompt)
        prompt.release()
        return state

    def launches(self, slots: int) -> int | None:
        """Kernels and copies of one solve; None without a GPU."""
        if self.device.type != "cuda":
            return None
        work = self.paged.stages(slots, SHORT_S + 1)["solve"]  # nothing is captured yet, so this launches
        work()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            work()
            torch.cuda.synchronize()
        events = seen.profiler.kineto_results.events()
        return sum(event.device_type() != torch.autograd.DeviceType.CPU for event in events)

    def solve_ms(self, slots: int) -> dict[str, float]:
        """Median and longest, as a graph where there is a GPU."""
        self.paged.capture_solve(slots)
        work = self.paged.stages(slots, max(self.seconds) + 1)["solve"]
        times = []
        for _ in range(1 + self.args.repeat):
            self.synchronize()
            began_s = time.perf_counter()
            work()
            self.synchronize()
            times.append(1e3 * (time.perf_counter() - began_s))
        return {"ms": round(statistics.median(times[1:]), 2), "ms_most": round(max(times[1:]), 2)}

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


@contextmanager
def split(splits: int) -> Iterator[None]:
    """Attention in so many programs a slot, lane and head, where it is kernels."""
    try:
        from studio.models.flow.paged import attention_kernels
    except ImportError:  # no Triton, so no splits
        yield
        return
    was = attention_kernels.SPLITS
    attention_kernels.SPLITS = ((1 << 30, splits),)
    try:
        yield
    finally:
        attention_kernels.SPLITS = was


def main() -> None:
    Bench(arguments()).run()


if __name__ == "__main__":
    main()
