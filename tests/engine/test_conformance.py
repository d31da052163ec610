"""One suite for every implementation of the protocols, so that the fakes cannot drift from the real models."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from studio.backends.fake import (
    FakePromptEncoder,
    ScriptedSpeechLM,
    SineToken2Wav,
    WordFrontend,
    voice_prompt,
)
from studio.engine.engine import Engine
from studio.protocols import LmPrompt, RowStep, TokenDelta
from studio.speech import LOOKAHEAD_TOKENS, Float32, Sampling, SynthesisRequest, VoicePrompt
from tests.engine.conftest import read_all
from tests.engine.real import Models

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture(params=["fake", "real"])
def models(request: pytest.FixtureRequest) -> Models:
    if request.param == "real":
        real: Models = request.getfixturevalue("real")
        return real
    return Models(
        ScriptedSpeechLM(), SineToken2Wav(), FakePromptEncoder(), None, voice_prompt("anna"), (1, 2, 3, 4, 5)
    )


def prompt(models: Models) -> LmPrompt:
    return LmPrompt((), models.text_ids, models.voice.speech_tokens)


async def generate(models: Models, request_id: str, seed: int = 0) -> list[TokenDelta]:
    async with aclosing(models.lm.generate(prompt(models), Sampling(seed=seed), request_id)) as deltas:  # type: ignore[type-var]
        return [delta async for delta in deltas]


async def test_lm_gives_codes_until_one_finish_reason(models: Models) -> None:
    deltas = await generate(models, "lm a")
    assert [d.finish_reason for d in deltas[:-1]] == [None] * (len(deltas) - 1)
    assert deltas[-1].finish_reason in ("stop", "length")
    tokens = [token for delta in deltas for token in delta.tokens]
    assert all(0 <= token < 6561 for token in tokens)
    # The embedded voice may say a text id in half a token; the official ratios are 2 and 20.
    assert len(models.text_ids) / 2 <= len(tokens) <= 20 * len(models.text_ids)


async def test_lm_gives_the_same_tokens_for_the_same_seed(models: Models) -> None:
    first, again = await generate(models, "lm b", seed=5), await generate(models, "lm c", seed=5)
    assert [t for d in first for t in d.tokens] == [t for d in again for t in d.tokens]


async def test_lm_serves_requests_side_by_side(models: Models) -> None:
    answers = await asyncio.gather(*(generate(models, f"lm d{n}", seed=n) for n in range(3)))
    assert all(answer[-1].finish_reason for answer in answers)


async def test_lm_request_left_early_frees_its_blocks(models: Models) -> None:
    async with aclosing(models.lm.generate(prompt(models), Sampling(), "lm e")) as deltas:  # type: ignore[type-var]
        await anext(deltas)
    async with asyncio.timeout(120):
        while (stats := await models.lm.stats()).running:
            await asyncio.sleep(0.01)
    assert stats.kv_cache_usage_ratio == 0 and stats.waiting == 0


async def test_lm_ignores_the_abort_of_an_unknown_request(models: Models) -> None:
    await models.lm.abort("nobody")
    assert (await generate(models, "lm f"))[-1].finish_reason


def named(text: str) -> dict[str, float]:
    """The samples of a text of metrics, added up over their labels."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


async def test_lm_exports_the_engine_s_own_metrics_and_nothing_else(models: Models) -> None:
    before = named(await models.lm.metrics())
    deltas = await generate(models, "lm g")
    text = await models.lm.metrics()
    after = named(text)
    assert all(name.startswith("vllm:") for name in after)
    assert {"vllm:num_requests_running", "vllm:num_requests_waiting"} <= after.keys()
    # The end id that stopped it is a token for the engine, and none of speech.
    made = after["vllm:generation_tokens_total"] - before["vllm:generation_tokens_total"]
    assert made - sum(len(delta.tokens) for delta in deltas) in (0, 1)
    assert "/" not in text and "_info" not in text


async def test_cache_of_prompts_can_be_forgotten(models: Models) -> None:
    await generate(models, "lm h")
    assert await models.lm.reset_prefix_cache()
    hits = (await models.lm.stats()).prefix_cache_hits_tokens
    await generate(models, "lm i")
    assert (await models.lm.stats()).prefix_cache_hits_tokens == hits


async def voiced(models: Models, row_id: str, count: int, voice: VoicePrompt | None = None) -> list[Float32]:
    """The sound of a row, block by block."""
    tokens = (np.arange(count) % 200).astype(np.int32)
    block = await models.token2wav.open(row_id, voice or models.voice, 3)
    sound, at = [], 0
    while count - at >= block + LOOKAHEAD_TOKENS:
        ahead = tokens[at + block : at + block + LOOKAHEAD_TOKENS]
        sound += await models.token2wav.step([RowStep(row_id, tokens[at : at + block], ahead, False)])
        at, block = at + block, models.token2wav.block_tokens
    sound += await models.token2wav.step([RowStep(row_id, tokens[at:], np.zeros(0, np.int32), True)])
    assert all(result.error is None and result.row_id == row_id for result in sound)
    return [result.samples for result in sound if result.samples is not None]


async def test_token2wav_first_block_is_one_block_or_less_than_two(models: Models) -> None:
    first = await models.token2wav.open("t2w a", models.voice, 0)
    assert 1 <= first < 2 * models.token2wav.block_tokens
    await models.token2wav.drop("t2w a")


@pytest.mark.parametrize("count", [1, 25, 60])
async def test_token2wav_gives_960_samples_a_token(models: Models, count: int) -> None:
    sound = await voiced(models, f"t2w b{count}", count)
    assert sum(len(part) for part in sound) == count * models.token2wav.samples_per_token == count * 960
    assert all(part.dtype == np.float32 and np.abs(part).max(initial=0) <= 1 for part in sound)
    assert (await models.token2wav.stats()).rows_open == 0


async def test_token2wav_rows_of_one_batch_keep_apart(models: Models) -> None:
    for row_id in ("t2w c", "t2w d"):
        await models.token2wav.open(row_id, models.voice, 3)
    tokens = {"t2w c": 30, "t2w d": 12}
    steps = [RowStep(r, np.arange(n, dtype=np.int32), np.zeros(0, np.int32), True) for r, n in tokens.items()]
    unknown = RowStep("t2w nobody", np.zeros(5, np.int32), np.zeros(0, np.int32), True)
    results = await models.token2wav.step([*steps, unknown])
    assert [r.row_id for r in results] == ["t2w c", "t2w d", "t2w nobody"]
    assert [len(r.samples) for r in results if r.samples is not None] == [30 * 960, 12 * 960]
    assert results[2].error is not None


async def test_token2wav_same_row_sounds_the_same_again(models: Models) -> None:
    first, again = await voiced(models, "t2w e", 40), await voiced(models, "t2w f", 40)
    np.testing.assert_allclose(np.concatenate(first), np.concatenate(again), atol=1e-6)


async def test_token2wav_forgets_dropped_rows_and_ignores_unknown_ones(models: Models) -> None:
    await models.token2wav.open("t2w g", models.voice, 0)
    await models.token2wav.drop("t2w g")
    await models.token2wav.drop("t2w nobody")
    await voiced(models, "t2w h", 1)  # comes after the drop, which is one-way
    assert (await models.token2wav.stats()).rows_open == 0


async def test_prompt_encoder_gives_two_mel_frames_a_token(models: Models) -> None:
    clip = (np.sin(np.arange(48_000) / 20) / 3).astype(np.float32)
    voice = await models.encoder.encode(clip, 24_000, "two seconds")
    assert len(voice.mel) == 2 * len(voice.speech_tokens) and 48 <= len(voice.speech_tokens) <= 51
    assert voice.prompt_text == "two seconds" and voice.speaker_embedding.shape == (192,)
    assert (await models.encoder.encode(clip, 24_000, "two seconds")).key == voice.key
    assert (await models.encoder.encode(clip, 24_000, "other words")).key != voice.key


async def test_engine_speaks_and_frees_all(models: Models) -> None:
    engine = Engine(models.lm, models.token2wav, models.frontend or WordFrontend())
    await engine.start()
    request = SynthesisRequest("It is a fine day. See you tomorrow.", models.voice)
    sound = await read_all(await engine.submit(request))
    (summary,) = (await engine.stats()).last_requests
    pauses = summary.segments - 1
    assert len(sound) == summary.tokens * 960 + pauses * 3600 and summary.reason == "stop"
    stream = await engine.submit(request)
    await anext(stream)
    await stream.aclose()
    async with asyncio.timeout(120):
        while (await models.lm.stats()).running or (await models.token2wav.stats()).rows_open:
            await asyncio.sleep(0.01)
    await engine._voicing.close()  # closing the engine would close the models, which others share
