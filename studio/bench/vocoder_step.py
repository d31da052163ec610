"""`python -m studio.bench.vocoder_step`: milliseconds of a vocoder's step by rows, as a stream and in windows.

Beside them what float16 and TF32 cost in SNR, and memory; on a GPU windows run both eagerly and as graphs. Weights are
drawn or a checkpoint's: speed does not depend on them, SNR does. A row of a step is 50 new mel frames (one second) of a
stream. Each row of figures is one JSON line, printed and kept at once.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from studio.bench.conditions import conditions
from studio.bench.figures import table
from studio.bench.rows import Out, Row
from studio.bench.step_clock import seconds_a_step, wait
from studio.checkpoint import weight_file
from studio.models.hift import Hift, HiftConfig, load_hift
from studio.models.hift.window import LARGEST_LAUNCH, WindowedHift
from studio.models.hift.window_geometry import HOP_FRAMES
from studio.models.weights import read_tensors

SIZES = {"full": HiftConfig(), "mini": HiftConfig(base_channels=32, f0_channels=32)}
VOICED_HZ = 180.0
COMPARED_HOPS = 6
HOP_S = 1.0


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m studio.bench.vocoder_step", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", default="full", choices=SIZES)
    parser.add_argument(
        "--model-dir", type=Path, help="a checkpoint, for its vocoder in place of a drawn one"
    )
    parser.add_argument("--rows", default="1,8,32,128", help="streams at once")
    parser.add_argument("--steps", type=int, default=10, help="timed steps of each row of figures")
    parser.add_argument("--precision", default="float16,tf32,float32", help="of the decoder's convolutions")
    parser.add_argument("--f0", default="float64", choices=("float64", "float32"))
    parser.add_argument("--largest", type=int, default=LARGEST_LAUNCH, help="rows computed at once")
    parser.add_argument("--no-stream", action="store_true", help="leave the exact stream's times out")
    parser.add_argument(
        "--profile", type=Path, help="file for a table of the kernels of one step of the most rows"
    )
    parser.add_argument("--commit", default="", help="where no checkout is")
    parser.add_argument("--out", type=Path, help="file to which JSON lines are appended")
    args = parser.parse_args(argv)
    args.rows = [int(n) for n in args.rows.split(",")]
    return args


def vocoder_of(args: argparse.Namespace) -> Hift:
    """The checkpoint's vocoder, or one of drawn weights whose pitch is that of a voice."""
    if args.model_dir is not None:
        model = load_hift(read_tensors(weight_file(args.model_dir, "hift")))
        if not isinstance(model, Hift):
            raise SystemExit("CosyVoice3's vocoder does not run in windows")
    else:
        torch.manual_seed(0)
        model = Hift(SIZES[args.size])
        with torch.no_grad():
            model.f0_predictor.classifier.bias.fill_(VOICED_HZ)
    return model.to(args.device).eval().fold_weight_norm()


class Timed:
    """Steps of a vocoder with so many rows, on one device."""

    def __init__(self, vocoder: Hift | WindowedHift, rows: int, device: str) -> None:
        self._vocoder, self._device = vocoder, device
        self._states: list[Any] = [vocoder.open(seed) for seed in range(rows)]
        self._frames = torch.randn(rows, HOP_FRAMES, 80, device=device)

    def step(self) -> None:
        rows = len(self._states)
        if isinstance(self._vocoder, WindowedHift):
            self._vocoder.step_packed(
                self._states, self._frames.flatten(0, 1), [HOP_FRAMES] * rows, [False] * rows
            )
        else:
            self._vocoder.step(self._states, list(self._frames.transpose(1, 2)), [False] * rows)

    def close(self) -> None:
        if isinstance(self._vocoder, WindowedHift):
            for state in self._states:
                self._vocoder.release(state)

    def milliseconds(self, steps: int) -> tuple[float, float]:
        """Of a step until the device is done, and until the host is free again."""
        # The first has fewer samples to make.
        device_s, host_s = seconds_a_step(self.step, self._device, steps, unmeasured=3)
        return device_s * 1e3, host_s * 1e3


def timed(vocoder: Hift | WindowedHift, rows: int, args: argparse.Namespace) -> tuple[float, float]:
    steps = Timed(vocoder, rows, args.device)
    try:
        return steps.milliseconds(args.steps)
    finally:
        steps.close()


def spoken(vocoder: Hift | WindowedHift, beside: int, device: str) -> Tensor:
    """A stream of a few seconds beside others."""
    drawing = torch.Generator().manual_seed(1)
    mel = 2 * torch.randn(80, COMPARED_HOPS * HOP_FRAMES, generator=drawing).to(device) - 5
    states: list[Any] = [vocoder.open(seed) for seed in range(1 + beside)]
    given = []
    for number, piece in enumerate(mel.split(HOP_FRAMES, 1), 1):
        waves = vocoder.step(states, [piece] * len(states), [number == COMPARED_HOPS] * len(states))
        given.append(waves[0])
    if isinstance(vocoder, WindowedHift):
        for state in states:
            vocoder.release(state)
    return torch.cat(given).double().cpu()


def snr_db(given: Tensor, wanted: Tensor) -> float:
    return float(10 * torch.log10(wanted.square().sum() / (given - wanted).square().sum().clamp_min(1e-30)))


def compared(vocoder: WindowedHift, exact: Tensor, largest: int, device: str) -> Row:
    """How far one stream lies from the exact stream in full float32, and from itself beside others."""
    alone = spoken(vocoder, 0, device)
    neighbours = (spoken(vocoder, min(largest, 32) - 1, device) - alone).abs().max()
    return {
        "snr_db": round(snr_db(alone, exact), 1),
        "off_exact": float((alone - exact).abs().max()),
        "off_beside_others": float(neighbours),
    }


def in_full(model: Hift, device: str) -> Tensor:
    """The exact stream of today without TF32."""
    allowed = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        return spoken(model, 0, device)
    finally:
        torch.backends.cudnn.allow_tf32 = allowed


def run(args: argparse.Namespace, out: Out) -> list[Row]:
    model, largest = vocoder_of(args), max(args.rows)
    exact = in_full(model, args.device)
    for rows in () if args.no_stream else args.rows:
        step, host = timed(model, rows, args)
        out.add(
            {
                "path": "stream",
                "rows": rows,
                "step_ms": round(step, 3),
                "host_ms": round(host, 3),
                "audio_s_per_s": round(rows * HOP_S / step * 1e3, 1),
            }
        )
    for precision in args.precision.split(","):
        vocoder = WindowedHift(
            model,
            max_rows=max(largest, 32),
            precision=precision,
            f0_dtype=getattr(torch, args.f0),
            largest_launch=args.largest,
        )
        ways: list[tuple[str, Callable[[], None]]] = [("eager", lambda: None)]
        if args.device != "cpu":
            ways.append(("graph", vocoder.warm_up))
        for way, prepare in ways:
            began_s = time.perf_counter()
            prepare()
            wait(args.device)
            about = {"path": way, "convolutions": precision, "f0": args.f0, "largest_launch": args.largest}
            out.add(
                about
                | {"prepared_s": round(time.perf_counter() - began_s, 2), "pool_bytes": vocoder.pool_bytes}
                | compared(vocoder, exact, largest, args.device)
            )
            for rows in args.rows:
                _forget_peak(args.device)
                step, host = timed(vocoder, rows, args)
                out.add(
                    about
                    | {
                        "rows": rows,
                        "step_ms": round(step, 3),
                        "host_ms": round(host, 3),
                        "audio_s_per_s": round(rows * HOP_S / step * 1e3, 1),
                        **_memory(args.device),
                    }
                )
        if args.profile is not None:
            _profile(vocoder, largest, args)
        del vocoder
    return out.rows


def _profile(vocoder: WindowedHift, rows: int, args: argparse.Namespace) -> None:
    activity = torch.profiler.ProfilerActivity
    steps = Timed(vocoder, rows, args.device)
    steps.milliseconds(1)
    with torch.profiler.profile(
        activities=[activity.CPU] + [activity.CUDA] * (args.device != "cpu")
    ) as profile:
        steps.step()
        wait(args.device)
    steps.close()
    order = "self_cpu_time_total" if args.device == "cpu" else "self_cuda_time_total"
    with args.profile.open("a", encoding="utf-8") as file:
        file.write(profile.key_averages().table(sort_by=order, row_limit=30, max_name_column_width=90) + "\n")


def _forget_peak(device: str) -> None:
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()


def _memory(device: str) -> Row:
    """Peak of what torch had in use, and all that it holds, graphs among it."""
    if device == "cpu":
        return {}
    return {"peak_bytes": torch.cuda.max_memory_allocated(), "held_bytes": torch.cuda.memory_reserved()}


def main() -> None:
    args = arguments()
    about = conditions(commit_given=args.commit) | {
        "size": args.size if args.model_dir is None else args.model_dir.name,
        "device": args.device,
    }
    rows = run(args, Out(args.out, about))
    print(table([row for row in rows if "rows" in row]))


if __name__ == "__main__":
    main()
