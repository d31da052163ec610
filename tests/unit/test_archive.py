"""Zip files from anybody are opened in bounds, and ours are written while they are sent."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Iterator

import pytest

from studio.archive import MAX_DIRECTORY_BYTES, open_zip, streamed_zip
from studio.errors import InvalidRequest, RequestTooLarge


def zip_of_empty_entries(count: int) -> bytes:
    directory = (b"PK\1\2" + bytes(42)) * count
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count, count, len(directory), 0, 0)
    return directory + end


def test_zip_of_a_directory_without_end_is_refused_before_it_is_parsed() -> None:
    many = MAX_DIRECTORY_BYTES // 46 + 1
    with pytest.raises(RequestTooLarge):
        open_zip(io.BytesIO(zip_of_empty_entries(many)), RequestTooLarge("bundle.many_files"))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a", b"x")
    assert open_zip(packed, InvalidRequest("bundle.many_files")).read("a") == b"x"


def test_zip_is_sent_while_its_entries_are_made() -> None:
    made: list[str] = []

    def entries() -> Iterator[tuple[str, bytes]]:
        for name in ("one", "two", "three"):
            made.append(name)
            yield f"folder/{name}.txt", name.encode() * 1000

    pieces = streamed_zip(entries())
    first = next(pieces)
    assert made == ["one"] and first.startswith(b"PK\3\4")
    with zipfile.ZipFile(io.BytesIO(first + b"".join(pieces))) as archive:
        assert archive.testzip() is None
        assert {name: len(archive.read(name)) for name in archive.namelist()} == {
            "folder/one.txt": 3000, "folder/two.txt": 3000, "folder/three.txt": 5000,
        }  # fmt: skip


def test_zip_whose_entry_cannot_be_made_ends_without_a_directory() -> None:
    def entries() -> Iterator[tuple[str, bytes]]:
        yield "one", b"x"
        raise OSError("the clip is gone")

    pieces = streamed_zip(entries())
    sent = next(pieces)
    with pytest.raises(OSError, match="clip is gone"):
        next(pieces)
    with pytest.raises(zipfile.BadZipFile):
        zipfile.ZipFile(io.BytesIO(sent))
