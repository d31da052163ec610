"""Text that arrives while it is spoken, and speech of a clip in another voice, on the fakes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import numpy as np
import pytest

from studio.backends.fake import Finish, Say, WordFrontend, voice_prompt
from studio.errors import InvalidRequest
from studio.protocols import LmPrompt, LmTurn
from studio.speech import SAMPLES_PER_TOKEN, Sampling, SpokenRow, SynthesisRequest, VoicingRequest
from tests.engine.conftest import Stage, read_all


def arriving(*pieces: str) -> tuple[asyncio.Queue[str | None], AsyncIterator[str]]:
    """A queue that a test fills, None at the end, and its pieces."""
    queue: asyncio.Queue[str | None] = asyncio.Queue()
    for piece in pieces:
        queue.put_nowait(piece)

    async def given() -> AsyncIterator[str]:
        while (piece := await queue.get()) is not None:
            yield piece

    return queue, given()


def request_of(interleaved: bool = False, seed: int = 0) -> SynthesisRequest:
    return SynthesisRequest("", voice_prompt("anna", 20), Sampling(seed=seed), interleaved=interleaved)


async def test_a_sentence_is_heard_before_the_next_one_is_written(stage: Stage) -> None:
    written, pieces = arriving("This sentence is whole and long enough. And ")
    stream = await stage.engine.submit_arriving(request_of(), pieces)
    async with stream:
        first = await anext(stream)
        assert len(first.samples)
        assert len(stage.lm.prompts) == 1
        written.put_nowait("so is this one, as soon as the text ends.")
        written.put_nowait(None)
        rest = [chunk async for chunk in stream]
    assert rest and len(stage.lm.prompts) == 2
    assert [s.seed for s in stage.lm.samplings] == [0, 1]
    assert await stage.all_is_free()


async def test_arriving_text_is_spoken_as_the_same_text_given_whole(stage: Stage) -> None:
    text = "This sentence is whole and long enough. And so is this one, as soon as the text ends."
    whole = await read_all(await stage.engine.submit(SynthesisRequest(text, voice_prompt("anna", 20))))
    written, pieces = arriving(*(text[n : n + 7] for n in range(0, len(text), 7)))
    written.put_nowait(None)
    parts = await read_all(await stage.engine.submit_arriving(request_of(), pieces))
    assert np.array_equal(parts, whole)


@pytest.mark.parametrize("language", ["", "zh"])
async def test_text_is_read_in_the_language_of_its_request_also_while_it_arrives(stage: Stage, language: str) -> None:
    (wanted,) = WordFrontend().reading(language).segments("one two three")
    await read_all(await stage.submit("one two three", language=language))
    for interleaved in (False, True):
        written, pieces = arriving("one two three")
        written.put_nowait(None)
        request = replace(request_of(interleaved), language=language)
        await read_all(await stage.engine.submit_arriving(request, pieces))
    whole, sentence, turn = stage.lm.prompts
    assert whole.text_ids == sentence.text_ids == wanted.token_ids
    fed = [text_id for kind, ids in turn.parts if kind == "text" for text_id in ids]
    assert tuple(fed[-3:]) == wanted.token_ids


async def test_words_of_an_interleaved_text_are_spoken_before_their_sentence_is_whole(stage: Stage) -> None:
    written, pieces = arriving("one two three four five six ")
    stream = await stage.engine.submit_arriving(request_of(interleaved=True, seed=9), pieces)
    async with stream:
        # Ten ids go with the prompt's 20 tokens, then 10 draws, 5 ids, 15 draws, 5 ids, 15 draws: a block and more.
        written.put_nowait("seven eight nine ten eleven twelve thirteen a b c d e ")
        assert len((await anext(stream)).samples)
        assert not any(isinstance(turn, LmPrompt) or turn.whole for turn in stage.lm.prompts)
        stage.lm.enqueue(Say(30), Finish())
        written.put_nowait("fourteen")
        written.put_nowait(None)
        _ = [chunk async for chunk in stream]
    last = stage.lm.prompts[-1]
    assert isinstance(last, LmTurn) and last.whole
    assert sum(len(ids) for kind, ids in last.parts if kind == "text") == 2 + 19
    assert [s.seed for s in stage.lm.samplings[:2]] == [9, (9 + 0x9E3779B1) % 2**32]
    assert await stage.all_is_free()


async def test_last_turn_without_a_token_ends_speech_that_was_made_before(stage: Stage) -> None:
    written, pieces = arriving("a b c d e ")
    stage.lm.enqueue(Say(15), Finish("length"))
    stage.lm.enqueue(Finish())
    written.put_nowait(None)
    request = SynthesisRequest("", voice_prompt("anna", 0, ""), mode="preset", interleaved=True)
    samples = await read_all(await stage.engine.submit_arriving(request, pieces))
    assert len(samples) == 15 * SAMPLES_PER_TOKEN


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("text", ["", "  ", "\n"])
async def test_arriving_text_without_a_word_is_told_by_the_stream(
    stage: Stage, interleaved: bool, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(_: WordFrontend, given: str) -> None:
        if not given.strip():
            raise InvalidRequest("text.empty", param="input")

    monkeypatch.setattr(WordFrontend, "check", check)
    written, pieces = arriving(text)
    written.put_nowait(None)
    with pytest.raises(InvalidRequest) as caught:
        await read_all(await stage.engine.submit_arriving(request_of(interleaved), pieces))
    assert caught.value.key == "text.empty"
    assert await stage.all_is_free()


async def test_who_leaves_while_text_arrives_frees_everything(stage: Stage) -> None:
    _, pieces = arriving("This sentence is whole and long enough. And ")
    stream = await stage.engine.submit_arriving(request_of(), pieces)
    async with stream:
        await anext(stream)
    assert await stage.all_is_free()


async def test_conversion_voices_the_clip_s_tokens_and_asks_no_lm(stage: Stage) -> None:
    tokens = np.arange(60, dtype=np.int32)
    stream = await stage.engine.voice(VoicingRequest((SpokenRow(tokens.tolist()),), voice_prompt("anna")))
    samples = await read_all(stream)
    assert len(samples) == 60 * SAMPLES_PER_TOKEN
    assert not stage.lm.prompts
    assert np.concatenate([row.tokens for step in stage.token2wav.steps for row in step]).tolist() == tokens.tolist()
    assert await stage.all_is_free()
