"""A running average of a network's weights that a captured training step keeps up to date."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

HORIZON_SHARE = 0.1
"""The average spans about the last tenth of the steps so far: short runs are not held back by their start."""
LONGEST_STEPS = 2000.0


class RunningAverage:
    """`model`: a copy of `source` in evaluation mode whose parameters follow those of `source` slowly.

    `update` is device work only (call it inside the step); `plan` sets its pace from the host, before the step.
    """

    def __init__(
        self, source: nn.Module, horizon_share: float = HORIZON_SHARE, longest_steps: float = LONGEST_STEPS
    ) -> None:
        self.model = copy.deepcopy(source).eval().requires_grad_(False)
        self.averages: list[Tensor] = [p.data for p in self.model.parameters()]
        self.sources: list[Tensor] = [p.data for p in source.parameters()]
        self.fresh = torch.ones((), device=self.sources[0].device)
        self.horizon_share, self.longest_steps = horizon_share, longest_steps

    def plan(self, steps: int) -> None:
        """steps: how many were done; the newest weights get one part in the share of them that is spanned."""
        self.fresh.fill_(1.0 / max(1.0, min(self.longest_steps, self.horizon_share * steps)))

    def update(self) -> None:
        change = torch._foreach_sub(self.sources, self.averages)
        torch._foreach_mul_(change, self.fresh)
        torch._foreach_add_(self.averages, change)
