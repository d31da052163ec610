"""Where a Python program spends its time while it runs, by py-spy, which need not be there. Stops nothing."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from studio.bench.rows import Row

RATE_HZ = 500
MAIN = "MainThread"
SHOWN = 25


async def sampled(pid: int, seconds: float) -> Row | None:
    """What its main thread was found in, waiting too, as shares of the looks: `inside` a call, `at` the innermost one.

    None where py-spy is missing or may not look. It reads memory without holding the program, which some looks miss by.
    """
    program = shutil.which("py-spy")
    if program is None:
        return None
    with tempfile.TemporaryDirectory(prefix="studio-stacks-") as folder:
        raw = Path(folder) / "raw"
        command = [program, "record", "--nonblocking", "--threads", "--idle", "--format", "raw", "--rate", str(RATE_HZ)]
        process = await asyncio.create_subprocess_exec(
            *command, "--duration", str(max(1, round(seconds))), "--output", str(raw), "--pid", str(pid),
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        await process.wait()
        return counted(raw.read_text().splitlines()) if raw.is_file() else None


def counted(lines: Iterable[str]) -> Row:
    """lines: stacks from the outermost call to the innermost, `;` between them, and how often each was found."""
    inside: Counter[str] = Counter()
    at: Counter[str] = Counter()
    looks = 0
    for line in lines:
        stack, _, told = line.rpartition(" ")
        if MAIN not in stack:
            continue
        calls, count = [_short(call) for call in stack.split(";")], int(told)
        looks += count
        at[calls[-1]] += count
        inside.update(dict.fromkeys(calls, count))
    return {"looks": looks, "at": _shares(at, looks), "inside": _shares(inside, looks)}


def _short(call: str) -> str:
    """function (folder/file.py:12) as function file."""
    name, _, place = call.partition(" (")
    return f"{name} {place.rpartition('/')[2].partition(':')[0]}".strip()


def _shares(found: Counter[str], looks: int) -> list[tuple[str, float]]:
    # Frames that every look goes through say nothing.
    telling = [(name, count / looks) for name, count in found.most_common() if count < 0.99 * looks or len(found) == 1]
    return [(name, round(share, 3)) for name, share in telling[:SHOWN]]
