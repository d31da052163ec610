"""The frame of every trainer: a learning rate over a budget, logs, atomic checkpoints, and a step as one CUDA graph."""

from __future__ import annotations

import json
import logging
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

log = logging.getLogger(__name__)

GRAPH_WARMUP_STEPS = 5
_STARTED_S = time.monotonic()


@dataclass(frozen=True, slots=True)
class Schedule:
    """Learning rate over a budget of wall time or of steps, whichever ends first: linear warm-up, then a cosine.

    Bound by wall time a trainer ends inside its slot, however fast the machine turns out to be; bound by steps it
    learns the same on every machine. warmup_s counts against budget_s: it is a share of the progress, too.
    """

    began_s: float
    budget_s: float
    peak: float
    max_steps: int
    warmup_s: float = 6.0
    final_ratio: float = 0.02

    def progress(self, steps: int) -> float:
        """Spent share of the budget, 0..1 and beyond."""
        return max((time.monotonic() - self.began_s) / self.budget_s, steps / self.max_steps)

    def rate(self, steps: int) -> float:
        share, warm = self.progress(steps), self.warmup_s / self.budget_s
        if share < warm:
            return self.peak * (share / warm + 0.01) / 1.01
        share = min(1.0, (share - warm) / max(1e-6, 1.0 - warm))
        return self.peak * (self.final_ratio + (1 - self.final_ratio) * 0.5 * (1 + math.cos(math.pi * share)))

    def over(self, steps: int) -> bool:
        return self.progress(steps) >= 1.0


class RunLog:
    """Appends one JSON object a line to `folder/name.jsonl`; owned by one trainer."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{name}.jsonl"
        self.began_s = time.monotonic()

    def write(self, **values: object) -> None:
        line: dict[str, object] = {"t": round(time.monotonic() - self.began_s, 1)}
        line |= {
            key: float(f"{value:.5g}") if isinstance(value, float) else value for key, value in values.items()
        }
        with self.path.open("a", encoding="utf8") as out:
            out.write(json.dumps(line) + "\n")


def save_weights(path: Path, state: dict[str, Tensor], meta: Mapping[str, object] | None = None) -> None:
    """Write fp16 weights (integers kept) and a description, renamed into place so that a reader sees all or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = {
        key: (value.half() if value.is_floating_point() else value).detach().cpu().clone()
        for key, value in state.items()
    }
    partial = path.with_suffix(".partial")
    torch.save({"weights": half, "meta": dict(meta or {})}, partial)
    partial.rename(path)


def load_weights(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    saved = torch.load(path, map_location="cpu", weights_only=True)
    return {k: v.float() if v.is_floating_point() else v for k, v in saved["weights"].items()}, saved["meta"]


class Optimizer:
    """AdamW with a clipped gradient whose learning rate is a tensor, so that a captured step can be steered."""

    def __init__(
        self,
        model: nn.Module,
        peak: float,
        betas: tuple[float, float] = (0.9, 0.98),
        decay: float = 0.02,
        clip: float = 1.0,
    ) -> None:
        parameters = [p for p in model.parameters() if p.requires_grad]
        self.parameters, self.clip = parameters, clip
        self.rate = torch.tensor(peak, device=parameters[0].device)
        groups = [
            {"params": [p for p in parameters if p.ndim > 1], "weight_decay": decay},
            {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
        ]
        self.adam = torch.optim.AdamW(
            [g for g in groups if g["params"]],
            lr=self.rate,
            betas=betas,
            capturable=parameters[0].is_cuda,
            fused=True,
        )

    def set_rate(self, rate: float) -> None:
        self.rate.fill_(rate)

    def step(self, loss: Tensor) -> Tensor:
        """Backward, clip, update. A step whose gradient is not finite changes nothing. Gives the gradient's norm."""
        for parameter in self.parameters:
            parameter.grad = None
        loss.backward()
        return self.apply()

    def apply(self) -> Tensor:
        """Clip what gradients there are and update; for losses whose backward is done elsewhere."""
        used = [p.grad for p in self.parameters if p.grad is not None]
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(used)))
        torch._foreach_mul_(used, (self.clip / (norm + 1e-6)).clamp(max=1.0))
        self.adam.found_inf = (
            ~torch.isfinite(norm)
        ).float()  # the fused kernel leaves everything as it is at 1
        self.adam.step()
        return norm


class GraphedStep:
    """Calls `step()`; on a GPU the call is captured after a few eager ones and replayed, at no host cost a kernel.

    `step` must take its inputs from fixed tensors, draw its own randomness on the device, never read the device from
    the host, and give a dict of scalar tensors. If capture fails the process starts itself again without graphs, for a
    broken capture can leave the CUDA context unusable; `run_began_s` keeps its budget across that.
    """

    def __init__(self, step: Callable[[], dict[str, Tensor]], device: str, restart: bool = True) -> None:
        self.step, self.calls, self.restart = step, 0, restart
        self.graph: torch.cuda.CUDAGraph | None = None
        self.outputs: dict[str, Tensor] = {}
        if device.startswith("cuda"):
            torch.cuda.set_device(device)  # streams and captures belong to the current device
        self.enabled = device.startswith("cuda") and "nograph" not in sys._xoptions

    def __call__(self) -> dict[str, Tensor]:
        if self.graph is not None:
            self.graph.replay()
            return self.outputs
        self.calls += 1
        if not self.enabled or self.calls <= GRAPH_WARMUP_STEPS:
            return self._eager()
        try:
            self._capture()
        except Exception:
            log.exception("graph capture failed; starting again without graphs")
            if not self.restart:
                raise
            restart_without_graphs()
        return self()

    def _eager(self) -> dict[str, Tensor]:
        if not self.enabled:
            return self.step()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            outputs = self.step()
        torch.cuda.current_stream().wait_stream(side)
        return outputs

    def _capture(self) -> None:
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.outputs = self.step()
        torch.cuda.synchronize()
        self.graph = graph


def run_began_s() -> float:
    """When this run began on the monotonic clock, also after it has started itself again."""
    return float(sys._xoptions.get("began", _STARTED_S))


def restart_without_graphs() -> None:
    """Replace this process by the same module and arguments, eager; never returns."""
    specification = sys.modules["__main__"].__spec__
    assert specification is not None, "trainers run as modules"
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(
        sys.executable,
        [
            sys.executable,
            "-X",
            "nograph",
            "-X",
            f"began={run_began_s()}",
            "-m",
            specification.name,
            *sys.argv[1:],
        ],
    )


@contextmanager
def varying_shapes() -> Iterator[None]:
    """For validation on whole clips: cuDNN would time its algorithms anew for every length it meets."""
    chosen = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = chosen


class Meter:
    """Running means of a step's scalars, gathered on the device and read only when logged."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.count = 0

    def add(self, values: dict[str, Tensor]) -> None:
        self.count += 1
        for key, value in values.items():
            value = value.detach().float()
            self.sums[key] = self.sums[key].add_(value) if key in self.sums else value.clone()

    def take(self) -> dict[str, float]:
        """Means since the last call; waits for the device."""
        means = {key: float(value) / max(1, self.count) for key, value in self.sums.items()}
        self.sums, self.count = {}, 0
        return means
