"""Reads checkpoint tensors one at a time, and writes safetensors piece by piece. Knows nothing of any model.

A full-size speech LM has 2.6 GB of weights; read lazily and written in pieces, the conversion needs little
memory.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from studio.errors import CheckpointError
from studio.models.pickle_file import read_pickle

_SAFETENSORS_NAMES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int32: "I32"}


@dataclass(frozen=True, slots=True)
class TensorFile:
    """Shapes of all tensors of a file, and a way to read one of them."""

    path: Path
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, torch.dtype]
    read: Callable[[str], torch.Tensor]


@contextmanager
def open_tensors(path: Path) -> Iterator[TensorFile]:
    """Open .safetensors, or .pt with weights only (no code in the pickle is run), without reading the values.

    Raises: CheckpointError if the file is missing, cut short, or holds anything but named tensors.
    """
    if not path.is_file():
        raise CheckpointError("checkpoint.missing_file", file=path.name, folder=path.parent)
    if path.suffix == ".safetensors":
        yield from _open_safetensors(path)
    else:
        yield _open_pickle(path)


def _open_safetensors(path: Path) -> Iterator[TensorFile]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as opened:
            shapes = {k: tuple(opened.get_slice(k).get_shape()) for k in opened.keys()}  # noqa: SIM118
            names = {v: k for k, v in _SAFETENSORS_NAMES.items()}
            dtypes = {k: names.get(opened.get_slice(k).get_dtype(), torch.int8) for k in shapes}
            yield TensorFile(path, shapes, dtypes, opened.get_tensor)
    except SafetensorError as error:
        raise CheckpointError("checkpoint.damaged", file=path.name, folder=path.parent) from error


def _open_pickle(path: Path) -> TensorFile:
    tensors = read_pickle(path)
    if not isinstance(tensors, dict) or not all(map(_is_named_tensor, tensors.items())):
        reason = "it is no table of named tensors"
        raise CheckpointError("checkpoint.misfit", file=path.name, reason=reason, folder=path.parent)
    shapes = {k: tuple(v.shape) for k, v in tensors.items()}
    return TensorFile(path, shapes, {k: v.dtype for k, v in tensors.items()}, tensors.__getitem__)


def _is_named_tensor(item: tuple[object, object]) -> bool:
    return isinstance(item[0], str) and isinstance(item[1], torch.Tensor)


@dataclass(frozen=True, slots=True)
class Piecewise:
    """One tensor to write: the names of the source tensors that it joins along the first axis."""

    name: str
    sources: tuple[str, ...]


def write_safetensors(path: Path, source: TensorFile, entries: Sequence[Piecewise]) -> None:
    """Write entries as one safetensors file; each keeps the dtype of its last source tensor.

    The last source decides since a merged embedding is nearly all text rows, and those come last.
    """
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for entry in entries:
        dtype = source.dtypes[entry.sources[-1]]
        shape = list(source.shapes[entry.sources[0]])
        shape[0] = sum(source.shapes[s][0] for s in entry.sources)
        size = dtype.itemsize
        for n in shape:
            size *= n
        header[entry.name] = {
            "dtype": _SAFETENSORS_NAMES[dtype],
            "shape": shape,
            "data_offsets": [offset, offset + size],
        }
        offset += size
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)  # the values that follow are aligned
    with path.open("wb") as out:
        out.write(struct.pack("<Q", len(head)))
        out.write(head)
        for entry in entries:
            dtype = source.dtypes[entry.sources[-1]]
            for name in entry.sources:
                values = source.read(name).to(dtype).contiguous()
                out.write(memoryview(values.view(torch.uint8).numpy().reshape(-1)))
