"""Zip files: opened without parsing an endless directory, written while they are sent. Judges nothing in them."""

from __future__ import annotations

import lzma
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from typing import IO, Any

from studio.errors import StudioError

BROKEN = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, ValueError, NotImplementedError, RuntimeError,
)  # fmt: skip
"""What reading a damaged or foreign zip file may raise, by the place of the damage."""
MAX_DIRECTORY_BYTES = 1_000_000
"""What a zip file says of its entries, which is parsed whole before any of it can be judged."""


def open_zip(file: IO[bytes], too_many: StudioError) -> zipfile.ZipFile:
    """Raises: too_many, before much is parsed; what is in BROKEN."""
    zipfile.ZipFile(_Opening(file, too_many)).close()
    return zipfile.ZipFile(file)


class _Opening:
    """A file of which no more is read than opening a zip file of a directory of that size takes."""

    def __init__(self, file: IO[bytes], too_many: StudioError) -> None:
        self._file, self._too_many = file, too_many
        self._left_bytes = MAX_DIRECTORY_BYTES

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size if 0 <= size <= self._left_bytes else self._left_bytes + 1)
        self._left_bytes -= len(data)
        if self._left_bytes < 0:
            raise self._too_many
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def streamed_zip(entries: Iterable[tuple[str, bytes]]) -> Iterator[bytes]:
    """A zip file of names and contents, piece by piece: no more than one entry of it is ever in memory."""
    sink = _Sink()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:  # type: ignore[call-overload]
        for name, content in entries:
            archive.writestr(name, content)
            yield sink.taken()
    yield sink.taken()


class _Sink:
    """A file that can be written to and nothing else; zipfile then looks back at nothing that it wrote."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._pieces.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        return None

    def taken(self) -> bytes:
        """What was written since the last time."""
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)
