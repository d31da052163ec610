"""Whether a GPU still answers. After a fault (an illegal address, a lost device) a process never gets it back."""

from __future__ import annotations

import torch

from studio.backends.serve import engine_dead


def raise_if_lost(error: Exception) -> None:
    """Raises EngineDead, which ends the worker, if the error is a fault of the GPU or the GPU is silent after it."""
    if not isinstance(error, torch.AcceleratorError):
        if not torch.cuda.is_initialized():
            return
        try:
            torch.cuda.synchronize()
            return
        except RuntimeError:
            pass
    raise engine_dead() from error
