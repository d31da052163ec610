"""Read a checkpoint file and load it into a module, name by name and shape by shape.

Knows files and tensors only; what the tensors mean is the business of each model's folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from studio.models.tensor_files import open_tensors


class WeightsError(Exception):
    """Tensors do not fit the model, "FILE: NAME ..."; workers tell it as a CheckpointError."""


def read_tensors(path: str | Path) -> dict[str, Tensor]:
    """Read every tensor of a checkpoint file, half precision widened to float32.

    Args:    path: a `.safetensors` file, or a `.pt` file that holds one flat dictionary of tensors.
    Returns: tensors on the CPU by the names in the file; floating ones are float32.
    Raises:  CheckpointError if the file is absent, holds code, is damaged, or holds anything but tensors.
    """
    path = Path(path)
    with open_tensors(path) as source:
        return {name: _widened(source.read(name)) for name in source.shapes}


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


def _widened(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor
