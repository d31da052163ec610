"""Several engines on one device: which of them a request goes to, and which GPU each takes. No engine, no model."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from studio.backends import vllm_compat
from studio.backends.vllm_compat import EngineCounters
from studio.backends.vllm_speech_lm import VllmSpeechLM
from studio.errors import RequestAborted, SpeechLMError
from studio.models.speech_lm.layout import SpeechLmLayout, TokenBounds
from studio.protocols import LmPrompt
from studio.speech import Sampling

CODES, TEXT_IDS = 243, 512
PROMPT = LmPrompt((), (1, 2, 3), np.zeros(0, np.int32))


class ScriptedEngine:
    """What VllmSpeechLM calls of AsyncLLM: each request speaks one token and then waits to be told how it ends."""

    def __init__(self) -> None:
        self.took: dict[str, int | None] = {}
        """The number of the engine that each request was sent to, by its id."""
        self.closed: list[str] = []
        self._ends: dict[str, asyncio.Future[str]] = {}

    async def generate(
        self, prompt: Any, params: Any, request_id: str, *, data_parallel_rank: int | None
    ) -> AsyncIterator[Any]:
        self.took[request_id] = data_parallel_rank
        end = self._ends[request_id] = asyncio.get_running_loop().create_future()
        try:
            yield output_of([7], None)
            yield output_of([8], await end)
        finally:
            self.closed.append(request_id)

    def end(self, request_id: str, reason: str | Exception) -> None:
        end = self._ends[request_id]
        end.set_exception(reason) if isinstance(reason, Exception) else end.set_result(reason)


def output_of(tokens: list[int], reason: str | None) -> Any:
    return SimpleNamespace(outputs=[SimpleNamespace(token_ids=tokens, finish_reason=reason)])


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine()


def speech_lm(engine: ScriptedEngine, engines: int) -> VllmSpeechLM:
    layout, bounds = SpeechLmLayout(CODES, TEXT_IDS), TokenBounds(2.0, 20.0, False)
    return VllmSpeechLM(engine, layout, EngineCounters(), 4096, bounds, engines)  # type: ignore[arg-type]


async def begin(lm: VllmSpeechLM, name: str) -> AsyncIterator[Any]:
    """A request whose first token has come."""
    stream = lm.generate(PROMPT, Sampling(), name)
    assert (await anext(stream)).tokens == (7,)
    return stream


async def rest(stream: AsyncIterator[Any]) -> list[int]:
    return [token async for delta in stream for token in delta.tokens]


async def test_one_engine_is_given_no_number(engine):
    lm = speech_lm(engine, 1)
    streams = [await begin(lm, name) for name in "ab"]
    assert engine.took == {"a": None, "b": None} and len(streams) == 2


async def test_each_request_goes_where_the_fewest_run(engine):
    lm = speech_lm(engine, 3)
    streams = {name: await begin(lm, name) for name in "abcdefg"}
    assert list(engine.took.values()) == [0, 1, 2, 0, 1, 2, 0]
    for name in "be":
        engine.end(name, "stop")
        assert await rest(streams[name]) == [8]
    streams |= {name: await begin(lm, name) for name in "hijk"}
    assert [engine.took[name] for name in "hijk"] == [1, 1, 1, 2]


async def left(engine: ScriptedEngine, stream: Any) -> None:
    await stream.aclose()


async def failed(engine: ScriptedEngine, stream: Any) -> None:
    engine.end("first", ValueError("no such thing"))
    with pytest.raises(SpeechLMError, match="no such thing"):
        await rest(stream)


async def aborted(engine: ScriptedEngine, stream: Any) -> None:
    engine.end("first", "abort")
    with pytest.raises(RequestAborted):
        await rest(stream)


async def cancelled(engine: ScriptedEngine, stream: Any) -> None:
    reading = asyncio.create_task(rest(stream))
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


@pytest.mark.parametrize("gone", [left, failed, aborted, cancelled])
async def test_a_request_that_is_gone_leaves_its_engine_a_place(engine, gone):
    lm = speech_lm(engine, 2)
    stream = await begin(lm, "first")
    await gone(engine, stream)
    assert engine.closed == ["first"]
    again = [await begin(lm, name) for name in ("next", "beside it")]
    assert engine.took == {"first": 0, "next": 0, "beside it": 1} and len(again) == 2


async def test_a_prompt_that_is_refused_takes_no_place(engine):
    lm = speech_lm(engine, 2)
    with pytest.raises(SpeechLMError, match="text id 512"):
        await anext(lm.generate(LmPrompt((), (TEXT_IDS,), PROMPT.speech_tokens), Sampling(), "bad"))
    streams = [await begin(lm, name) for name in ("good", "beside it")]
    assert engine.took == {"good": 0, "beside it": 1} and len(streams) == 2


async def test_a_warm_up_runs_each_engine_at_each_size(engine):
    lm, took = speech_lm(engine, 2), Counter[int | None]()

    async def all_at_once() -> None:
        while True:
            await asyncio.sleep(0)
            if waiting := [name for name, end in engine._ends.items() if not end.done()]:
                took.update(engine.took[name] for name in waiting)
                for name in waiting:
                    engine.end(name, "stop")

    ending = asyncio.create_task(all_at_once())
    done: list[int] = []
    await lm.warm_up([2, 6], done.append)
    ending.cancel()
    assert done == [1, 2] and took == {0: 4, 1: 4}


@pytest.mark.parametrize("name", [vllm_compat.SHARING_WORKER, vllm_compat.SHARING_GRAPHED_WORKER])
def test_each_engine_takes_the_first_gpu_whatever_its_number(monkeypatch, name):
    """vLLM's own worker adds the number among its copies to the number of the GPU; here it is told of none."""
    # Importing vLLM takes a while; whoever only collects the tests need not wait for it.
    from vllm.utils.import_utils import resolve_obj_by_qualname
    from vllm.v1.worker.gpu_worker import Worker

    from studio.backends import vllm_graphs

    seen: list[tuple[Any, int | None]] = []

    def init_device(worker: Any) -> None:
        seen.append((worker, worker.parallel_config.data_parallel_rank_local))

    attention, plain = flash_attention()
    monkeypatch.setattr(Worker, "init_device", init_device)
    monkeypatch.setattr(vllm_graphs, "get_flash_attn_version", lambda: 3)
    monkeypatch.setattr(vllm_graphs, "flash_attn", attention)
    of = resolve_obj_by_qualname(name)
    assert issubclass(of, Worker)
    worker = of.__new__(of)
    worker.parallel_config = SimpleNamespace(data_parallel_rank_local=1)
    worker.init_device()
    assert seen == [(worker, 0)]
    kept = [getattr(attention, told) is not plain for told in vllm_graphs.TOLD]
    assert kept == [name == vllm_compat.SHARING_GRAPHED_WORKER] * 2
    if all(kept):
        assert [getattr(attention, told)(max_seqlen_q=1) for told in vllm_graphs.TOLD] == [2, 2]


def flash_attention() -> tuple[ModuleType, Callable[..., int]]:
    """vLLM's attention with functions that give the queries they are told of; and the function that they are."""
    from studio.backends.vllm_graphs import TOLD

    def plain(*, max_seqlen_q: int) -> int:
        return max_seqlen_q

    module = ModuleType("flash_attn")
    for name in TOLD:
        setattr(module, name, plain)
    return module, plain
