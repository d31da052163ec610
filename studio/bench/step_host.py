"""`python -m studio.bench.step_host`: what the host alone does in a token2wav step with pages, by rows; needs no GPU.

The worker's own rows over the smallest networks, of which nothing is computed: their launches do nothing. What is left
is Python's share, which the device waits for, and copies that a GPU makes by itself (of a step's sound, mostly). In CPU
time, so that others on the machine do not count.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import time
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from studio.backends.torch_rows import TorchToken2Wav
from studio.bench.conditions import conditions
from studio.bench.figures import table
from studio.bench.flow_step import SIZES
from studio.bench.rows import Row, tell
from studio.bench.voicing_load import PROMPT_TOKENS, drawn_voice
from studio.models.flow import Flow
from studio.models.flow.paged import PagedFlow
from studio.models.flow.paged.graphs import Graphs
from studio.models.hift import Hift, HiftConfig
from studio.models.hift.window import LARGEST_LAUNCH, WindowedHift
from studio.protocols import RowStep
from studio.speech import BLOCK_TOKENS, LOOKAHEAD_TOKENS

STEPS = 4
"""Of each row; the first and the last are others than those between."""
SHOWN = 40


class NoGraphs(Graphs):
    """Runs nothing."""

    def run(self, key: Hashable, work: Callable[[], None]) -> None:
        return


class NoVocoder(WindowedHift):
    """Gives silence, all of it to the first place."""

    def __init__(self, model: Hift, max_rows: int) -> None:
        super().__init__(model, max_rows=max_rows)
        self._silence = torch.zeros(LARGEST_LAUNCH, len(self._samples))
        self._first = torch.zeros_like(self._silence, dtype=torch.int64)

    def _launch(self, told: Tensor, index: Tensor, frames: Tensor) -> tuple[Tensor, Tensor]:
        return self._silence[: len(told)], self._first[: len(told)]


def rows_of_nothing(rows: int) -> TorchToken2Wav:
    """Token2wav with room for so many rows."""
    flow = Flow(SIZES["mini"], steps=1).eval()
    hift = Hift(HiftConfig(base_channels=32, f0_channels=32)).eval().fold_weight_norm()
    page_bytes = PagedFlow.page_bytes_of(flow, torch.float32, torch.float32)
    pages = (STEPS + 1) * rows + PROMPT_TOKENS // BLOCK_TOKENS + 4
    paged = PagedFlow(flow, pool_bytes=pages * page_bytes)
    paged.graphs = NoGraphs(paged.device)
    return TorchToken2Wav(paged, NoVocoder(hift, max_rows=rows))


def clip(token2wav: TorchToken2Wav, rows: int) -> list[float]:
    """So many rows from the first step to the last: CPU seconds of each step."""
    voice = drawn_voice(SIZES["mini"].speech_tokens)
    names = [str(number) for number in range(rows)]
    firsts = [token2wav.open(name, voice, 0) for name in names]
    ids, taken_s = np.arange(BLOCK_TOKENS + LOOKAHEAD_TOKENS, dtype=np.int32), []
    for number in range(STEPS):
        final = number == STEPS - 1
        ahead = ids[: 0 if final else LOOKAHEAD_TOKENS]
        steps = [
            RowStep(name, ids[: BLOCK_TOKENS if number else first], ahead, final)
            for name, first in zip(names, firsts, strict=True)
        ]
        began_s = time.process_time()
        results = token2wav.step(steps)
        taken_s.append(time.process_time() - began_s)
        if problems := [result.error for result in results if result.error]:
            raise RuntimeError(problems[0])
    return taken_s


def measured(rows: int, clips: int) -> Row:
    """Of steps of so many rows, the mean of the fastest clip in ms, and in microseconds for each row."""
    token2wav = rows_of_nothing(rows)
    clip(token2wav, rows)  # not counted
    # The fastest: others on the machine take caches, and so CPU time as well.
    step_s = min(statistics.fmean(clip(token2wav, rows)) for _ in range(clips))
    return {"rows": rows, "host_ms": round(1e3 * step_s, 2), "row_us": round(1e6 * step_s / rows)}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m studio.bench.step_host", description=__doc__)
    parser.add_argument("--rows", default="1,32,128", help="rows of a step")
    parser.add_argument("--clips", type=int, default=10, help="of each row, 4 steps each")
    parser.add_argument("--profile", action="store_true", help="the costliest functions")
    parser.add_argument("--out", type=Path, help="file to which the JSON line is appended")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    profile = cProfile.Profile()
    counts = [int(rows) for rows in args.rows.split(",")]
    if args.profile:
        found = [profile.runcall(measured, rows, args.clips) for rows in counts]
        pstats.Stats(profile).sort_stats("tottime").print_stats(SHOWN)
    else:
        found = [measured(rows, args.clips) for rows in counts]
    line: Row = {**conditions("float32"), "step_host": found}
    print(table(found))
    tell(line, args.out)


if __name__ == "__main__":
    main()
