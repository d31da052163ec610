"""Messages arrive in the order they were given, however many of them share a frame."""

import asyncio
import pickle
import socket
from collections.abc import AsyncIterator

import pytest

from studio.channel import Channel, Failure, Reply, StreamEnd
from studio.errors import SpeechLMError
from studio.protocols import TokenDelta

Ends = tuple[Channel, asyncio.StreamReader]


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    """A channel, and the bytes that come out of its other end."""
    ours, theirs = socket.socketpair()
    channel = Channel(*await asyncio.open_connection(sock=ours))
    reader, writer = await asyncio.open_connection(sock=theirs)
    yield channel, reader
    channel.close()
    writer.close()


async def frame(reader: asyncio.StreamReader) -> list[object]:
    return pickle.loads(await reader.readexactly(int.from_bytes(await reader.readexactly(8))))


async def test_what_is_posted_in_one_turn_is_one_frame(ends: Ends) -> None:
    channel, reader = ends
    rows = [Reply(row, TokenDelta((row,))) for row in range(3)]
    for reply in rows:
        channel.post(reply)
    assert await frame(reader) == rows
    channel.post(StreamEnd(1))
    assert await frame(reader) == [StreamEnd(1)]


async def test_a_message_that_is_sent_passes_none_that_was_posted(ends: Ends) -> None:
    channel, reader = ends
    channel.post(Reply(1, "last"))
    channel.send(Failure(1, SpeechLMError("speech.lm_failed", reason="no")))  # as a stream ends that failed
    first, second = await frame(reader)
    assert first == Reply(1, "last") and isinstance(second, Failure)
    channel.send("next")
    assert await frame(reader) == ["next"]  # and the turn's end writes nothing twice


async def test_messages_of_a_frame_are_received_one_by_one_before_the_end() -> None:
    ours, theirs = socket.socketpair()
    sender = Channel(*await asyncio.open_connection(sock=ours))
    receiver = Channel(*await asyncio.open_connection(sock=theirs))
    sender.post("one")
    sender.post("two")
    sender.send("three")
    sender.close()
    assert [await receiver.receive() for _ in range(3)] == ["one", "two", "three"]
    with pytest.raises(EOFError):
        await receiver.receive()
    receiver.close()
