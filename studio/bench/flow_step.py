"""`python -m studio.bench.flow_step --device cuda --size full`: time and accuracy of a paged step of the flow.

Random weights: speed does not depend on them. Prints one JSON object a line as soon as it is known.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from studio.bench.rows import tell
from studio.models.flow import Flow, FlowConfig
from studio.models.flow.layers import lay_out_for_products
from studio.models.flow.paged import PagedFlow, PagedPrompt
from studio.models.flow.sizes import BLOCK_TOKENS, FRAMES_PER_TOKEN, LOOKAHEAD_TOKENS, MEL_BINS, SPEAKER_DIM

SIZES = {
    "full": FlowConfig(),
    "mini": FlowConfig(243, 64, 4, 128, 2, 2, 64, 4, 32, 2, 2, 256),
}
TYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "fp8": torch.float8_e4m3fn,
}
PROMPT_TOKENS = 5 * BLOCK_TOKENS + LOOKAHEAD_TOKENS  # 5 s of prompt are cached
TIMED = 3  # steps of each stream that are timed, after one that is not
PACKED = 16  # slots in one graph where numbers are compared


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m studio.bench.flow_step", description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--size", default="mini", choices=SIZES)
    parser.add_argument(
        "--slots", default="1,2,4,8,16,32,64,128", help="streams that step together, a block each"
    )
    parser.add_argument(
        "--storage", default="fp8", choices=TYPES, help="of keys and values, where time is taken"
    )
    parser.add_argument(
        "--compute", choices=TYPES, help="of the estimator, where time is taken; on a GPU bfloat16"
    )
    parser.add_argument("--pool-gib", type=float, default=0.0, help="0: what the largest part needs")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=60, help="of speech in the growth curve")
    parser.add_argument("--growth", default="1,32", help="streams of the growth curves")
    parser.add_argument(
        "--kernels", action="store_true", help="hold them against plain torch on a CPU as well"
    )
    parser.add_argument("--skip", default="", help="parts to leave out: steps,growth,snr")
    parser.add_argument("--out", type=Path, help="file to which the lines are appended")
    return parser.parse_args(argv)


def drawn_flow(size: str, device: torch.device) -> Flow:
    """One of SIZES with weights drawn at random, always the same, as a worker lays it out."""
    torch.manual_seed(0)
    flow = Flow(SIZES[size]).eval().requires_grad_(False)
    lay_out_for_products(flow)
    return flow.to(device)


class Bench:
    """One flow, and the lines about it."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.device = torch.device(args.device)
        self.flow = drawn_flow(args.size, self.device)
        self.generator = torch.Generator().manual_seed(1)
        # A CPU has no products of half precision worth the name.
        self.compute_name = args.compute or ("float32" if self.device.type == "cpu" else "bfloat16")
        self.storage, self.compute = TYPES[args.storage], TYPES[self.compute_name]

    def tell(self, what: str, **figures: Any) -> None:
        tell({"what": what, "device": self.args.device, "size": self.args.size, **figures}, self.args.out)

    def tokens(self, count: int) -> Tensor:
        return torch.randint(0, self.flow.config.speech_tokens, (count,), generator=self.generator)

    def voice(self) -> tuple[Tensor, Tensor, Tensor]:
        mel = torch.randn(FRAMES_PER_TOKEN * PROMPT_TOKENS, MEL_BINS, generator=self.generator) * 2 - 4
        embedding = torch.randn(SPEAKER_DIM, generator=self.generator)
        return self.tokens(PROMPT_TOKENS), mel.to(self.device), embedding.to(self.device)

    def paged(self, pages: int, storage: torch.dtype, compute: torch.dtype, max_slots: int) -> PagedFlow:
        page_bytes = PagedFlow.page_bytes_of(self.flow, storage, compute)
        pool_bytes = int(self.args.pool_gib * 2**30) or (pages + 2) * page_bytes
        return PagedFlow(
            self.flow, pool_bytes=pool_bytes, storage=storage, compute=compute, max_slots=max_slots
        )

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def ms(self, work: Callable[[], object]) -> float:
        self.synchronize()
        began_s = time.perf_counter()
        work()
        self.synchronize()
        return 1e3 * (time.perf_counter() - began_s)

    @torch.inference_mode()
    def kernels(self) -> None:
        """Triton against plain torch."""
        from studio.bench.flow_kernels import differences

        config = self.flow.config
        sizes = (config.estimator_heads, config.estimator_head_dim)
        for compute, storage in (("float32", "float32"), (self.compute_name, self.args.storage)):
            found = differences(self.device, TYPES[compute], TYPES[storage], *sizes)
            self.tell(
                "kernels",
                compute=compute,
                storage=storage,
                **{name: round(e, 8) for name, e in found.items()},
            )

    def steps(self) -> None:
        """A step of so many streams at 5 s of prompt and 1 to 4 s of speech: whole, by stage, and without graphs."""
        slots = [int(n) for n in self.args.slots.split(",")]
        growing = [int(n) for n in self.args.growth.split(",") if n] if "growth" not in self.args.skip else []
        pages = max(8 + (1 + TIMED) * max(slots), 8 + self.args.seconds * max(growing, default=0))
        paged = self.paged(pages, self.storage, self.compute, max(slots))
        warm_ms = self.ms(paged.warm_up)
        types = {"storage": self.args.storage, "compute": self.compute_name}
        self.tell("warm-up", **types, ms=round(warm_ms), graphs=len(paged.graphs), page_bytes=paged.page_bytes,
                  gpu_bytes=self._gpu_bytes(), pool_bytes=paged.page_bytes * paged.pool.pages)  # fmt: skip
        tokens, mel, embedding = self.voice()
        prompt = paged.prepare_prompt(tokens, mel, embedding, tail_tokens=LOOKAHEAD_TOKENS)
        if "steps" not in self.args.skip:
            for count in slots:
                self.tell("step", slots=count, **types, **self._step_times(paged, prompt, count))
        for streams in growing:
            self.tell("growth", streams=streams, **types, **self._growth(paged, prompt, streams))

    def _gpu_bytes(self) -> int:
        return torch.cuda.memory_reserved() if self.device.type == "cuda" else 0

    def _step_times(self, paged: PagedFlow, prompt: PagedPrompt, count: int) -> dict[str, float]:
        whole, host = [], []
        for _ in range(self.args.repeat):
            states = [paged.open(prompt) for _ in range(count)]
            for number in range(1 + TIMED):
                new = [self.tokens(BLOCK_TOKENS)] * count

                def step(states: list = states, new: list = new) -> None:
                    began_s = time.perf_counter()
                    paged.step_packed(states, new, [False] * len(states))
                    host.append(1e3 * (time.perf_counter() - began_s))

                took = self.ms(step)
                if number:
                    whole.append(took)
            for state in states:
                state.release()
        times = {"ms": statistics.median(whole), "ms_most": max(whole), "host_ms": statistics.median(host)}
        times |= self._host_calls(paged, prompt, count)
        for name, work in paged.stages(count, pages=16).items():
            times[f"{name}_ms"] = statistics.median([self.ms(work) for _ in range(self.args.repeat)])
        if paged.graphs.replaying:
            paged.graphs.replaying = False
            eager = [self.ms(work) for _ in range(2) for work in paged.stages(count, pages=16).values()]
            times["eager_ms"] = sum(eager[2:])
            paged.graphs.replaying = True
        return {name: round(value, 2) for name, value in times.items()}

    def _host_calls(self, paged: PagedFlow, prompt: PagedPrompt, count: int) -> dict[str, float]:
        """Of a step, how long the host is in each call that a busy device may hold up: the copy of the pack's records
        and the launch of each graph. What is left of host_ms is Python."""
        spent: defaultdict[str, list[float]] = defaultdict(list)

        def timed(name: str, work: Callable[..., None], *args: Any) -> None:
            began_s = time.perf_counter()
            work(*args)
            spent[f"host_{name}_ms"].append(1e3 * (time.perf_counter() - began_s))

        run, load = paged.graphs.run, paged._slots.load
        with (
            mock.patch.object(paged.graphs, "run", lambda key, work: timed(f"launch_{key[0]}", run, key, work)),
            mock.patch.object(paged._slots, "load", partial(timed, "records", load)),
        ):
            for _ in range(self.args.repeat):
                states = [paged.open(prompt) for _ in range(count)]
                new = [self.tokens(BLOCK_TOKENS + LOOKAHEAD_TOKENS)] * count
                self.ms(lambda: paged.step_packed(states, new, [False] * len(states)))  # noqa: B023
                for state in states:
                    state.release()
        return {name: statistics.median(ms) for name, ms in spent.items()}

    def _growth(self, paged: PagedFlow, prompt: PagedPrompt, streams: int) -> dict[str, Any]:
        states = [paged.open(prompt) for _ in range(streams)]
        times = []
        for _ in range(self.args.seconds):
            new = [self.tokens(BLOCK_TOKENS)] * streams
            times.append(self.ms(lambda: paged.step_packed(states, new, [False] * streams)))  # noqa: B023
        for state in states:
            state.release()
        edge = max(1, len(times) // 10)
        first, last = (statistics.median(part) for part in (times[1 : edge + 2], times[-edge:]))
        by_second = {str(n): round(ms, 2) for n, ms in enumerate(times, 1) if n % 5 == 0 or n == 2}
        return {
            "first_ms": round(first, 2),
            "last_ms": round(last, 2),
            "ratio": round(last / first, 3),
            "ms": by_second,
        }

    def snr(self) -> None:
        """Each type against a whole solve in float32, and a row in a full pack against the row alone."""
        tokens, mel, embedding = self.voice()
        spoken = self.tokens(100)
        whole = self.flow.synthesize(spoken.to(self.device), tokens.to(self.device), mel, embedding)
        cases = [("float32", "float32"), ("float32", "bfloat16"), ("float32", "float16"), ("float32", "fp8"),
                 ("bfloat16", "bfloat16"), ("bfloat16", "fp8"), ("float16", "float16"), ("float16", "fp8")]  # fmt: skip
        for compute, storage in cases:
            gc.collect()
            paged = self.paged(12 + 6 * PACKED, TYPES[storage], TYPES[compute], PACKED)
            prompt = paged.prepare_prompt(tokens, mel, embedding, tail_tokens=LOOKAHEAD_TOKENS)
            alone = self._spoken(paged, prompt, [spoken])[0]
            others = [self.tokens(100) for _ in range(PACKED - 1)]
            together = self._spoken(paged, prompt, [*others, spoken])[-1]
            self.tell("snr", compute=compute, storage=storage, page_bytes=paged.page_bytes,
                      snr_db=round(snr_db(alone, whole), 1), largest_error=(alone - whole).abs().max().item(),
                      batched_snr_db=round(snr_db(together, alone), 1),
                      batched_largest_difference=(together - alone).abs().max().item())  # fmt: skip
            prompt.release()
            del paged, prompt

    def _spoken(self, paged: PagedFlow, prompt: PagedPrompt, rows: list[Tensor]) -> list[Tensor]:
        """Mel of each row, given in two hops."""
        states = [paged.open(prompt) for _ in rows]
        first = paged.step(states, [row[:28] for row in rows], [False] * len(rows))
        rest = paged.step(states, [row[28:] for row in rows], [True] * len(rows))
        return [torch.cat(parts, dim=1) for parts in zip(first, rest, strict=True)]


def snr_db(got: Tensor, expected: Tensor) -> float:
    """How far the error lies below what was expected; 200 for none."""
    error = (got - expected).double().square().sum()
    return 200.0 if not error else 10 * torch.log10(expected.double().square().sum() / error).item()


def main() -> None:
    args = arguments()
    bench = Bench(args)
    if args.kernels or bench.device.type == "cuda":
        bench.kernels()
    if not {"steps", "growth"} <= set(args.skip.split(",")):
        bench.steps()
        gc.collect()
        if bench.device.type == "cuda":
            torch.cuda.empty_cache()
    if "snr" not in args.skip:
        bench.snr()


if __name__ == "__main__":
    main()
