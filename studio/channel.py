"""Messages between the studio's own processes: length-prefixed pickles over a socket pair.

It knows what crosses and how it is framed; it starts no process and knows no model. Both ends are programs of
ours and the socket has no name, so nobody else can reach the unpickling.
"""

from __future__ import annotations

import asyncio
import pickle
import struct
from collections import deque
from dataclasses import dataclass
from typing import Any, NamedTuple

from studio.errors import StudioError

_LENGTH = struct.Struct("!Q")


@dataclass(frozen=True, slots=True)
class Settings:
    """Parent to child, first of all: what the worker needs to start."""

    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """Parent to child: run a method. id 0 is a one-way message, which is never answered."""

    id: int
    method: str
    args: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cancel:
    """Parent to child: nobody waits for this call any more."""

    id: int


@dataclass(frozen=True, slots=True)
class Close:
    """Parent to child: end in good order."""


@dataclass(frozen=True, slots=True)
class Ready:
    """Child to parent: calls are answered from now on. facts: what the worker knows about its model."""

    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class StartFailed:
    """Child to parent: starting again will not help (a checkpoint that does not fit)."""

    error: StudioError


class Reply(NamedTuple):
    """Child to parent: a call's only result, or the next item of a stream.

    A tuple, as TokenDelta is: there are thousands a second, and a dataclass takes ten times as long to unpickle.
    """

    id: int
    value: Any


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """Child to parent: a stream gave its last item."""

    id: int


@dataclass(frozen=True, slots=True)
class Failure:
    """Child to parent: a call or a stream ended with this error."""

    id: int
    error: StudioError


class Channel:
    """One end of the pair in an event loop. Owner: that loop; use `send` and `post` in its thread only.

    A frame is a pickled list of messages, which arrive in the order in which they were sent or posted.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._posted: list[object] = []
        self._received: deque[Any] = deque()

    def send(self, message: object) -> None:
        """Write a message now; a peer that is gone is noticed by `receive`, not here."""
        self._posted.append(message)
        self._flush()

    def post(self, message: object) -> None:
        """Write a message with all others of this turn of the event loop, as one: a step of the LM has one for each
        of its rows, and a frame of its own for each would cost both ends more than what is in it."""
        self._posted.append(message)
        if len(self._posted) == 1:
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        messages, self._posted = self._posted, []
        if messages and not self._writer.is_closing():
            body = pickle.dumps(messages, protocol=5)
            self._writer.write(_LENGTH.pack(len(body)) + body)

    async def drain(self) -> None:
        """Wait until the peer has taken enough of what was sent. Raises ConnectionError when it is gone."""
        await self._writer.drain()

    async def receive(self) -> Any:
        """The next message. Raises EOFError when the peer closed or died."""
        while not self._received:
            try:
                (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
                body = await self._reader.readexactly(length)
            except (asyncio.IncompleteReadError, ConnectionError) as error:
                raise EOFError("the channel is closed") from error
            self._received.extend(pickle.loads(body))
        return self._received.popleft()

    def close(self) -> None:
        self._writer.close()
