"""The plain way of serving that the bench compares with: the same model, the same law, and honest times of waiting."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from studio.bench.baseline import batch_load, naive_load
from studio.bench.plain_models import Manner, PlainLM, PlainToken2Wav
from studio.bench.playback import Arrival
from studio.checkpoint import TOKENIZER_FOLDER, read_checkpoint, read_lm_config
from studio.models.flow import Flow
from studio.models.speech_lm.qwen2 import SpeechLm, causal_attend, sizes_from_config
from studio.models.weights import read_tensors
from studio.speech import Sampling, VoicePrompt

VOICE = Path(__file__).resolve().parents[2] / "assets" / "voice"
CHECKPOINT = read_checkpoint(VOICE)
GREEDY = Sampling(top_p=1.0, top_k=1, window=0)


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory) -> PlainLM:
    return PlainLM(CHECKPOINT, tmp_path_factory.mktemp("lm"), "cpu", torch.float32)


@pytest.fixture(scope="module")
def voice() -> VoicePrompt:
    drawn = np.random.default_rng(3)
    tokens = drawn.integers(0, 729, 30, dtype=np.int32)
    mel = drawn.normal(-5, 2, (60, 80)).astype(np.float32)
    return VoicePrompt("drawn", "", tokens, mel, drawn.normal(size=192).astype(np.float32))


def test_tokens_are_those_that_the_studios_own_module_finds_likeliest(lm: PlainLM, voice: VoicePrompt) -> None:
    text, prompt_text = (40, 41, 50, 60), (44, 45)
    drawn = list(lm.stream(text, Manner(voice, prompt_text, GREEDY)))
    tensors = {name: tensor.float() for name, tensor in read_tensors(VOICE / "llm.safetensors").items()}
    config = read_lm_config(VOICE / TOKENIZER_FOLDER / "config.json")
    plain = SpeechLm(sizes_from_config(config, lm.layout.speech_codes))
    plain.load_official(tensors)
    prompt = lm.layout.prompt_ids(prompt_text, text, voice.speech_tokens.tolist())
    ids = torch.tensor([[*prompt, *drawn]])
    with torch.no_grad():
        scores = plain.scores(plain.eval()(ids, torch.arange(ids.shape[1])[None], causal_attend))[0]
    likeliest = scores[len(prompt) - 1 : -1, : lm.layout.speech_codes].argmax(-1)
    assert len(drawn) >= 4 and drawn == likeliest.tolist()


def test_a_padded_batch_draws_what_each_row_draws_alone(lm: PlainLM, voice: VoicePrompt) -> None:
    texts = [(40, 41, 50, 60, 70, 71), (52, 53)]
    manner = Manner(voice, (44, 45), GREEDY)
    assert lm.batch(texts, manner) == [list(lm.stream(text, manner)) for text in texts]


def test_sound_is_as_long_as_its_tokens_streamed_or_whole(voice: VoicePrompt) -> None:
    token2wav = PlainToken2Wav.of(CHECKPOINT, 2, "cpu")
    tokens = list(range(40, 110))
    chunks = list(token2wav.stream(iter(tokens), voice, seed=1))
    assert len(chunks) == 2  # 45 tokens with the prompt's padding, then what is left
    assert sum(map(len, chunks)) == len(token2wav.whole(tokens, voice, seed=1)) == 70 * 960
    assert isinstance(token2wav._flow, Flow) and token2wav._flow.steps == 2


class Scripted:
    """Each text takes 2 s, and its sound comes after 1 s and at the end."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def clock(self) -> float:
        return self.now_s

    def naive(self, text: str, seed: int) -> list[Arrival]:
        self.now_s += 2.0
        return [Arrival(1.0, 0.5), Arrival(2.0, 3.5)]

    def batch(self, texts: Sequence[str], seed: int) -> list[list[Arrival]]:
        self.now_s += 3.0
        return [[Arrival(2.0 + place, 4.0)] for place in range(len(texts))]


def test_listeners_of_the_naive_server_wait_for_those_before_them() -> None:
    system = Scripted()
    plays, wall_s = naive_load(system, ["a", "b", "c", "d"], 2, system.clock)
    assert [play.ttfa_s for play in plays] == [1.0, 3.0, 3.0, 3.0]
    assert [play.ended_s for play in plays] == [2.0, 4.0, 4.0, 4.0] and wall_s == 8.0


def test_listeners_of_a_batch_hear_nothing_before_all_are_done() -> None:
    system = Scripted()
    plays, wall_s = batch_load(system, ["a", "b", "c"], 2, system.clock)
    assert [play.ttfa_s for play in plays] == [2.0, 3.0, 2.0] and wall_s == 6.0
