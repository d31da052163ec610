"""The child's side of a worker: reads settings, sets up, answers calls, dies with its parent. No model here.

A worker program is `run_worker(setup, wrap_error)`. `setup(settings, report)` is a coroutine that gives
`Service`; it may block the loop, since `report` sends at once. Each call runs in a task of its own, so torch
work belongs in a one-thread executor. A handler that is an async generator function answers with a stream; one
that the parent closes is cancelled, and its `finally` frees what it held. A handler that raises EngineDead
ends the program after the parent was told.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import logging
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from studio.channel import (
    Call,
    Cancel,
    Channel,
    Close,
    Failure,
    Ready,
    Reply,
    Settings,
    StartFailed,
    StreamEnd,
)
from studio.errors import CheckpointError, EngineDead, SettingsError, StudioError
from studio.protocols import BackendProgress

logger = logging.getLogger(__name__)

Handler = Callable[..., Awaitable[Any] | AsyncIterator[Any]]
Report = Callable[..., None]
"""report(stage, fraction, **detail), from any thread: where the start stands, stage being a catalogue key."""

RESTART_S = 30.0
"""How long a restart is said to take to those whose requests died with the engine."""


@dataclass(frozen=True, slots=True)
class Service:
    """What a worker offers once it is set up."""

    handlers: Mapping[str, Handler]
    close: Callable[[], Awaitable[None]] | None = None
    facts: dict[str, Any] = field(default_factory=dict)


def engine_dead() -> EngineDead:
    """For a handler to raise when this program can compute no more."""
    return EngineDead("engine.dead", seconds=RESTART_S, retry_after_s=RESTART_S)


Setup = Callable[[dict[str, Any], Report], Awaitable[Service]]
WrapError = Callable[[Exception], StudioError]


def run_worker(setup: Setup, wrap_error: WrapError) -> NoReturn:
    """Be the worker program: read --channel-fd, serve until the parent closes or dies, exit.

    Args:    wrap_error: makes a StudioError of whatever a handler raised that is not one already.
    """
    parser = argparse.ArgumentParser(description="A worker program; the studio starts it.")
    parser.add_argument("--channel-fd", type=int, required=True)
    channel_fd = parser.parse_args().channel_fd
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    # A grandchild that held the socket too would hide our death from the parent.
    os.set_inheritable(channel_fd, False)
    threading.Thread(target=_die_with_parent, args=(channel_fd,), daemon=True).start()
    code = asyncio.run(_serve(channel_fd, setup, wrap_error))
    # Libraries' own threads and exit hooks may hang or complain; everything of ours is closed by now.
    sys.stderr.flush()
    os._exit(code)


def _die_with_parent(channel_fd: int) -> None:
    """Kill our whole process group when the parent's end is closed, however the parent went.

    PR_SET_PDEATHSIG would kill this process alone and orphan the engine process that vLLM starts beside it.
    """
    hangup = select.poll()
    hangup.register(channel_fd, 0)  # hang-up and error are always reported; data is left for the loop
    hangup.poll()
    os.killpg(0, signal.SIGKILL)


async def _serve(channel_fd: int, setup: Setup, wrap_error: WrapError) -> int:
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=channel_fd))
    channel = Channel(reader, writer)
    first = await channel.receive()
    assert isinstance(first, Settings)
    try:
        service = await setup(first.values, _reporter(channel))
    except (CheckpointError, SettingsError) as error:
        logger.error("cannot start: %s", error)
        channel.send(StartFailed(error))
        await channel.drain()
        return 2
    channel.send(Ready(service.facts))
    code = await _Calls(channel, service, wrap_error).answer_all()
    if service.close is not None:
        await service.close()
    return code


def _reporter(channel: Channel) -> Report:
    loop = asyncio.get_running_loop()
    loop_thread = threading.get_ident()

    def report(stage: str, fraction: float, **detail: str) -> None:
        progress = BackendProgress(stage, fraction, detail)
        if threading.get_ident() == loop_thread:
            channel.send(progress)
        else:
            loop.call_soon_threadsafe(channel.send, progress)

    return report


class _Calls:
    """The calls being answered, one task each."""

    def __init__(self, channel: Channel, service: Service, wrap_error: WrapError) -> None:
        self._channel = channel
        self._service = service
        self._wrap_error = wrap_error
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._one_way: set[asyncio.Task[None]] = set()
        self._dead = asyncio.Event()

    async def answer_all(self) -> int:
        """Answer until the parent says Close (0) or a handler raised EngineDead (1)."""
        reading = asyncio.create_task(self._read())
        dead = asyncio.create_task(self._dead.wait())
        await asyncio.wait({reading, dead}, return_when=asyncio.FIRST_COMPLETED)
        for task in (*self._tasks.values(), *self._one_way, reading, dead):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), *self._one_way, return_exceptions=True)
        if self._dead.is_set():
            await self._channel.drain()
            return 1
        return 0

    async def _read(self) -> None:
        while not isinstance(message := await self._receive(), Close):
            if isinstance(message, Cancel):
                if task := self._tasks.get(message.id):
                    task.cancel()
            elif isinstance(message, Call):
                self._begin(message)

    async def _receive(self) -> object:
        try:
            return await self._channel.receive()
        except EOFError:
            # Ending in order here would race with `_die_with_parent` and leave our own children behind.
            os.killpg(0, signal.SIGKILL)
            raise

    def _begin(self, call: Call) -> None:
        task = asyncio.create_task(self._answer(call))
        if call.id:
            self._tasks[call.id] = task
            task.add_done_callback(lambda _: self._tasks.pop(call.id, None))
        else:
            self._one_way.add(task)
            task.add_done_callback(self._one_way.discard)

    async def _answer(self, call: Call) -> None:
        try:
            await self._run(call)
        except StudioError as error:
            self._fail(call, error)
        except Exception as error:
            logger.exception("%s failed", call.method)
            self._fail(call, self._wrap_error(error))

    async def _run(self, call: Call) -> None:
        handler = self._service.handlers[call.method]
        if inspect.isasyncgenfunction(handler):
            items = handler(**call.args)
            try:
                async for item in items:
                    self._channel.post(Reply(call.id, item))
            finally:
                await items.aclose()
            self._channel.post(StreamEnd(call.id))
            return
        answer = handler(**call.args)
        assert inspect.isawaitable(answer)
        value = await answer
        if call.id:
            self._channel.send(Reply(call.id, value))

    def _fail(self, call: Call, error: StudioError) -> None:
        if call.id:
            self._channel.send(Failure(call.id, error))
        if isinstance(error, EngineDead):
            self._dead.set()
