"""A load on token2wav alone: so many rows in step, each of a clip's length, begun anew when it ends. No speech LM."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import numpy as np

from studio.bench.figures import percentile
from studio.bench.rows import Row
from studio.errors import Token2WavError
from studio.protocols import RowStep, Token2Wav
from studio.speech import BLOCK_TOKENS, LOOKAHEAD_TOKENS, MEL_BINS, SPEAKER_DIM, TOKEN_RATE_HZ, VoicePrompt

PROMPT_TOKENS = 125
CLIP_BLOCKS = 8
"""A row's steps: 8 s of speech."""


def drawn_voice(codes: int, tokens: int = PROMPT_TOKENS, seed: int = 0) -> VoicePrompt:
    """A prompt of so many tokens drawn at random from the codes that the flow knows; 125 are 5 s."""
    draw = np.random.RandomState(seed)
    mel = draw.uniform(-11, 1, (2 * tokens, MEL_BINS)).astype(np.float32)
    ids = draw.randint(0, codes, tokens).astype(np.int32)
    embedding = draw.standard_normal(SPEAKER_DIM).astype(np.float32)
    return VoicePrompt(f"drawn {tokens} {seed}", "drawn", ids, mel, embedding)


@dataclass(slots=True)
class VoicingLoad:
    """So many rows stepped together, a block at a time, one step after the other. Owner: the event loop."""

    token2wav: Token2Wav
    rows: int
    voice: VoicePrompt
    steps_s: list[float] = field(default_factory=list)
    """Seconds of each step of the last run."""
    wall_s: float = 0.0
    _clips: int = 0
    _ending: bool = False

    async def warm(self) -> None:
        """A clip that is not counted."""
        await self._clip()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Load until the block ends and the step that is under way with it; figures of before are forgotten."""
        self.steps_s.clear()
        self._ending = False
        began_s = time.monotonic()
        task = asyncio.create_task(self._repeat())
        try:
            yield
        finally:
            self._ending = True
            await task
            self.wall_s = time.monotonic() - began_s

    async def _repeat(self) -> None:
        while not self._ending:
            await self._clip()

    async def _clip(self) -> None:
        self._clips += 1
        names = [f"load {self._clips}.{number}" for number in range(self.rows)]
        firsts = await asyncio.gather(*(self.token2wav.open(name, self.voice, 0) for name in names))
        ids = np.arange(LOOKAHEAD_TOKENS + BLOCK_TOKENS * 2, dtype=np.int32)
        for number in range(CLIP_BLOCKS):
            final = number == CLIP_BLOCKS - 1 or self._ending
            ahead = ids[: 0 if final else LOOKAHEAD_TOKENS]
            steps = [
                RowStep(name, ids[: BLOCK_TOKENS if number else first], ahead, final)
                for name, first in zip(names, firsts, strict=True)
            ]
            began_s = time.monotonic()
            for result in await self.token2wav.step(steps):
                if result.error:
                    raise Token2WavError("speech.token2wav_failed", reason=result.error)
            self.steps_s.append(time.monotonic() - began_s)
            if final:
                return

    def row(self) -> Row:
        """Figures of the last run; audio_s_per_s counts whole steps."""
        if not self.steps_s:
            return {"rows": self.rows, "steps": 0}
        audio_s = len(self.steps_s) * self.rows * BLOCK_TOKENS / TOKEN_RATE_HZ
        figures = {
            f"t2w_step_p{p}_ms": round(1000 * percentile(self.steps_s, p / 100), 2) for p in (50, 95, 99)
        }
        return {
            "rows": self.rows, "steps": len(self.steps_s), **figures,
            "t2w_audio_s_per_s": round(audio_s / self.wall_s, 1),
        }  # fmt: skip
