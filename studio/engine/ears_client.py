"""The ears as the web process sees them, spoken to in their worker process."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from studio.engine.worker import WorkerProcess
from studio.errors import AsrUnavailable, QueueFull
from studio.protocols import Transcript
from studio.speech import Float32

MOST_WAITING = 16
"""Sounds heard or waiting at once; each takes about a second of one core."""
_WAIT_S = 5.0


class EarsClient:
    """Implements Ears over a worker. Whoever leaves does not stop what is being heard: it is soon done."""

    def __init__(self, worker: WorkerProcess, recogniser: str) -> None:
        self.recogniser = recogniser
        self._worker = worker
        self._waiting = 0

    async def start(self) -> None:
        await self._worker.start()

    async def embed(self, sounds: Sequence[Float32]) -> Float32:
        await self._worker.wait_ready()
        return np.asarray(await self._worker.call("embed", sounds=list(sounds)))

    async def transcribe(self, samples: Float32) -> Transcript:
        if not self.recogniser:
            raise AsrUnavailable("asr.missing")
        if self._waiting >= MOST_WAITING:
            raise QueueFull("queue.full", waiting=self._waiting, seconds=_WAIT_S, retry_after_s=_WAIT_S)
        self._waiting += 1
        try:
            await self._worker.wait_ready()
            answer = await self._worker.call("transcribe", samples=samples)
        finally:
            self._waiting -= 1
        assert isinstance(answer, Transcript)
        return answer

    async def close(self) -> None:
        await self._worker.close()
