"""What each request holds of the LM's KV cache, counted from what it asked and what came back."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from studio.engine.step_cost import LmMeter
from studio.protocols import LmPrompt, LmStats, LmTurn, SpeechLM, TokenDelta
from studio.speech import Sampling

MARKS = 2
"""Ids of a prompt that are neither text nor speech: at its begin, and before the prompt speech."""


@dataclass(slots=True)
class KvHeld:
    """Positions in the KV cache; prefix_tokens: the leading ones that all texts of a voice and mode share."""

    tokens: int = 0
    prefix_tokens: int = 0


class LmLedger:
    """A SpeechLM that keeps the books of another. Owner: the engine's event loop."""

    def __init__(self, lm: SpeechLM, meter: LmMeter) -> None:
        self._lm = lm
        self._meter = meter
        self._held: dict[str, KvHeld] = {}

    def held(self, request_id: str) -> KvHeld:
        """By all rows and turns of a request, whose ids begin with its own."""
        mine = [held for row_id, held in self._held.items() if row_id.partition(".")[0] == request_id]
        return KvHeld(sum(held.tokens for held in mine), sum(held.prefix_tokens for held in mine))

    async def generate(
        self, prompt: LmPrompt | LmTurn, sampling: Sampling, request_id: str
    ) -> AsyncIterator[TokenDelta]:
        held = self._held[request_id] = _begun(prompt)
        self._meter.rows(len(self._held))
        generated = self._lm.generate(prompt, sampling, request_id)
        try:
            async with contextlib.aclosing(generated):  # type: ignore[type-var]
                async for delta in generated:
                    held.tokens += len(delta.tokens)
                    self._meter.came(len(delta.tokens))
                    yield delta
        finally:
            self._held.pop(request_id, None)
            self._meter.rows(len(self._held))

    async def abort(self, request_id: str) -> None:
        await self._lm.abort(request_id)

    async def stats(self) -> LmStats:
        return await self._lm.stats()

    async def metrics(self) -> str:
        return await self._lm.metrics()

    async def reset_prefix_cache(self) -> bool:
        return await self._lm.reset_prefix_cache()

    async def sleep(self) -> None:
        await self._lm.sleep()

    async def wake(self) -> None:
        await self._lm.wake()

    async def close(self) -> None:
        await self._lm.close()


def _begun(prompt: LmPrompt | LmTurn) -> KvHeld:
    if isinstance(prompt, LmTurn):
        return KvHeld(MARKS + sum(len(ids) for _, ids in prompt.parts), 1)
    lead = 1 + len(prompt.prompt_text_ids)
    return KvHeld(MARKS - 1 + lead + len(prompt.text_ids) + len(prompt.speech_tokens), lead)
