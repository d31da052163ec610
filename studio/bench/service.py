"""The service under test as processes: started for a run, watched while it starts, its memory, ended after it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from studio.admin.gpus import MB, GpuMeter
from studio.engine.worker_link import WorkerLink

ROOT = Path(__file__).resolve().parents[2]
START_LIMIT_S = 300.0
LOOK_EVERY_S = 0.1
PARTS = {"vllm_lm": "lm", "torch_token2wav": "token2wav"}


@dataclass(frozen=True, slots=True)
class Started:
    """A service of our own. page_s, ready_s: from its start until the page, and speech, could be had."""

    url: str
    page_s: float
    ready_s: float


OPEN = ("--api-key", "", "--ssl-certfile", "", "--ssl-keyfile", "", "--root-path", "")
"""It is ours and on this machine only, whatever the environment asks of other studios."""


@contextlib.asynccontextmanager
async def started(flags: Sequence[str] = ()) -> AsyncIterator[Started]:
    """Run app.py on a free port with a library of its own, until the block ends.

    Raises: RuntimeError if it ends, says that it failed, or is not ready in time; its log is on stderr.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="studio-bench-") as data:
        command = [
            sys.executable,
            "app.py",
            "--port",
            str(port),
            "--data-dir",
            data,
            "--log-level",
            "warning",
            *flags,
            *OPEN,
        ]
        begin_s = time.monotonic()
        process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, start_new_session=True)
        try:
            url = f"http://127.0.0.1:{port}"
            async with httpx.AsyncClient(base_url=url, timeout=10) as client:
                page_s = await _answers(client, "/", process, begin_s)
                ready_s = await _answers(client, "/health", process, begin_s)
            yield Started(url, page_s, ready_s)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            await process.wait()


async def _answers(
    client: httpx.AsyncClient, path: str, process: asyncio.subprocess.Process, begin_s: float
) -> float:
    while time.monotonic() - begin_s < START_LIMIT_S:
        if process.returncode is not None:
            raise RuntimeError(f"app.py ended with status {process.returncode}")
        with contextlib.suppress(httpx.TransportError):
            reply = await client.get(path)
            if reply.status_code == 200 or (path == "/" and reply.status_code == 404):  # it serves no page
                return time.monotonic() - begin_s
            if path == "/health" and (state := reply.json())["status"] == "failed":
                raise RuntimeError(
                    "; ".join(worker["reason"] for worker in state["workers"] if worker["reason"])
                )
        await asyncio.sleep(LOOK_EVERY_S)
    raise RuntimeError(f"{path} did not answer within {START_LIMIT_S:.0f} s")


def processes(port: int) -> dict[str, list[psutil.Process]]:
    """The processes of the service that listens on a port of this machine, by part; empty if there is none."""
    listening = [
        c.pid
        for c in psutil.net_connections("tcp")
        if c.status == "LISTEN" and c.laddr.port == port and c.pid
    ]
    if not listening:
        return {}
    web = psutil.Process(listening[0])
    found = {"web": [web]}
    for child in web.children():
        name = next(
            (part for module, part in PARTS.items() if f"studio.backends.{module}" in child.cmdline()),
            "other",
        )
        found.setdefault(name, []).extend([child, *child.children(recursive=True)])
    return found


def show_workers() -> None:
    """Let what workers print appear on standard error: their last line alone seldom says why one did not start."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger(WorkerLink.__module__).setLevel(logging.INFO)


def memory_mb(parts: dict[str, list[psutil.Process]]) -> dict[str, int]:
    """MB of each part: pages that processes share are counted once, in equal shares (PSS)."""
    return {name: round(sum(p.memory_full_info().pss for p in group) / 1e6) for name, group in parts.items()}


def cpu_s(parts: dict[str, list[psutil.Process]]) -> dict[str, float]:
    """CPU seconds that each part has used since its start."""
    return {name: sum(sum(p.cpu_times()[:2]) for p in group) for name, group in parts.items()}


def gpu_bytes(index: int | None = None) -> int:
    """Memory in use on this machine's GPUs, whoever holds it, or on one of them; 0 without any."""
    gpus = GpuMeter(dict).look()["gpus"]
    return round(MB * sum(gpu["used_mb"] for gpu in (gpus if index is None else gpus[index : index + 1])))


def cores() -> int:
    return len(os.sched_getaffinity(0))
