"""`python -m studio.bench.ras_step`: microseconds of the sampling law's step by rows, in one kernel and in torch.

A step is what the speech LM's processor does between the scores and vLLM's taking of the greatest one, for rows as they
are in the middle of their speech, drawn by the studio's own settings from scores at random. First the two ways are held
against each other over rows of every kind. A kernel that does not run is told of, and the table has torch alone then:
exit status 1, as where more than one draw in 200 differs. Each row of figures is printed and kept at once.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import torch

from studio.bench.conditions import conditions
from studio.bench.figures import table
from studio.bench.rows import Out, Row
from studio.bench.step_clock import seconds_a_step
from studio.models.speech_lm.ras_batch import RasBatch, RasParams
from studio.models.speech_lm.ras_draw import IN_TORCH, Draw, best_draw
from studio.models.speech_lm.ras_trial import disagreements

WIDTH = 6564
COMPARED_ROWS, COMPARED_STEPS = 128, 50
MOST_DIFFERING = 1 / 200
IN_A_GRAPH = 20
"""Steps whose kernels a graph runs one after the other, so that what is timed is the GPU and no launch."""


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m studio.bench.ras_step", description=__doc__.split("\n\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rows", default="1,8,64,128")
    parser.add_argument("--steps", type=int, default=300, help="timed steps of each row of figures")
    parser.add_argument("--commit", default="", help="where no checkout is")
    parser.add_argument("--out", type=Path, help="file to which JSON lines are appended")
    args = parser.parse_args(argv)
    args.rows = [int(n) for n in args.rows.split(",")]
    return args


class Speaking:
    """So many rows in the middle of their speech."""

    def __init__(self, draw: Draw, rows: int, device: torch.device) -> None:
        self._device = device
        self._batch = RasBatch(rows, device.type == "cuda", draw)
        self._lists: list[list[int]] = [list(range(40)) for _ in range(rows)]
        asking = [SimpleNamespace(extra_args=RasParams(seed=seed).extra_args()) for seed in range(rows)]
        added = [(row, asking[row], None, self._lists[row]) for row in range(rows)]
        self._batch.change(SimpleNamespace(removed=[], added=added, moved=[]))
        drawing = torch.Generator().manual_seed(0)
        self.scores = (3 * torch.randn(rows, WIDTH, generator=drawing)).to(device)

    def step(self) -> None:
        self._batch.apply(self.scores.clone()).argmax(1)
        for spoken in self._lists:
            spoken.append(-1)  # as an engine that schedules ahead does

    def microseconds(self, steps: int) -> tuple[float, float]:
        """Of a step until the device is done, and until the host is free again."""
        device_s, host_s = seconds_a_step(self.step, self._device, steps, unmeasured=5)
        return device_s * 1e6, host_s * 1e6

    def kernel_microseconds(self) -> float:
        """Of the kernel alone, by the GPU's clock."""
        batch, scratch = self._batch, self.scores.clone()
        assert batch.layout is not None  # rows that ask have drawn
        layout = batch.layout

        def copied() -> None:
            scratch.copy_(self.scores)

        def drawn() -> None:
            copied()
            batch.draw.step(scratch, batch.records, layout)

        return _graphed(drawn) - _graphed(copied)


def _graphed(work: Callable[[], None]) -> float:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(IN_A_GRAPH):
            work()
    graph.replay()
    began, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    began.record()
    for _ in range(5):
        graph.replay()
    ended.record()
    ended.synchronize()
    return began.elapsed_time(ended) * 1e3 / (5 * IN_A_GRAPH)


def run(args: argparse.Namespace, out: Out) -> bool:
    """Whether the kernel runs, and draws what torch draws; always on a CPU, which has none."""
    device, ways, right = torch.device(args.device), {"torch": IN_TORCH}, True
    if device.type == "cuda":
        began_s = time.perf_counter()
        draw = best_draw(device, WIDTH)
        out.add({"prepared_s": round(time.perf_counter() - began_s, 2), "kernel_runs": draw is not IN_TORCH})
        right = draw is not IN_TORCH and compared(draw, out)
        if draw is not IN_TORCH:
            ways = {"kernel": draw} | ways
    for way, draw in ways.items():
        for rows in args.rows:
            speaking = Speaking(draw, rows, device)
            step, host = speaking.microseconds(args.steps)
            row: Row = {"path": way, "rows": rows, "step_us": round(step, 1), "host_us": round(host, 1)}
            if way == "kernel":
                row["kernel_us"] = round(speaking.kernel_microseconds(), 1)
            out.add(row)
    return right


def compared(draw: Draw, out: Out) -> bool:
    """Whether it draws what torch draws, but for rounding at the border of two tokens."""
    differing, drawn = disagreements(draw, WIDTH, COMPARED_ROWS, COMPARED_STEPS)
    out.add({"differing": differing, "drawn": drawn})
    return differing <= drawn * MOST_DIFFERING


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(argv)
    out = Out(args.out, {**conditions(commit_given=args.commit), "bench": "ras_step"})
    right = run(args, out)
    print(table(out.rows))
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
