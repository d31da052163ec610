"""One life of a worker program: started, spoken to, ended. Restarting it is the business of `worker.py`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from studio.channel import Call, Cancel, Channel, Close, Failure, Reply, StreamEnd
from studio.errors import EngineDead

logger = logging.getLogger(__name__)

_LAST_LINES = 30
_LAST_OUTPUT_S = 5.0
_LINE_BYTES = 1 << 20

_Answer = Reply | StreamEnd | Failure


class WorkerLink:
    """A running child and the calls that wait for it. Owner: one event loop."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, channel: Channel) -> None:
        self.process = process
        self.channel = channel
        self.last_lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._name = name
        self._next_id = 1
        self._waiting: dict[int, asyncio.Queue[_Answer | EngineDead]] = {}
        self._dead: EngineDead | None = None
        self._log_task: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, name: str, command: Sequence[str]) -> WorkerLink:
        """Start the program in a session of its own, its output going to our log."""
        ours, theirs = socket.socketpair()
        output, output_end = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *command, "--channel-fd", str(theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL, stdout=output_end, stderr=output_end,
                pass_fds=(theirs.fileno(),), start_new_session=True,
            )  # fmt: skip
        except BaseException:
            ours.close()
            os.close(output)
            raise
        finally:
            theirs.close()
            os.close(output_end)
        link = cls(name, process, Channel(*await asyncio.open_connection(sock=ours)))
        link._log_task = asyncio.create_task(link._log_output(output))
        return link

    async def call(self, method: str, **args: Any) -> Any:
        """One answer. Raises what the handler raised, or EngineDead."""
        async with self._ask(method, args) as inbox:
            answer = await inbox.get()
            if isinstance(answer, Reply):
                return answer.value
            raise _error_of(answer)

    async def stream(self, method: str, **args: Any) -> AsyncIterator[Any]:
        """The items of a stream; leaving early cancels it in the worker. Raises as `call` does."""
        async with self._ask(method, args) as inbox:
            while not isinstance(answer := await inbox.get(), StreamEnd):
                if not isinstance(answer, Reply):
                    raise _error_of(answer)
                yield answer.value

    def send(self, method: str, **args: Any) -> None:
        """A message without an answer."""
        self.channel.send(Call(0, method, args))

    @contextlib.asynccontextmanager
    async def _ask(self, method: str, args: dict[str, Any]) -> AsyncIterator[asyncio.Queue[Any]]:
        if self._dead is not None:
            raise self._dead
        call_id, self._next_id = self._next_id, self._next_id + 1
        inbox = _Inbox()
        self._waiting[call_id] = inbox
        self.channel.send(Call(call_id, method, args))
        try:
            yield inbox
        finally:
            del self._waiting[call_id]
            if not inbox.ended:
                self.channel.send(Cancel(call_id))

    def route(self, answer: _Answer) -> None:
        """Give an answer to whoever waits for it; answers to cancelled calls are dropped."""
        if inbox := self._waiting.get(answer.id):
            inbox.put_nowait(answer)

    def fail_all(self, error: Callable[[], EngineDead]) -> None:
        """Tell everybody who waits that the worker is gone; later calls are told too."""
        self._dead = error()
        for inbox in self._waiting.values():
            inbox.put_nowait(error())

    async def close(self, timeout_s: float) -> None:
        """Ask the worker to end, give it so long, then kill what is left."""
        self.channel.send(Close())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.process.wait(), timeout_s)
        await self.kill()

    async def kill(self) -> None:
        """End the whole group at once: the worker and every process that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        await self.process.wait()
        self.channel.close()
        if self._log_task is not None:
            # What it printed before the death is in the pipe; a stray process that holds it must not stop us.
            await asyncio.wait({self._log_task}, timeout=_LAST_OUTPUT_S)
            self._log_task.cancel()
            await asyncio.gather(self._log_task, return_exceptions=True)

    async def _log_output(self, output: int) -> None:
        reader = asyncio.StreamReader(limit=_LINE_BYTES)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(output, "rb", buffering=0)
        )
        try:
            while line := await _read_line(reader):
                self.last_lines.append(line.rstrip())
                logger.info("%s: %s", self._name, line.rstrip())
        finally:
            transport.close()


class _Inbox(asyncio.Queue[Any]):
    """Answers of one call; knows whether the last one came."""

    ended = False

    def put_nowait(self, item: Any) -> None:
        self.ended = self.ended or not isinstance(item, Reply)
        super().put_nowait(item)


async def _read_line(reader: asyncio.StreamReader) -> str:
    try:
        return (await reader.readline()).decode(errors="replace")
    except ValueError:  # longer than the limit; the reader dropped it
        return "(a line too long to show)\n"


def _error_of(answer: Any) -> Exception:
    return answer.error if isinstance(answer, Failure) else answer
