"""Worker programs that give the shapes of speech at a set pace and compute nothing: `-m studio.bench.scripted lm`.

With them the studio's own work is all there is, so it can be measured (`host.py`) on a machine without a GPU.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any

import numpy as np

from studio.backends.serve import Report, Service, run_worker
from studio.errors import SpeechLMError
from studio.protocols import LmPrompt, LmStats, LmTurn, RowStep, StepResult, Token2WavStats, TokenDelta
from studio.speech import BLOCK_TOKENS, SAMPLES_PER_TOKEN, Sampling, VoicePrompt

HELD_BACK_SAMPLES = 1920
"""Kept until a row's last step, as the vocoder's look-ahead is."""


class PacedSpeechLM:
    """Every running row grows by one token a step; told at the first, at each further `interval` and at the last."""

    def __init__(self, step_s: float, tokens: int, interval: int) -> None:
        """tokens: of each request. step_s: of all rows at once; 0: as fast as this process can."""
        self._step_s, self._tokens, self._interval = step_s, tokens, interval
        self._rows: dict[str, tuple[list[int], asyncio.Queue[TokenDelta]]] = {}
        self._begun = asyncio.Event()
        self._stepping = asyncio.create_task(self._run())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._begun.wait()
            next_s = loop.time() + self._step_s
            for told, inbox in list(self._rows.values()):
                self._grow(told, inbox)
            await asyncio.sleep(max(0.0, next_s - loop.time()))

    def _grow(self, told: list[int], inbox: asyncio.Queue[TokenDelta]) -> None:
        made, given = told[0] + 1, told[1]
        last = made == self._tokens
        if last or not given or made - given >= self._interval:
            inbox.put_nowait(TokenDelta(tuple(range(given, made)), "stop" if last else None))
            given = made
        told[:] = made, given

    async def generate(
        self, prompt: LmPrompt | LmTurn, sampling: Sampling, request_id: str
    ) -> AsyncIterator[TokenDelta]:
        inbox: asyncio.Queue[TokenDelta] = asyncio.Queue()
        self._rows[request_id] = ([0, 0], inbox)
        self._begun.set()
        try:
            while (delta := await inbox.get()).finish_reason is None:
                yield delta
            yield delta
        finally:
            del self._rows[request_id]
            if not self._rows:
                self._begun.clear()

    async def abort(self, request_id: str) -> None:
        return None  # the engine closes the stream as well

    async def stats(self) -> LmStats:
        return LmStats(running=len(self._rows))


class SilentToken2Wav:
    """Silence of the right length, at once."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[int, int]] = {}  # row id -> tokens voiced, samples given
        self._steps = 0

    async def open(
        self, row_id: str, voice: VoicePrompt, seed: int, guidance: float | None = None
    ) -> int:
        self._rows[row_id] = (0, 0)
        return BLOCK_TOKENS

    async def step(self, rows: Sequence[RowStep]) -> list[StepResult]:
        self._steps += 1
        return [self._advance(row) for row in rows]

    def _advance(self, row: RowStep) -> StepResult:
        if row.row_id not in self._rows:
            return StepResult(row.row_id, None, "no such row")
        tokens, given = self._rows.pop(row.row_id)
        tokens += len(row.tokens)
        until = tokens * SAMPLES_PER_TOKEN - (0 if row.final else HELD_BACK_SAMPLES)
        if not row.final:
            self._rows[row.row_id] = (tokens, until)
        return StepResult(row.row_id, np.zeros(until - given, np.float32))

    async def drop(self, row_id: str) -> None:
        self._rows.pop(row_id, None)

    async def stats(self) -> Token2WavStats:
        return Token2WavStats(rows_open=len(self._rows), steps=self._steps)


async def setup_lm(settings: dict[str, Any], _report: Report) -> Service:
    lm = PacedSpeechLM(settings["step_s"], settings["tokens"], settings["interval"])
    return Service({name: getattr(lm, name) for name in ("generate", "abort", "stats")})


async def setup_token2wav(_settings: dict[str, Any], _report: Report) -> Service:
    token2wav = SilentToken2Wav()
    return Service({name: getattr(token2wav, name) for name in ("open", "step", "drop", "stats")})


if __name__ == "__main__":
    run_worker(
        {"lm": setup_lm, "token2wav": setup_token2wav}[sys.argv.pop(1)],
        lambda error: SpeechLMError("speech.lm_failed", reason=repr(error)),
    )
