"""Reads .pt files with weights only, so that no code in them is run, and says plainly why one cannot be read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

from studio.errors import CheckpointError


def read_pickle(path: Path) -> Any:
    """What torch.save wrote, on the CPU; the values of tensors are read from disk as they are used.

    Raises: CheckpointError if the file holds anything but plain values and tensors, or is damaged.
    """
    try:
        return _load(path)
    except Exception as error:  # anything from EOFError to UnpicklingError, by the place of the damage
        # Torch's own words advise to switch its protection off.
        if code := re.search(r"GLOBAL ([\w.]+)", str(error)):
            raise CheckpointError("checkpoint.code", file=path.name, folder=path.parent, code=code[1]) from error
        raise CheckpointError("checkpoint.damaged", file=path.name, folder=path.parent) from error


def _load(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except RuntimeError as error:
        if "mmap" not in str(error):
            raise
        # Files of the old, unzipped form cannot be mapped; they are read whole.
        return torch.load(path, map_location="cpu", weights_only=True)
