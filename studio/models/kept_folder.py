"""A folder that is made once: written beside its place and renamed, so that one that is there is whole."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from studio.errors import CheckpointError

ABANDONED_S = 24 * 3600
"""A half written folder of this age belongs to nobody who still writes."""


def make_once(folder: Path, needed_bytes: int, write: Callable[[Path], None]) -> None:
    """Let `write` fill a folder named KIND-HASH, unless it is there; it may lie on a read-only disk then.

    Raises: CheckpointError if its disk is too full or cannot be written; nothing is left behind.
    """
    if folder.is_dir():
        return
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        refuse_full_disk(folder.parent, needed_bytes)
        _sweep(folder.parent, folder.name.rpartition("-")[0])
        _write_beside(folder, write)
    except OSError as error:
        reason = error.strerror or str(error)
        raise CheckpointError("checkpoint.cache", folder=folder.parent, reason=reason) from error


def refuse_full_disk(parent: Path, needed_bytes: int) -> None:
    """Raises CheckpointError where fewer bytes are free than a new folder in parent needs; parent must exist."""
    free = shutil.disk_usage(parent).free
    if free < needed_bytes:
        raise CheckpointError("checkpoint.no_space", folder=parent, needed=needed_bytes / 1e9, free=free / 1e9)


def _write_beside(folder: Path, write: Callable[[Path], None]) -> None:
    beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        write(beside)
        beside.chmod(0o755)  # mkdtemp makes folders for one user only
        try:
            os.rename(beside, folder)
        except OSError:
            if not folder.is_dir():  # another process may have been first, with the same content
                raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _sweep(parent: Path, kind: str) -> None:
    """Remove what writers of this kind of folder have left that were killed: gigabytes that nobody finds."""
    for left in parent.glob(f".{kind}-*"):
        if time.time() - left.stat().st_mtime > ABANDONED_S:
            shutil.rmtree(left, ignore_errors=True)
