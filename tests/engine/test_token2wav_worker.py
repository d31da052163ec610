"""The real token2wav program on mini weights: steps over its pipe, encodes clips meanwhile, and is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
import pytest_asyncio

from studio.backends.fake import voice_prompt
from studio.engine.token2wav_client import PromptEncoderClient, Token2WavClient
from studio.engine.worker import WorkerProcess
from studio.errors import EngineDead, EngineNotReady, UnusablePromptSpeech
from studio.protocols import RowStep
from tests.engine.checkpoints import write_token2wav

pytestmark = pytest.mark.asyncio(loop_scope="module")

COMMAND = [sys.executable, "-m", "studio.backends.torch_token2wav"]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["auto", "pages"])
async def worker(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> AsyncIterator[WorkerProcess]:
    folder = write_token2wav(tmp_path_factory.mktemp("checkpoint"))
    settings = {
        "model_dir": str(folder), "device": "cpu", "token2wav_threads": 1, "flow_steps": 4, "flow_cache": request.param,
        "first_block_tokens": 13 if request.param == "pages" else 22,
    }  # fmt: skip
    made = WorkerProcess(COMMAND, "token2wav", settings)
    await made.start()
    await made.wait_ready()
    yield made
    await made.close()


def final(row_id: str, tokens: int) -> RowStep:
    return RowStep(row_id, np.arange(tokens, dtype=np.int32), np.zeros(0, np.int32), True)


async def test_setting_of_the_flows_steps_reaches_the_flow(worker: WorkerProcess) -> None:
    assert worker.state.facts["flow_steps"] == 4


async def test_setting_of_the_first_block_reaches_the_flow(worker: WorkerProcess) -> None:
    token2wav, wanted = Token2WavClient(worker), 13 if worker.state.facts["flow_cache"] == "pages" else 22
    assert await token2wav.open("first", voice_prompt("first"), 0) == worker.state.facts["first_block_tokens"] == wanted
    await token2wav.drop("first")


async def test_pages_of_the_flow_are_told(worker: WorkerProcess) -> None:
    facts, stats = worker.state.facts, await Token2WavClient(worker).stats()
    assert (stats.flow_pages, stats.flow_page_bytes) == (facts.get("flow_pages", 0), facts.get("flow_page_bytes", 0))
    assert (stats.flow_pages > 0) == (facts["flow_cache"] == "pages") and facts["flow_frame_bytes"] > 0


async def test_prompt_encoder_says_what_it_runs_on(worker: WorkerProcess) -> None:
    assert worker.state.facts["prompt_encoder"] == "CPUExecutionProvider"


async def test_voice_prepared_ahead_is_there_when_its_row_is_opened(worker: WorkerProcess) -> None:
    token2wav = Token2WavClient(worker)
    cached = (await token2wav.stats()).voices_cached
    await token2wav.prepare(voice_prompt("early"))
    await token2wav.open("early", voice_prompt("early"), 0)
    (result,) = await token2wav.step([final("early", 3)])
    assert result.samples is not None and (await token2wav.stats()).voices_cached == cached + 1


async def test_rows_are_opened_stepped_and_dropped_over_the_pipe(worker: WorkerProcess) -> None:
    token2wav = Token2WavClient(worker)
    cached = (await token2wav.stats()).voices_cached
    assert await token2wav.open("a", voice_prompt("anna"), 0) > 0
    await token2wav.open("b", voice_prompt("ben"), 0)
    first, second = await token2wav.step([final("a", 10), final("never opened", 5)])
    assert first.samples is not None and first.samples.shape == (9600,) and second.error == "no such row"
    assert (await token2wav.stats()).rows_open == 1
    await token2wav.drop("b")
    await token2wav.open("c", voice_prompt("ben"), 0)  # answered in order, so the drop is done by then
    await token2wav.step([final("c", 1)])
    stats = await token2wav.stats()
    assert (stats.rows_open, stats.voices_cached) == (0, cached + 2)


async def test_sound_is_the_same_by_the_shelf_and_over_the_pipe(worker: WorkerProcess) -> None:
    assert worker.state.facts["shelf"]
    sounds = []
    for state in (worker.state, replace(worker.state, facts={})):
        token2wav = Token2WavClient(cast(WorkerProcess, SimpleNamespace(state=state, call=worker.call)))
        await token2wav.open("g", voice_prompt("anna"), 3)
        result, none = await token2wav.step([final("g", 40), final("never opened", 5)])
        assert result.samples is not None and none.samples is None
        sounds.append(result.samples)
    assert np.array_equal(*sounds) and len(sounds[0]) == 40 * 960


async def test_clip_is_encoded_while_rows_are_stepped(worker: WorkerProcess) -> None:
    token2wav, encoder = Token2WavClient(worker), PromptEncoderClient(worker)
    clip = np.sin(np.arange(48_000) / 20).astype(np.float32) / 3
    await token2wav.open("d", voice_prompt("anna"), 0)
    voice, (result,) = await asyncio.gather(encoder.encode(clip, 24_000, "hello"), token2wav.step([final("d", 20)]))
    assert len(voice.mel) == 2 * len(voice.speech_tokens) and voice.prompt_text == "hello"
    assert result.samples is not None


async def test_clip_that_cannot_be_cloned_is_refused_by_type(worker: WorkerProcess) -> None:
    with pytest.raises(UnusablePromptSpeech) as caught:
        await PromptEncoderClient(worker).encode(np.zeros(100, np.float32), 24_000, "hello")
    assert caught.value.key == "clip.too_short"


async def test_broken_checkpoint_is_told_and_not_tried_again(tmp_path: Path) -> None:
    folder = write_token2wav(tmp_path)
    (folder / "flow.pt").write_bytes(b"no weights")
    broken = WorkerProcess(COMMAND, "token2wav", {"model_dir": str(folder), "token2wav_threads": 1})
    await broken.start()
    with pytest.raises(EngineNotReady, match=r"flow\.pt"):
        await broken.wait_ready()
    assert broken.state.restarts == 0
    await broken.close()


async def test_kill_9_in_a_step_is_told_and_the_next_life_serves(worker: WorkerProcess) -> None:
    token2wav = Token2WavClient(worker)
    await token2wav.open("e", voice_prompt("anna"), 0)
    step = asyncio.create_task(token2wav.step([final("e", 1000)]))
    await asyncio.sleep(0)
    assert worker.state.pid is not None
    os.kill(worker.state.pid, signal.SIGKILL)
    with pytest.raises(EngineDead):
        await step
    await worker.wait_ready()
    await token2wav.open("f", voice_prompt("anna"), 0)
    (result,) = await token2wav.step([final("f", 2)])
    assert result.samples is not None and worker.state.restarts == 1
