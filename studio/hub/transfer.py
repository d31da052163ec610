"""One file over HTTP into one on disk: continued where it broke, verified by its hash, renamed when it is whole."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import httpx

from studio.errors import HubError
from studio.hub.listing import RemoteFile

CHUNK_BYTES = 1 << 20
Received = Callable[[int], None]
"""Told how many bytes more are on disk; fewer, where a part had to be thrown away."""


class TryAgain(Exception):
    """The hub or the way to it failed in a manner that passes; wait_s: how long the hub asks to wait."""

    def __init__(self, reason: str, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


class WrongContent(TryAgain):
    """All bytes came and they are not the file's; another try begins from nothing."""


def part_of(target: Path) -> Path:
    """Where a file lies until it is whole."""
    return target.with_name(target.name + ".part")


def size_of(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


async def transfer(
    client: httpx.AsyncClient, file: RemoteFile, url: str, target: Path, received: Received
) -> None:
    """Fetch from url what is not there yet, once.

    Raises: TryAgain for what passes, with what came so far kept; WrongContent, with nothing kept; HubError else.
    """
    part = part_of(target)
    if size_of(part) != file.size:
        try:
            await _receive(client, file, url, part, received)
        except httpx.RequestError as error:
            raise TryAgain(f"{file.path}: {type(error).__name__} {error}".rstrip()) from error
        except OSError as error:
            raise HubError("hub.disk", folder=part.parent, reason=error.strerror or error) from error
    if (have := size_of(part)) < file.size:
        raise TryAgain(f"{file.path}: {have} of {file.size} bytes came")
    if await asyncio.to_thread(file.hash_of, part) != file.hash:
        _discard(part, received)
        raise WrongContent(f"{file.path}: not what the hub lists")
    os.replace(part, target)


async def _receive(
    client: httpx.AsyncClient, file: RemoteFile, url: str, part: Path, received: Received
) -> None:
    """Append to the part from where it ends; begin anew where the server cannot continue."""
    have = size_of(part)
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    async with client.stream("GET", url, headers=headers) as reply:
        if reply.status_code == 416:
            _discard(part, received)
        check_status(reply)
        if have and not reply.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            _discard(part, received)
            have = 0
            if reply.status_code == 206:
                raise TryAgain(f"{file.path}: the hub sent another part than was asked for")
        part.parent.mkdir(parents=True, exist_ok=True)
        with part.open("ab") as out:
            async for chunk in reply.aiter_bytes(CHUNK_BYTES):
                out.write(chunk)
                received(len(chunk))
                have += len(chunk)
                if have > file.size:
                    break
    if have > file.size:
        _discard(part, received)
        raise WrongContent(f"{file.path}: longer than the hub lists")


def check_status(reply: httpx.Response) -> None:
    """Raises TryAgain for what passes (5xx, 408, 416, 429), HubError for what does not."""
    if reply.is_success:
        return
    host, status = reply.request.url.host, reply.status_code
    if status >= 500 or status in (408, 416, 429):
        wait = reply.headers.get("Retry-After", "")
        raise TryAgain(f"{host}: HTTP {status}", float(wait) if wait.isdigit() else None)
    raise HubError("hub.refused", host=host, status=status, path=reply.request.url.path)


def _discard(part: Path, received: Received) -> None:
    received(-size_of(part))
    part.unlink(missing_ok=True)
