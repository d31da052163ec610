"""The real speech LM worker on vLLM's CPU engine, with a small random checkpoint; its engines are killed in the end.

One worker serves all tests of this file, first with one engine, then with two. vLLM's CPU attention has no kernel for
the mini fixture's head size (16), so the checkpoint here has heads of 64, and the plain network, which holds the
fixture, is what vLLM is compared with.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
import pytest_asyncio
import torch

from studio.engine.lm_client import SpeechLMClient
from studio.engine.worker import WorkerProcess
from studio.errors import EngineDead, RequestAborted, SpeechLMError
from studio.models.speech_lm.layout import SpeechLmLayout
from studio.models.speech_lm.qwen2 import SpeechLm, causal_attend, sizes_from_config
from studio.protocols import FILL, LmPrompt, LmStats, LmTurn
from studio.speech import Sampling
from tests.fixtures import make_weights

FIXTURES = Path(__file__).parents[1] / "fixtures"
CODES, TEXT_IDS = 243, 512
END_IDS = (243, 244, 245)
LONG = 2000
"""Text ids that take 4000 tokens at the least, many seconds: time to act while such a request runs."""
CONFIG = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": TEXT_IDS, "hidden_size": 128,
    "intermediate_size": 192, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
    "hidden_act": "silu", "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
    "tie_word_embeddings": True, "use_sliding_window": False,
}  # fmt: skip

pytestmark = pytest.mark.asyncio(loop_scope="module")


def random_tensors() -> dict[str, torch.Tensor]:
    """The fixtures' recipe for weights, with the mini's names at this file's sizes; ends are made likely."""
    sizes = {64: CONFIG["hidden_size"], 128: CONFIG["intermediate_size"], 32: 64}
    shapes = json.loads((FIXTURES / "keys" / "mini_llm.json").read_text())
    wide = {name: tuple(sizes.get(n, n) for n in shape) for name, shape in shapes.items()}
    tensors = {name: torch.from_numpy(make_weights.tensor(name, shape)) for name, shape in wide.items()}
    tensors["llm_decoder.bias"][CODES:] += 1.0
    return tensors


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    torch.save(random_tensors(), folder / "llm.pt")
    (folder / "cosyvoice2.yaml").write_text("checkpoint: {id: random, most_tokens_are_end: false}\n")
    (folder / "CosyVoice-BlankEN").mkdir()
    (folder / "CosyVoice-BlankEN" / "config.json").write_text(json.dumps(CONFIG))
    return folder


@pytest.fixture(scope="module")
def settings(checkpoint, tmp_path_factory) -> dict[str, object]:
    return {
        "model_dir": str(checkpoint), "cache_dir": str(tmp_path_factory.mktemp("cache")), "device": "cpu",
        "kv_cache_gib": 0.0625, "max_num_seqs": 8, "max_model_len": 8192, "max_num_batched_tokens": 1024,
        "lm_threads": 1,
    }  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def worker(settings) -> AsyncIterator[WorkerProcess]:
    made = WorkerProcess([sys.executable, "-m", "studio.backends.vllm_lm"], "speech LM", settings)
    await made.start()
    await made.wait_ready()
    yield made
    await made.close()


@pytest.fixture
def lm(worker) -> SpeechLMClient:
    return SpeechLMClient(worker)


def prompt_of(seed: int, text: int = 6, speech: int = 70) -> LmPrompt:
    draw = np.random.RandomState(seed)
    return LmPrompt(
        tuple(draw.randint(0, TEXT_IDS, 12).tolist()), tuple(draw.randint(0, TEXT_IDS, text).tolist()),
        draw.randint(0, CODES, speech).astype(np.int32),
    )  # fmt: skip


async def speak(lm, prompt, seed, name) -> tuple[list[int], str]:
    tokens: list[int] = []
    reason = None
    async for delta in lm.generate(prompt, Sampling(seed=seed), name):
        tokens += delta.tokens
        reason = delta.finish_reason
    return tokens, reason


async def test_log_probabilities_are_those_of_the_plain_network(worker):
    tensors = random_tensors()
    plain = SpeechLm(sizes_from_config(CONFIG, speech_codes=CODES))
    plain.load_official(tensors)
    prompt, spoken = prompt_of(1), np.random.RandomState(2).randint(0, CODES, 12).tolist()
    ids = SpeechLmLayout(CODES, TEXT_IDS).prompt_ids(
        prompt.prompt_text_ids, prompt.text_ids, prompt.speech_tokens
    )
    with torch.no_grad():
        whole = torch.tensor([ids + spoken])
        hidden = plain(whole, torch.arange(whole.shape[1])[None], causal_attend)[0, len(ids) - 1 :]
        expected = torch.log_softmax(plain.scores(hidden), dim=-1).numpy()
    got = [
        await worker.call("next_log_probs", prompt=prompt, spoken=spoken[:n], request_id=f"scores {n}")
        for n in range(len(spoken) + 1)
    ]
    assert np.abs(np.stack(got) - expected).max() <= 1e-3


async def test_first_token_is_drawn_by_the_law(lm, worker):
    """Chi-square over 240 seeds against the nucleus; limit at z = 3.7; seeds are fixed."""
    prompt = prompt_of(3, text=1)
    logp = await worker.call("next_log_probs", prompt=prompt, spoken=[], request_id="law")
    logp[CODES:] = -np.inf  # below the least number of tokens all ends are masked
    p = np.exp(logp.astype(np.float64))
    p /= p.sum()
    order = np.argsort(-p, kind="stable")
    before = np.concatenate([[0], np.cumsum(p[order])[:-1]])
    inside = order[(before < 0.8) & (np.arange(len(p)) < 25)]
    answers = await asyncio.gather(*(speak(lm, prompt, seed, f"law {seed}") for seed in range(240)))
    spoken = [tokens[0] for tokens, _ in answers]
    assert set(spoken) <= set(inside.tolist())
    expected = p[inside] / p[inside].sum() * len(spoken)
    observed = np.array([spoken.count(i) for i in inside])
    freedom = len(inside) - 1
    limit = freedom * (1 - 2 / (9 * freedom) + 3.7 * (2 / (9 * freedom)) ** 0.5) ** 3
    assert ((observed - expected) ** 2 / expected).sum() < limit


async def test_a_seed_gives_the_same_tokens_alone_again_and_beside_seven_others(worker, lm):
    prompt = prompt_of(4, text=12)
    alone, _ = await speak(lm, prompt, 5, "alone")
    again, _ = await speak(lm, prompt, 5, "again")
    beside = await asyncio.gather(
        speak(lm, prompt, 5, "beside"),
        *(speak(lm, prompt_of(20 + i, text=12), i, f"other {i}") for i in range(7)),
    )
    other, _ = await speak(lm, prompt, 6, "other seed")
    assert len(alone) >= 24
    assert alone == again == beside[0][0]
    assert worker.state.facts["seed_holds"] == "beside_others"  # what the page then says
    assert other != alone


async def test_length_stays_within_two_and_twenty_tokens_a_text_id_and_ends_are_never_handed_out(lm):
    answers = await asyncio.gather(
        *(speak(lm, prompt_of(40 + i, text=1), i, f"length {i}") for i in range(60))
    )
    for tokens, reason in answers:
        assert 2 <= len(tokens) <= 20
        assert (reason == "length") == (len(tokens) == 20)
        assert reason in ("stop", "length")
        assert all(0 <= t < CODES for t in tokens)
    # Both ways of ending came up, and some speech ended as soon as it was allowed to.
    assert {reason for _, reason in answers} == {"stop", "length"}
    assert min(len(tokens) for tokens, _ in answers) == 2


async def test_an_end_is_never_drawn_too_early(lm):
    """Unmasked, one of the three ends would come within the first 24 tokens in nearly every one of these."""
    answers = await asyncio.gather(
        *(speak(lm, prompt_of(110 + i, text=12), i, f"early {i}") for i in range(16))
    )
    assert min(len(tokens) for tokens, _ in answers) >= 24


async def test_each_request_keeps_its_own_sampling_beside_others(lm, worker):
    """With one candidate and no repetition rule the seed has no say; beside it the defaults still draw.

    A cold request draws no token whose score is twelve temperatures below the best (odds of a draw 1 to 160,000).
    """
    prompt, greedy = prompt_of(15, text=8), Sampling(top_k=1, window=0)

    async def tokens_of(sampling: Sampling, name: str) -> list[int]:
        return [t async for d in lm.generate(prompt, sampling, name) for t in d.tokens]

    async def all_near_the_best(tokens: list[int]) -> bool:
        asked = [
            worker.call("next_log_probs", prompt=prompt, spoken=tokens[:n], request_id=f"after {n}")
            for n in range(8)
        ]
        scores = [
            answer[:CODES] for answer in await asyncio.gather(*asked)
        ]  # ends are masked: it is too early
        return all(row.max() - row[token] < 12 * 0.05 for row, token in zip(scores, tokens[:8], strict=True))

    sure, other_seed, drawn, drawn_too, cold = await asyncio.gather(
        tokens_of(greedy, "greedy"), tokens_of(replace(greedy, seed=7), "greedy 7"),
        tokens_of(Sampling(seed=1), "drawn"), tokens_of(Sampling(seed=2), "drawn too"),
        tokens_of(replace(greedy, temperature=0.05, top_k=25), "cold"),
    )  # fmt: skip
    assert sure[:16] == other_seed[:16]
    assert drawn[:16] != sure[:16] and drawn[:16] != drawn_too[:16]
    assert await all_near_the_best(cold) and not await all_near_the_best(drawn)


async def test_turns_end_with_the_fill_or_when_it_is_due_and_the_last_one_with_any_end(lm):
    """Ends other than the fill would come within 15 tokens in most of these turns, were they not masked."""
    reasons = []
    for seed in range(12):
        parts: list[tuple[str, tuple[int, ...]]] = [("text", (5, 6, 7, 8, seed))]
        drawn: list[int] = []
        for number in range(3):
            turn = LmTurn(tuple(parts), number == 2, 15 if number < 2 else 60, tuple(drawn))
            tokens = []
            async for delta in lm.generate(turn, Sampling(seed=seed), f"turn {seed}.{number}"):
                tokens += delta.tokens
                reason = delta.finish_reason
            assert len(tokens) <= turn.most and all(0 <= t < CODES for t in tokens)
            assert (reason == "length") == (len(tokens) == turn.most)
            reasons.append((number == 2, reason))
            parts += [("speech", tuple(tokens)), ("text", (9, 10, 11, 12, 13))]
            drawn += [*tokens, FILL]
    assert {reason for whole, reason in reasons if not whole} == {"stop", "length"}
    assert (True, "stop") in reasons


async def test_closing_the_stream_gives_the_blocks_back(lm):
    before = await lm.stats()
    stream = lm.generate(prompt_of(5, text=LONG), Sampling(seed=1), "left")
    async with aclosing(stream):
        await anext(stream)
        assert (await lm.stats()).kv_cache_usage_ratio > before.kv_cache_usage_ratio
        assert (await lm.stats()).running == 1
    # One more step, of another request, tells how things stand.
    await speak(lm, prompt_of(6, text=1, speech=0), 1, "after")
    after = await lm.stats()
    assert (after.kv_cache_usage_ratio, after.running, after.waiting) == (before.kv_cache_usage_ratio, 0, 0)


async def test_abort_ends_the_stream_and_gives_the_blocks_back(lm):
    before = await lm.stats()
    stream = lm.generate(prompt_of(7, text=LONG), Sampling(seed=1), "stopped")
    with pytest.raises(RequestAborted):
        async for _ in stream:
            await lm.abort("stopped")
    await speak(lm, prompt_of(8, text=1, speech=0), 1, "after abort")
    assert (await lm.stats()).kv_cache_usage_ratio == before.kv_cache_usage_ratio


async def test_a_repeated_prompt_is_read_from_the_prefix_cache(lm):
    prompt = prompt_of(9, text=4, speech=200)
    await speak(lm, prompt, 1, "take 1")
    before = await lm.stats()
    await speak(lm, prompt, 2, "take 2")
    after = await lm.stats()
    length = 1 + 12 + 4 + 1 + 200
    assert after.prefix_cache_queries_tokens - before.prefix_cache_queries_tokens == length
    assert after.prefix_cache_hits_tokens - before.prefix_cache_hits_tokens == (length - 1) // 32 * 32


async def test_a_prompt_that_does_not_fit_fails_alone(lm):
    beside = asyncio.create_task(speak(lm, prompt_of(10, text=12), 1, "beside a bad one"))
    for bad, words in (
        (LmPrompt((), (TEXT_IDS,), np.zeros(0, np.int32)), "text id 512"),
        (LmPrompt((), (1,), np.array([END_IDS[0]], np.int32)), "speech token 243"),
        (LmPrompt((), (), np.zeros(4, np.int32)), "0 ids"),
        (prompt_of(11, text=3000), "needs at least 6000 tokens"),
    ):
        with pytest.raises(SpeechLMError, match=words):
            await speak(lm, bad, 1, f"bad {words}")
    with pytest.raises(SpeechLMError, match="top_p"):
        await anext(lm.generate(prompt_of(12), Sampling(top_p=7.0), "bad sampling"))
    tokens, _ = await beside
    assert len(tokens) >= 24


async def test_a_killed_engine_is_told_at_once_and_the_next_one_speaks_the_same(worker, lm):
    prompt = prompt_of(13, text=12)
    first, _ = await speak(lm, prompt, 3, "before the kill")
    stream = lm.generate(prompt_of(14, text=LONG), Sampling(), "under way")
    await anext(stream)
    os.kill(worker.state.facts["engine_pids"][0], signal.SIGKILL)

    async def listen():
        async for _ in stream:
            pass

    phases = []
    worker.subscribe(lambda state: phases.append(state.phase))
    with pytest.raises(EngineDead):
        await asyncio.wait_for(listen(), 120)
    assert "ready" not in phases  # told when it died, not when the next one had started
    await worker.wait_ready()
    assert worker.state.restarts == 1
    assert (await speak(lm, prompt, 3, "after the kill"))[0] == first


async def idle(lm) -> LmStats:
    """What the engines say once they have told of all their steps: a last token may be here before its step is told."""
    async with asyncio.timeout(120):
        while (stats := await lm.stats()).running:
            pass
    return stats


async def made_by_each(worker) -> dict[str, float]:
    """Tokens by number of the engine, as vLLM's own metrics have them."""
    line = re.compile(r'^vllm:generation_tokens_total\{engine="(\d)".*\} (\S+)$', re.MULTILINE)
    return {number: float(count) for number, count in line.findall(await worker.call("metrics"))}


async def test_two_engines_share_the_requests_and_each_seed_gives_what_one_engine_gave(worker, lm, settings):
    prompts = [prompt_of(200 + i, text=12) for i in range(6)]

    async def all_at_once(name: str) -> list[tuple[list[int], str]]:
        return await asyncio.gather(*(speak(lm, prompt, i, f"{name} {i}") for i, prompt in enumerate(prompts)))

    of_one, blocks = await all_at_once("one engine"), (await lm.stats()).kv_cache_blocks
    await worker.restart(settings | {"lm_engines": 2})
    facts = (await worker.wait_ready()).facts
    assert len(set(facts["engine_pids"])) == 2 and facts["kv_cache_blocks"] == blocks
    before, made_before = await idle(lm), await made_by_each(worker)
    assert await all_at_once("two engines") == of_one
    after, made = await idle(lm), await made_by_each(worker)
    spoken = sum(len(tokens) + (reason == "stop") for tokens, reason in of_one)  # an end is a token too
    assert after.generated_tokens - before.generated_tokens == spoken
    shares = [made[number] - made_before[number] for number in "01"]
    assert min(shares) >= 3 * 24 and sum(shares) == spoken
    assert (after.waiting, after.kv_cache_usage_ratio, after.kv_cache_blocks) == (0, 0.0, blocks)

    # Each has a prefix cache of its own, and both are thrown away at once.
    assert await all_at_once("again") == of_one
    cached = await idle(lm)
    assert cached.prefix_cache_hits_tokens - after.prefix_cache_hits_tokens == 6 * 64
    assert await worker.call("reset_prefix_cache")
    assert await all_at_once("after the reset") == of_one
    assert (await idle(lm)).prefix_cache_hits_tokens == cached.prefix_cache_hits_tokens


async def test_requests_are_given_up_in_the_engine_that_runs_them(lm):
    """One is aborted, one is left, and each of them is another engine's."""
    streams = [lm.generate(prompt_of(220 + i, text=LONG), Sampling(), f"given up {i}") for i in range(4)]
    for stream in streams:
        await anext(stream)
    assert (await lm.stats()).running == 4
    for number, stream in enumerate(streams[:2]):
        await lm.abort(f"given up {number}")
        with pytest.raises(RequestAborted):
            async for _ in stream:
                pass
    for stream in streams[2:]:
        await stream.aclose()
    stats = await idle(lm)
    assert (stats.waiting, stats.kv_cache_usage_ratio) == (0, 0.0)


async def all_end_with(worker, lm, killed: int) -> None:
    """A request on each engine, and every process of the worker, end when this one of them is killed."""
    state = worker.state
    family = [state.pid, *(child.pid for child in psutil.Process(state.pid).children(recursive=True))]
    assert len(family) == 4 and killed in family
    streams = [lm.generate(prompt_of(210 + i, text=LONG), Sampling(), f"beside {killed} {i}") for i in range(2)]
    for stream in streams:
        await anext(stream)
    assert (await lm.stats()).running == 2
    os.kill(killed, signal.SIGKILL)

    async def listen(stream) -> None:
        with pytest.raises(EngineDead):
            async for _ in stream:
                pass

    async with asyncio.timeout(120):
        await asyncio.gather(*map(listen, streams))
        while not all(map(is_gone, family)):
            await asyncio.sleep(0.01)


def is_gone(pid: int) -> bool:
    """Also where it only waits to be reaped."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def test_of_two_engines_one_does_not_go_on_without_the_other(worker, lm):
    await all_end_with(worker, lm, worker.state.facts["engine_pids"][1])


async def test_two_engines_begin_again_and_end_with_what_vllm_runs_beside_them(worker, lm):
    engines = (await worker.wait_ready()).facts["engine_pids"]
    assert len(engines) == 2 and worker.state.restarts == 2
    (coordinator,) = {child.pid for child in psutil.Process(worker.state.pid).children()} - set(engines)
    await all_end_with(worker, lm, coordinator)
