"""Read a checkpoint file and load it into a module, name by name and shape by shape.

Knows files and tensors only; what the tensors mean is the business of each model's folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn


class WeightsError(Exception):
    """A file of weights cannot be read, or its tensors do not fit the model; workers tell it as a CheckpointError."""


def read_tensors(path: str | Path) -> dict[str, Tensor]:
    """Read every tensor of a checkpoint file, half precision widened to float32.

    Args:    path: a `.safetensors` file, or a `.pt` file that holds one flat dictionary of tensors.
    Returns: tensors on the CPU by the names in the file; floating ones are float32.
    Raises:  WeightsError if the file is absent, unreadable, or holds anything but tensors.
    """
    path = Path(path)
    if not path.is_file():
        raise WeightsError(f"{path}: no such checkpoint file")
    try:
        stored = _read_safetensors(path) if path.suffix == ".safetensors" else _read_pickled(path)
    except WeightsError:
        raise
    except Exception as error:  # torch and safetensors raise many unrelated types for a damaged file
        raise WeightsError(f"{path}: cannot be read as a checkpoint ({error})") from error
    return {name: _widened(tensor) for name, tensor in stored.items()}


def load_strictly(module: nn.Module, tensors: Mapping[str, Tensor], source: str) -> None:
    """Copy tensors into a module; every name and shape must fit, in both directions.

    Args:    module: what is filled; its parameters keep their memory layout, device and dtype.
             tensors: by the module's own names.
             source: where the tensors come from, for the message.
    Raises:  WeightsError that names the first key (in alphabetical order) that does not fit;
             the module is then untouched.
    """
    wanted = module.state_dict()
    for name in sorted(wanted.keys() | tensors.keys()):
        if name not in tensors:
            raise WeightsError(f"{source}: {name} is missing, shape {list(wanted[name].shape)} expected")
        if name not in wanted:
            raise WeightsError(f"{source}: {name} {list(tensors[name].shape)} is not known to the model")
        if tensors[name].shape != wanted[name].shape:
            found, expected = list(tensors[name].shape), list(wanted[name].shape)
            raise WeightsError(f"{source}: {name} has shape {found}, {expected} expected")
    with torch.no_grad():
        for name, target in wanted.items():
            target.copy_(tensors[name])


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    return load_file(path, device="cpu")


def _read_pickled(path: Path) -> dict[str, Tensor]:
    # weights_only keeps a downloaded file from running code of its own while it is read
    stored = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(stored, dict):
        raise WeightsError(f"{path}: holds a {type(stored).__name__}, not a dictionary of tensors")
    for name, tensor in stored.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise WeightsError(f"{path}: {name!r} is a {type(tensor).__name__}, not a tensor")
    return stored


def _widened(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor
