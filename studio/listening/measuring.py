"""Runs `python -m studio.evaluate.companion` over a test's export, in a process of its own: its judges load torch."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from studio.errors import ListeningConflict

COMMAND = "studio.evaluate.companion"
LONGEST_S = 1800


async def measure(export: Iterable[bytes], reference: bytes | None = None) -> str:
    """What the command prints for this export; it takes about a second a clip.

    Args:    export: pieces of the zip. reference: a clip of the voice, as an audio file, for likeness where the test
             has no reference of its own.
    Raises:  ListeningConflict with the command's last line if it fails or takes more than half an hour.
    """
    with tempfile.TemporaryDirectory(prefix="studio-measure-") as folder:
        file, voice = Path(folder) / "export.zip", Path(folder) / "voice.wav"
        await asyncio.to_thread(_write, file, export)
        command = ["-m", COMMAND, str(file)]
        if reference is not None:
            voice.write_bytes(reference)
            command += ["--reference", str(voice)]
        running = await asyncio.create_subprocess_exec(
            sys.executable, *command,
            cwd=Path(__file__).resolve().parents[2], stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            said, complaints = await asyncio.wait_for(running.communicate(), LONGEST_S)
        except TimeoutError:
            said, complaints = b"", f"more than {LONGEST_S} s".encode()
        finally:
            if running.returncode is None:  # out of time, or whoever asked has left
                running.kill()
                await running.wait()
    if running.returncode or not said:
        lines = complaints.decode("utf-8", "replace").strip().splitlines()
        raise ListeningConflict("report.not_measured", reason=lines[-1] if lines else "-")
    return said.decode("utf-8")


def _write(file: Path, pieces: Iterable[bytes]) -> None:
    with file.open("wb") as written:
        written.writelines(pieces)
