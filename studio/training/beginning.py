"""What every trainer is told on its command line, and does first. How it steps is `stepping.py`."""

from __future__ import annotations

import argparse

import torch

from studio.training.stepping import run_began_s


def add_common(
    parser: argparse.ArgumentParser,
    *,
    name: str,
    minutes: float,
    report_s: float,
    seed: int,
    counted: str = "wall time in all, the start included",
) -> None:
    """Name of its files, budget, device, reports and seed, with the trainer's own defaults; what its minutes count."""
    parser.add_argument("--name", default=name)
    parser.add_argument("--minutes", type=float, default=minutes, help=counted)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--max-steps", type=int, default=1_000_000)
    parser.add_argument("--report-s", type=float, default=report_s)
    parser.add_argument("--seed", type=int, default=seed)


def begin(args: argparse.Namespace) -> float:
    """Seed, device and precision of a trainer whose shapes never change; gives when its run began."""
    torch.manual_seed(args.seed)
    if args.device != "cpu":
        torch.cuda.set_device(args.device)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    return run_began_s()
