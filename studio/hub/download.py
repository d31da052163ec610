"""A checkpoint from its hub into a folder: space checked, revision pinned, taken up again where it broke.

What the hub listed is kept beside the files, so that later starts ask nobody and fetch the very same.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeVar

import httpx

from studio import __version__
from studio.errors import CheckpointError, HubError
from studio.hub.listing import RemoteFile, Repository
from studio.hub.transfer import TryAgain, WrongContent, check_status, part_of, size_of, transfer
from studio.protocols import Clock

MANIFEST = "download.json"
PATIENCE = 8
"""Failures in a row, without a byte between them, after which it is given up: a minute and a half."""
MOST_WAIT_S = 30.0
SPARE_BYTES = 1 << 28
TIMEOUT = httpx.Timeout(20.0, read=60.0)

T = TypeVar("T")


def read_manifest(folder: Path) -> tuple[RemoteFile, ...]:
    """What was listed when this folder was fetched; () where nothing was. Raises CheckpointError if it is damaged."""
    try:
        kept = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return tuple(RemoteFile(**file) for file in kept["files"])
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError("checkpoint.manifest", file=MANIFEST, folder=folder) from error


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a download stands. trouble: what is being waited out; "" while bytes come."""

    done_bytes: int = 0
    total_bytes: int = 0
    file: str = ""
    trouble: str = ""
    started_s: float = 0.0
    had_bytes: int = 0

    @property
    def fraction(self) -> float:
        return self.done_bytes / self.total_bytes if self.total_bytes else 0.0


class Download:
    """One repository into its folder below `root`. Owner: one event loop."""

    def __init__(
        self,
        repository: Repository,
        root: Path,
        *,
        clock: Clock = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.repository = repository
        self.folder = root / repository.folder_name
        self.progress = Progress()
        self._clock = clock
        self._sleep = sleep

    def remaining_s(self) -> float:
        """How long it may take yet, by the mean speed so far; a minute while nothing has come."""
        at = self.progress
        came, took_s = at.done_bytes - at.had_bytes, self._clock() - at.started_s
        return (at.total_bytes - at.done_bytes) * took_s / came if came > 0 else 60.0

    async def run(self) -> Path:
        """The folder with every file that a checkpoint needs, each verified when it came.

        Raises: HubError when the hub has no such checkpoint, the disk is too small, a file is not what the hub says
        it is, or the hub cannot be reached; another run goes on from there.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise HubError("hub.busy", folder=self.folder) from error
            async with _client() as client:
                files = self._pinned() or await self._list(client)
                missing = [file for file in files if size_of(self.folder / file.path) != file.size]
                self._begin(files, missing)
                for file in missing:
                    await self._fetch(client, file)
        return self.folder

    def _pinned(self) -> tuple[RemoteFile, ...]:
        """What was listed at the first run; () if there was none."""
        try:
            return read_manifest(self.folder)
        except CheckpointError:
            return ()  # listed anew

    async def _list(self, client: httpx.AsyncClient) -> tuple[RemoteFile, ...]:
        async def ask() -> object:
            try:
                reply = await client.get(self.repository.listing_url)
            except httpx.RequestError as error:
                raise TryAgain(f"{type(error).__name__} {error}".rstrip()) from error
            check_status(reply)
            try:
                return reply.json()
            except ValueError:
                return None

        files = self.repository.read_listing(await self._patiently(ask))
        written = self.folder / f"{MANIFEST}.part"
        kept = asdict(self.repository) | {"files": [asdict(file) for file in files]}
        written.write_text(json.dumps(kept, indent=1), encoding="utf-8")
        os.replace(written, self.folder / MANIFEST)
        return files

    def _begin(self, files: tuple[RemoteFile, ...], missing: list[RemoteFile]) -> None:
        total = sum(file.size for file in files)
        lacking = (max(0, file.size - size_of(part_of(self.folder / file.path))) for file in missing)
        have = total - sum(lacking)
        self.progress = Progress(have, total, started_s=self._clock(), had_bytes=have)
        if not missing:
            return
        # The speech LM is written once more, in the form that vLLM loads.
        needed = total - have + max(file.size for file in files) + SPARE_BYTES
        free = shutil.disk_usage(self.folder).free
        if free < needed:
            raise HubError("hub.no_space", folder=self.folder, needed=needed / 1e9, free=free / 1e9)

    async def _fetch(self, client: httpx.AsyncClient, file: RemoteFile) -> None:
        self.progress = replace(self.progress, file=file.path)
        target, url, wrong = self.folder / file.path, self.repository.url_of(file), 0

        async def once() -> None:
            nonlocal wrong
            try:
                await transfer(client, file, url, target, self._received)
            except WrongContent as error:
                wrong += 1
                if wrong > 1:
                    host = httpx.URL(url).host
                    raise HubError("hub.wrong_content", file=file.path, host=host, folder=self.folder) from error
                raise

        await self._patiently(once)

    def _received(self, count: int) -> None:
        done = self.progress.done_bytes + count
        self.progress = replace(self.progress, done_bytes=done, trouble="")

    async def _patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Try until it succeeds; the wait doubles, and begins anew whenever bytes came."""
        failures = 0
        while True:
            before = self.progress.done_bytes
            try:
                return await attempt()
            except TryAgain as error:
                failures = 1 if self.progress.done_bytes > before else failures + 1
                if failures >= PATIENCE:
                    raise HubError("hub.unreachable", host=self.repository.base, reason=error) from error
                self.progress = replace(self.progress, trouble=str(error))
                await self._sleep(min(error.wait_s or 2.0 ** (failures - 1), MOST_WAIT_S))


@asynccontextmanager
async def _client() -> AsyncIterator[httpx.AsyncClient]:
    agent = {"User-Agent": f"cosyvoice-studio/{__version__}"}
    async with httpx.AsyncClient(follow_redirects=True, timeout=TIMEOUT, headers=agent) as client:
        yield client
