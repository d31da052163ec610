"""The speech LM as the engine sees it, spoken to in its worker process."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from studio.engine.worker import WorkerProcess
from studio.protocols import LmPrompt, LmStats, LmTurn, TokenDelta
from studio.speech import Sampling


class SpeechLMClient:
    """Implements SpeechLM over a worker; closing a `generate` cancels it there, which frees its KV blocks."""

    def __init__(self, worker: WorkerProcess) -> None:
        self._worker = worker

    async def generate(
        self, prompt: LmPrompt | LmTurn, sampling: Sampling, request_id: str
    ) -> AsyncIterator[TokenDelta]:
        items = self._worker.stream("generate", prompt=prompt, sampling=sampling, request_id=request_id)
        async with contextlib.aclosing(items):  # type: ignore[type-var]
            async for delta in items:
                yield delta

    async def abort(self, request_id: str) -> None:
        self._worker.send("abort", request_id=request_id)

    async def stats(self) -> LmStats:
        answer = await self._worker.call("stats")
        assert isinstance(answer, LmStats)
        return answer

    async def metrics(self) -> str:
        return str(await self._worker.call("metrics"))

    async def reset_prefix_cache(self) -> bool:
        return bool(await self._worker.call("reset_prefix_cache"))

    async def sleep(self) -> None:
        await self._worker.call("sleep")

    async def wake(self) -> None:
        await self._worker.call("wake")

    async def close(self) -> None:
        await self._worker.close()
