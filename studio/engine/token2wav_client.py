"""Token2wav and the prompt encoder as the engine and the library see them, spoken to in their worker process."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace

from studio.engine.worker import WorkerProcess
from studio.protocols import RowStep, StepResult, Token2WavStats
from studio.shelf import ShelfReader
from studio.speech import (
    BLOCK_TOKENS,
    LOOKAHEAD_TOKENS,
    SAMPLE_RATE_HZ,
    SAMPLES_PER_TOKEN,
    Float32,
    VoicePrompt,
)


class Token2WavClient:
    """Implements Token2Wav over a worker. The worker asserts these constants against its checkpoint."""

    sample_rate_hz = SAMPLE_RATE_HZ
    lookahead_tokens = LOOKAHEAD_TOKENS
    block_tokens = BLOCK_TOKENS
    samples_per_token = SAMPLES_PER_TOKEN

    def __init__(self, worker: WorkerProcess) -> None:
        self._worker = worker
        self._shelf: ShelfReader | None = None

    async def open(
        self, row_id: str, voice: VoicePrompt, seed: int, guidance: float | None = None
    ) -> int:
        args = {"row_id": row_id, "voice": voice, "seed": seed, "guidance": guidance}
        return int(await self._worker.call("open", **args))

    async def prepare(self, voice: VoicePrompt, guidance: float | None = None) -> None:
        self._worker.send("prepare", voice=voice, guidance=guidance)  # one-way: nobody waits for it

    async def step(self, rows: Sequence[RowStep]) -> list[StepResult]:
        if (shelf := self._open_shelf()) is None:
            return list(await self._worker.call("step", rows=list(rows)))
        results, lengths = await self._worker.call("step", rows=list(rows), on_shelf=True)
        sounds = iter(shelf.take(lengths))
        return [
            result if result.error is not None else replace(result, samples=next(sounds))
            for result in results
        ]

    def _open_shelf(self) -> ShelfReader | None:
        """The shelf of the worker as it lives now; None where it has none, or nobody may look into its memory."""
        path = self._worker.state.facts.get("shelf", "")
        if self._shelf is None or self._shelf.path != path:
            if self._shelf is not None:
                self._shelf.close()
            self._shelf = None
            with contextlib.suppress(OSError):
                self._shelf = ShelfReader(path) if path else None
        return self._shelf

    async def drop(self, row_id: str) -> None:
        # One-way: whoever leaves must not wait for the step that is running.
        self._worker.send("drop", row_id=row_id)

    async def stats(self) -> Token2WavStats:
        answer = await self._worker.call("stats")
        assert isinstance(answer, Token2WavStats)
        return answer

    async def close(self) -> None:
        await self._worker.close()
        if self._shelf is not None:
            self._shelf.close()
            self._shelf = None


class PromptEncoderClient:
    """Implements PromptEncoder over the same worker."""

    def __init__(self, worker: WorkerProcess) -> None:
        self._worker = worker

    async def encode(self, samples: Float32, sample_rate_hz: int, prompt_text: str) -> VoicePrompt:
        answer = await self._worker.call(
            "encode", samples=samples, sample_rate_hz=sample_rate_hz, prompt_text=prompt_text
        )
        assert isinstance(answer, VoicePrompt)
        return answer

    async def presets(self) -> dict[str, VoicePrompt]:
        return dict(await self._worker.call("presets"))

    async def read_voices(self, data: bytes) -> dict[str, VoicePrompt]:
        return dict(await self._worker.call("read_voices", data=data))
