"""The ordinary differential equation of the flow: times, fixed start noise, guided Euler steps."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from studio.models.flow.sizes import FLOW_STEPS, GUIDANCE, MEL_BINS, NOISE_FRAMES

Velocity = Callable[[Tensor, int], Tensor]


def flow_times(steps: int = FLOW_STEPS) -> Tensor:
    """Flow times from 0 to 1 by a cosine, dense near 0: float32 [steps + 1]."""
    return 1 - torch.cos(torch.linspace(0, 1, steps + 1) * 0.5 * math.pi)


@functools.cache
def start_noise(device: torch.device | str = "cpu") -> Tensor:
    """The noise every solve starts from, by frame from the first prompt frame on: float32 [15000, 80].

    Read only. A frame starts from the same values whichever call computes it. Drawn from a generator of its
    own, channels first as the reference draws it; a shorter draw would give other numbers.
    """
    generator = torch.Generator(device="cpu").manual_seed(0)
    return torch.randn(1, MEL_BINS, NOISE_FRAMES, generator=generator)[0].T.contiguous().to(device)


def guidance_weights(guidance: float) -> tuple[float, float]:
    """Of the velocity with conditions, and of that without any, which is taken away."""
    return 1 + guidance, guidance


def solve(
    velocity: Velocity, noise: Tensor, steps: int = FLOW_STEPS, guidance: float | Tensor = GUIDANCE
) -> Tensor:
    """Integrate from noise at time 0 to mel at time 1.

    Args:    velocity: (x [N, 80], step) -> [2, N, 80], with conditions and without any.
             noise: [N, 80]. guidance: of all frames, or float32 [N, 2], the `guidance_weights` of each.
    Returns: [N, 80]
    """
    times = flow_times(steps).tolist()
    given: Sequence[float] | Sequence[Tensor]
    given = guidance.split(1, dim=1) if isinstance(guidance, Tensor) else guidance_weights(guidance)
    x = noise
    for step in range(steps):
        conditioned, free = velocity(x, step).unbind(0)
        guided = given[0] * conditioned - given[1] * free
        x = x + (times[step + 1] - times[step]) * guided
    return x
