"""Pages of the flow under the engine: who leaves, who reads nothing and who fails gives them back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import numpy as np
import pytest_asyncio

from studio.backends.fake import Finish, ManualClock, Say, ScriptedSpeechLM, WaitFor, WordFrontend
from studio.backends.torch_rows import TorchToken2Wav
from studio.engine.engine import Engine, EngineLimits
from studio.protocols import RowStep, StepResult, Token2WavStats
from studio.speech import (
    BLOCK_TOKENS,
    FIRST_BLOCK_TOKENS,
    LOOKAHEAD_TOKENS,
    SAMPLE_RATE_HZ,
    SAMPLES_PER_TOKEN,
    Sampling,
    SynthesisRequest,
    VoicePrompt,
)
from tests.engine.conftest import read_all
from tests.parity.test_token2wav_torch import CODES, mini, voice

PAGES = 24


class InThisProcess:
    """The worker's token2wav without its process. Implements Token2Wav."""

    sample_rate_hz, samples_per_token = SAMPLE_RATE_HZ, SAMPLES_PER_TOKEN
    lookahead_tokens, block_tokens = LOOKAHEAD_TOKENS, BLOCK_TOKENS

    def __init__(self, token2wav: TorchToken2Wav) -> None:
        self.real = token2wav

    async def open(
        self, row_id: str, voice: VoicePrompt, seed: int, guidance: float | None = None
    ) -> int:
        return self.real.open(row_id, voice, seed, guidance)

    async def prepare(self, voice: VoicePrompt, guidance: float | None = None) -> None:
        self.real.prepare(voice, guidance)

    async def step(self, rows: Sequence[RowStep]) -> list[StepResult]:
        await asyncio.sleep(0)  # as over a pipe, others come in between
        # The scripted LM counts upwards, beyond the mini flow's codes.
        known = [replace(row, tokens=row.tokens % CODES, lookahead=row.lookahead % CODES) for row in rows]
        return self.real.step(known)

    async def drop(self, row_id: str) -> None:
        self.real.drop(row_id)

    async def stats(self) -> Token2WavStats:
        return self.real.stats()

    async def close(self) -> None:
        """There is no process."""


class Studio:
    """An engine with a scripted LM over real token2wav on mini weights, whose flow has few pages."""

    def __init__(self, first_block_tokens: int = FIRST_BLOCK_TOKENS) -> None:
        self.clock, self.lm = ManualClock(), ScriptedSpeechLM()
        self.token2wav = InThisProcess(
            mini("pages", flow_steps=2, pages=PAGES, first_block_tokens=first_block_tokens)
        )
        limits = EngineLimits(max_ahead_s=1.0, listener_timeout_s=60.0, first_block_tokens=first_block_tokens)
        self.engine = Engine(
            self.lm, self.token2wav, WordFrontend(), limits, clock=self.clock, sleep=self.clock.sleep
        )

    async def submit(self, seed: int):  # type: ignore[no-untyped-def]
        return await self.engine.submit(
            SynthesisRequest("hello dear world", voice(seed), Sampling(seed=seed))
        )

    def pages_of_rows(self) -> int:
        """Pages that are held beyond one for each voice that is ready."""
        stats = self.token2wav.real.stats()
        return stats.flow_pages - stats.flow_pages_free - stats.voices_cached


@pytest_asyncio.fixture
async def studio() -> AsyncIterator[Studio]:
    made = Studio()
    await made.engine.start()
    yield made
    await made.engine.close()


async def test_pages_of_a_listener_who_leaves_are_free_at_once(studio: Studio) -> None:
    studio.lm.enqueue(Say(28), WaitFor(asyncio.Event()))
    stream = await studio.submit(0)
    await anext(stream)
    assert studio.pages_of_rows() > 0
    await stream.aclose()
    assert studio.pages_of_rows() == 0 and studio.token2wav.real.stats().rows_open == 0


async def test_short_first_block_is_heard_after_16_tokens_and_its_player_holds_more_than_that() -> None:
    """What it will hold was told as of a first block of 22 tokens until the first chunk was there."""
    studio, rest = Studio(first_block_tokens=13), asyncio.Event()
    await studio.engine.start()
    studio.lm.enqueue(Say(16, delta_tokens=5), WaitFor(rest), Say(84, delta_tokens=5), Finish())
    async with await studio.submit(0) as stream:
        told_s = stream.prebuffer_s
        first = await anext(stream)
        assert told_s == stream.prebuffer_s
        assert len(first.samples) == 3000 < stream.prebuffer_s * SAMPLE_RATE_HZ < 3000 + SAMPLE_RATE_HZ
        rest.set()
        assert sum([len(chunk.samples) async for chunk in stream]) == 100 * SAMPLES_PER_TOKEN - 3000
    await studio.engine.close()


async def test_one_who_reads_nothing_holds_few_pages_slows_nobody_and_loses_them_in_the_end(
    studio: Studio,
) -> None:
    studio.lm.enqueue(Say(600, delta_tokens=50), Finish())
    idle = await studio.submit(0)
    while idle.waiting_s <= 1.0:
        await asyncio.sleep(0)
    held = studio.pages_of_rows()
    assert 0 < held < PAGES // 2
    studio.lm.enqueue(Say(300, delta_tokens=50), Finish())
    assert len(await read_all(await studio.submit(1))) == 300 * SAMPLES_PER_TOKEN
    assert studio.pages_of_rows() == held
    studio.clock.advance(61.0)
    while studio.token2wav.real.stats().rows_open:
        await asyncio.sleep(0)
    assert studio.pages_of_rows() == 0


async def test_more_listeners_than_pages_all_hear_everything(studio: Studio) -> None:
    tokens = [300, 350, 325, 310]  # two of them at once need more than there are
    for count in tokens:
        studio.lm.enqueue(Say(count, delta_tokens=25), Finish())
    streams = [await studio.submit(seed) for seed in range(len(tokens))]
    sounds = await asyncio.gather(*map(read_all, streams))
    assert [len(sound) for sound in sounds] == [count * SAMPLES_PER_TOKEN for count in tokens]
    assert all(np.isfinite(sound).all() and sound.any() for sound in sounds)
    given_up = (await studio.engine.stats()).given_up
    assert given_up["smaller_batch"] and studio.pages_of_rows() == 0
