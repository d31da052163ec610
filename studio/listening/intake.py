"""Uploaded files and zip archives to clips by sentence. A file's name only says which sentence; it never is a path."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from studio.archive import BROKEN, open_zip
from studio.audio.decode import ReferenceClip, decode_clip
from studio.errors import ClientError, InvalidRequest
from studio.listening.material import check_clip
from studio.listening.problems import TEXT_MAX_CHARS

MAX_FILES = 1000
MAX_FILE_BYTES = 20_000_000
MAX_TOTAL_BYTES = 200_000_000
MAX_TOTAL_S = 2 * 3600.0
"""Of all sound of an upload; small files may hold much of it."""
ITEM_MAX_CHARS = 60
TEXT_SUFFIX = ".txt"
_IGNORED = ("__MACOSX/", ".", "Thumbs.db")


@dataclass(frozen=True, slots=True, eq=False)
class Upload:
    """One sentence of an upload, whose sound is fit for a test. text: from a .txt of the same name, "" without one."""

    item: str
    file: NamedFile
    samples: int
    rate_hz: int
    text: str

    def clip(self) -> ReferenceClip:
        """The sound, read anew: all of an upload together would be more than 1 GB."""
        return read_clip(self.file)


@dataclass(frozen=True, slots=True, eq=False)
class NamedFile:
    """A file as it was sent or packed. name: with the folders in front of it."""

    name: str
    content: bytes


def unpacked(files: Iterable[tuple[str, bytes]]) -> list[NamedFile]:
    """The files, archives opened. Raises InvalidRequest for a broken archive, too many files or too many bytes."""
    found: list[NamedFile] = []
    left_bytes = MAX_TOTAL_BYTES
    for name, content in files:
        packed = _of_zip(name, content) if content[:4] == b"PK\x03\x04" else [NamedFile(name, content)]
        for file in packed:
            if _is_ignored(file.name):  # a system's own notes lie in folders too
                continue
            left_bytes -= len(file.content)
            if len(found) >= MAX_FILES or left_bytes < 0:
                raise _too_large()
            found.append(file)
    return found


def _too_large() -> InvalidRequest:
    return InvalidRequest(
        "listening.upload_large", param="files", files=MAX_FILES, megabytes=MAX_TOTAL_BYTES / 1e6
    )


def _of_zip(name: str, content: bytes) -> Iterator[NamedFile]:
    try:
        with open_zip(io.BytesIO(content), _too_large()) as archive:
            for entry in archive.infolist():
                if entry.is_dir() or _is_ignored(entry.filename):
                    continue
                with archive.open(entry) as packed:
                    data = packed.read(
                        MAX_FILE_BYTES + 1
                    )  # what the archive's list says of sizes may be wrong
                if len(data) > MAX_FILE_BYTES:
                    raise InvalidRequest(
                        "listening.file_large", param="files", file=entry.filename, limit=MAX_FILE_BYTES / 1e6
                    )
                yield NamedFile(entry.filename, data)
    except BROKEN:
        raise InvalidRequest("listening.zip_broken", param="files", file=name) from None


def _is_ignored(name: str) -> bool:
    return name.startswith(_IGNORED[0]) or PurePosixPath(name).name.startswith(_IGNORED[1:])


def item_of_name(name: str) -> str:
    """Which sentence a file is: its name without folders and ending."""
    stem = PurePosixPath(name.replace("\\", "/")).stem.strip()
    return "".join(sign for sign in stem if sign.isprintable())[:ITEM_MAX_CHARS] or "unnamed"


def read_clips(files: Iterable[NamedFile]) -> Iterator[ReferenceClip]:
    """The sound of files, one after the other. Raises InvalidRequest for a bad one, or once it is too much in all."""
    left_s = MAX_TOTAL_S
    for file in files:
        clip = read_clip(file)
        left_s -= clip.seconds
        if left_s < 0:
            raise InvalidRequest("listening.upload_long", param="files", minutes=MAX_TOTAL_S / 60)
        yield clip


def uploads(files: Iterable[NamedFile]) -> list[Upload]:
    """Every sound with its text, by sentence; each was read once, to see that it is fit.

    Raises: InvalidRequest that names the file, for one that is no sound, broken, silent, too short or too long, for
            two of one sentence, or for no sound at all.
    """
    [found] = read_sheaves([Sheaf.of(files)])
    return found


@dataclass(frozen=True, slots=True)
class Sheaf:
    """The files of one condition by sentence, none of them read yet."""

    sounds: Mapping[str, NamedFile]
    texts: Mapping[str, str]

    @classmethod
    def of(cls, files: Iterable[NamedFile]) -> Sheaf:
        """Raises InvalidRequest for two sounds of one sentence, or a text that is none."""
        texts: dict[str, str] = {}
        sounds: dict[str, NamedFile] = {}
        for file in files:
            item = item_of_name(file.name)
            if file.name.lower().endswith(TEXT_SUFFIX):
                texts[item] = _text(file)
            elif item in sounds:
                raise InvalidRequest("listening.file_twice", param="files", item=item)
            else:
                sounds[item] = file
        return cls(sounds, texts)


def read_sheaves(sheaves: Iterable[Sheaf]) -> list[list[Upload]]:
    """The sounds of each. Raises InvalidRequest as `uploads`; the limits are for all of them together."""
    sheaves = list(sheaves)
    if not any(sheaf.sounds for sheaf in sheaves):
        raise InvalidRequest("listening.upload_empty", param="files")
    clips = read_clips(file for sheaf in sheaves for file in sheaf.sounds.values())
    return [
        [_upload(item, file, next(clips), sheaf.texts.get(item, "")) for item, file in sheaf.sounds.items()]
        for sheaf in sheaves
    ]


def _upload(item: str, file: NamedFile, clip: ReferenceClip, text: str) -> Upload:
    return Upload(item, file, len(clip.samples), clip.sample_rate_hz, text)


def read_clip(file: NamedFile) -> ReferenceClip:
    """The sound of a file, fit for a test."""
    try:
        clip = decode_clip(file.content, MAX_FILE_BYTES)
    except ClientError as error:
        reason = error.message("en")
        raise InvalidRequest("listening.file_broken", param="files", file=file.name, reason=reason) from None
    check_clip(file.name, clip)
    return clip


def _text(file: NamedFile) -> str:
    try:
        text = " ".join(file.content.decode("utf-8-sig").split())
    except UnicodeDecodeError:
        raise InvalidRequest("listening.text_broken", param="files", file=file.name) from None
    if len(text) > TEXT_MAX_CHARS:
        raise InvalidRequest("listening.text_long", param="files", file=file.name, limit=TEXT_MAX_CHARS)
    return text
