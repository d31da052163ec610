"""A zip file from anybody, read in bounds: known names only, each once, no more bytes than allowed. Writes no file."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from types import TracebackType
from typing import IO

from studio.archive import BROKEN, open_zip
from studio.errors import InvalidRequest, RequestTooLarge

MAX_ENTRIES = 5000
_PLAIN = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1


def too_many_files() -> RequestTooLarge:
    """For `open_zip`."""
    return RequestTooLarge("bundle.many_files", param="bundle")


class Unpacking:
    """An opened zip file; its names never become paths.

    Args:    allowed: a pattern for each kind of entry, and the bytes that one may have; max_bytes: of all together.
    Raises:  InvalidRequest, RequestTooLarge: before anything is unpacked.
    """

    def __init__(self, file: IO[bytes], allowed: Mapping[re.Pattern[str], int], max_bytes: int) -> None:
        try:
            self._zip = open_zip(file, too_many_files())
        except BROKEN:
            raise InvalidRequest("bundle.not_zip", param="bundle") from None
        entries = self._zip.infolist()
        if len(entries) > MAX_ENTRIES or sum(entry.file_size for entry in entries) > max_bytes:
            raise RequestTooLarge("bundle.too_large", param="bundle", limit=max_bytes / 1e6)
        self._limits: dict[str, int] = {}
        for entry in entries:
            kinds = [limit for kind, limit in allowed.items() if kind.fullmatch(entry.filename)]
            if not kinds or entry.filename in self._limits:
                raise InvalidRequest("bundle.foreign", param="bundle", file=entry.filename[:80])
            if entry.compress_type not in _PLAIN or entry.flag_bits & _ENCRYPTED:
                raise InvalidRequest("bundle.foreign", param="bundle", file=entry.filename[:80])
            if entry.file_size > kinds[0]:
                raise RequestTooLarge(
                    "bundle.entry_large", param="bundle", file=entry.filename, limit=kinds[0] / 1e6
                )
            self._limits[entry.filename] = kinds[0]

    def find(self, name: str) -> bytes | None:
        """As `read`, or None where there is no such entry."""
        return self.read(name) if name in self._limits else None

    def read(self, name: str) -> bytes:
        """One entry, whole. Raises InvalidRequest if it is missing, damaged, or longer than it said."""
        if name not in self._limits:
            raise InvalidRequest("bundle.missing", param="bundle", file=name)
        try:
            with self._zip.open(name) as entry:
                data = entry.read(self._limits[name] + 1)
                rest = entry.read(1)
        except BROKEN:
            raise InvalidRequest("bundle.broken", param="bundle", file=name) from None
        if rest or len(data) > self._limits[name]:
            raise InvalidRequest("bundle.broken", param="bundle", file=name)
        return data

    def __enter__(self) -> Unpacking:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._zip.close()
