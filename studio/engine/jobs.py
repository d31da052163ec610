"""Jobs: requests whose sound is kept, so that a page that was loaded again finds them. Makes no sound itself.

A plain stream ends when its listener leaves. A job goes on for a while without one, and its sound can be read again
from the start; who has no further use for it says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import Literal

from studio.engine.stream import SpeechStream
from studio.errors import NotFound, RequestAborted, StudioError, SynthesisError
from studio.speech import SAMPLE_RATE_HZ, AudioChunk, Float32, SynthesisRequest

logger = logging.getLogger(__name__)

GRACE_S = 15.0
"""How long a job goes on without a listener: longer than a page takes to load again."""
AHEAD_SAMPLES = 30 * SAMPLE_RATE_HZ
"""Sound made ahead of the listener before the engine rests."""
KEPT_SAMPLES = 600 * SAMPLE_RATE_HZ
KEPT_JOBS = 64
"""What is kept of ended jobs, of all clients together; the oldest go first."""

State = Literal["waiting", "speaking", "done", "failed", "stopped"]
Sleep = Callable[[float], Awaitable[None]]


class Job:
    """One request and the sound made of it so far. Owner: the engine's event loop."""

    def __init__(self, stream: SpeechStream, request: SynthesisRequest, sleep: Sleep) -> None:
        self.id = stream.request_id
        self.stream = stream
        self.request = request
        self.samples = 0
        self.state: State = "waiting"
        self.error: StudioError | None = None
        self._sleep = sleep
        self._chunks: list[Float32] = []
        self._read_samples: dict[object, int] = {}  # by reader
        self._changed = asyncio.Event()
        self._pump = asyncio.create_task(self._run(), name=f"job {self.id}")
        self._deserted = self._await_listener()

    @property
    def ended(self) -> bool:
        return self.state in ("done", "failed", "stopped")

    async def read(self) -> AsyncGenerator[AudioChunk, None]:
        """All sound from the start, as it comes. Raises the job's error as soon as it is known."""
        reader = object()
        self._read_samples[reader] = 0
        self._deserted.cancel()
        try:
            index = 0
            while True:
                while index == len(self._chunks) and not self.ended:
                    await self._changed.wait()
                if self.error is not None:
                    raise self.error
                if index == len(self._chunks):
                    return
                chunk = self._chunks[index]
                self._read_samples[reader] += len(chunk)
                self._tell()
                yield AudioChunk(chunk, index)
                index += 1
        finally:
            del self._read_samples[reader]
            if not self._read_samples and not self.ended:
                self._deserted = self._await_listener()

    async def stop(self) -> None:
        """End the request now and free what it holds; its readers are told. Nothing, if it has ended."""
        self._deserted.cancel()
        if not self.ended:
            self.state, self.error = "stopped", RequestAborted("speech.aborted")
            self._pump.cancel()
            self._tell()
        await asyncio.gather(self._pump, return_exceptions=True)
        await self.stream.aclose()  # a task that is cancelled before its first step closes nothing

    async def _run(self) -> None:
        try:
            async with self.stream:
                async for chunk in self.stream:
                    self.state = "speaking"
                    self._chunks.append(chunk.samples)
                    self.samples += len(chunk.samples)
                    self._tell()
                    while self.samples - max(self._read_samples.values(), default=0) > AHEAD_SAMPLES:
                        await self._changed.wait()
            self.state = "done"
        except StudioError as error:
            self.state, self.error = "failed", error
        except Exception:
            logger.exception("job %s failed", self.id)
            self.state, self.error = "failed", SynthesisError("internal")
        self._deserted.cancel()
        self._tell()

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _await_listener(self) -> asyncio.Task[None]:
        return asyncio.create_task(self._end_when_deserted(), name=f"deserted {self.id}")

    async def _end_when_deserted(self) -> None:
        await self._sleep(GRACE_S)
        await asyncio.shield(asyncio.create_task(self.stop()))  # which cancels this one


class Jobs:
    """All jobs that can be found. Owner: the engine's event loop."""

    def __init__(self, sleep: Sleep = asyncio.sleep) -> None:
        self._sleep = sleep
        self._jobs: dict[str, Job] = {}  # in the order of their beginning

    def begin(self, stream: SpeechStream, request: SynthesisRequest) -> Job:
        """Keep a stream that was just submitted; from now on it is the job that closes it."""
        job = Job(stream, request, self._sleep)
        self._jobs[job.id] = job
        for old in list(self._too_many()):
            del self._jobs[old.id]
        return job

    def find(self, job_id: str, client: str) -> Job:
        """A client's own job. Raises NotFound, for those of others too."""
        job = self._jobs.get(job_id)
        if job is None or job.request.client != client:
            raise NotFound("job.not_found", param="job", job=job_id[:40])
        return job

    def of(self, client: str) -> list[Job]:
        """A client's jobs, the newest first."""
        return [job for job in reversed(self._jobs.values()) if job.request.client == client]

    async def close(self) -> None:
        """Stop all of them."""
        await asyncio.gather(*(job.stop() for job in self._jobs.values()))

    def _too_many(self) -> Iterator[Job]:
        kept = samples = 0
        for job in reversed(self._jobs.values()):
            if job.ended:
                kept, samples = kept + 1, samples + job.samples
                if kept > KEPT_JOBS or samples > KEPT_SAMPLES:
                    yield job
