"""A studio in small, to be killed: starts a worker, prints the pids of worker and child. Not a test."""

import asyncio
import sys
from pathlib import Path

from studio.engine.worker import WorkerProcess


async def main() -> None:
    worker = WorkerProcess([sys.executable, str(Path(__file__).with_name("worker_program.py"))], "worker", {})
    await worker.start()
    state = await worker.wait_ready()
    print(state.pid, await worker.call("start_child"), flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
