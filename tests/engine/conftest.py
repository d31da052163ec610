"""The engine on fakes, with a clock that tests advance."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from studio.backends.fake import ManualClock, ScriptedSpeechLM, SineToken2Wav, WordFrontend, voice_prompt
from studio.engine.engine import Engine, EngineLimits, TextFrontend
from studio.engine.stream import SpeechStream
from studio.engine.worker import WorkerState
from studio.speech import Float32, Sampling, SynthesisRequest
from tests.engine.real import Models, real_models


class FakeWorker:
    """A supervised worker whose phase the test sets."""

    def __init__(self, name: str, phase: str = "ready") -> None:
        self.state = WorkerState(name, phase=phase)  # type: ignore[arg-type]
        self.observers: list[Callable[[WorkerState], None]] = []

    async def start(self) -> None:
        self.to(self.state.phase)

    def subscribe(self, observer: Callable[[WorkerState], None]) -> None:
        self.observers.append(observer)

    def expected_ready_s(self) -> float:
        return 0.0 if self.state.phase == "ready" else 12.0

    def to(self, phase: str, stage: str = "stage.weights", fraction: float = 0.0, reason: str = "") -> None:
        self.state = WorkerState(self.state.name, phase, stage, fraction, reason=reason)  # type: ignore[arg-type]
        for observer in self.observers:
            observer(self.state)


@dataclass
class Stage:
    """An engine and everything behind it, within a test's reach."""

    engine: Engine
    lm: ScriptedSpeechLM
    token2wav: SineToken2Wav
    clock: ManualClock
    workers: tuple[FakeWorker, ...]

    async def submit(
        self,
        text: str = "hello dear world",
        voice: str = "anna",
        client: str = "local",
        seed: int = 0,
        **more: Any,
    ) -> SpeechStream:
        request = SynthesisRequest(text, voice_prompt(voice), Sampling(seed=seed), client, **more)
        return await self.engine.submit(request)

    async def all_is_free(self) -> bool:
        """Nothing is held anywhere: no request, no tokens being made, no row."""
        state, lm, token2wav = self.engine.state(), await self.lm.stats(), await self.token2wav.stats()
        stats = await self.engine.stats()
        return (state.running, state.waiting, lm.running, token2wav.rows_open, stats.rows_open) == (0, 0, 0, 0, 0)


async def read_all(stream: SpeechStream) -> Float32:
    """Every sample of a request; closes it."""
    async with stream:
        chunks = [chunk.samples async for chunk in stream]
    return np.concatenate(chunks) if chunks else np.zeros(0, np.float32)


@pytest.fixture
async def make_stage() -> AsyncIterator[Callable[..., Stage]]:
    made: list[Engine] = []

    def make(text: TextFrontend | None = None, **limits: float) -> Stage:
        lm, token2wav, clock = ScriptedSpeechLM(), SineToken2Wav(), ManualClock()
        workers = (FakeWorker("speech LM"), FakeWorker("token2wav"))
        engine = Engine(
            lm, token2wav, text or WordFrontend(), EngineLimits(**limits),  # type: ignore[arg-type]
            workers=workers, clock=clock, sleep=clock.sleep,
        )  # fmt: skip
        made.append(engine)
        return Stage(engine, lm, token2wav, clock, workers)

    yield make
    for engine in made:
        await engine.close()


@pytest.fixture
async def stage(make_stage: Callable[..., Stage]) -> Stage:
    made = make_stage()
    await made.engine.start()
    return made


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def real(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Models]:
    """The real models on the embedded voice, held by their protocols, which app.py does not show over HTTP.

    Gone after the one module that asks, so that they never run beside the studio of tests/real_studio.py.
    """
    async with real_models(tmp_path_factory.mktemp("cache")) as models:
        yield models
