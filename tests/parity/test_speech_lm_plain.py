"""The plain speech LM gives the fixtures' log-probabilities, with and without its key/value cache."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from studio.models.speech_lm.layout import SpeechLmLayout
from studio.models.speech_lm.qwen2 import SpeechLm, causal_attend, sizes_from_config

FIXTURES = Path(__file__).parents[1] / "fixtures"


def _module(name):
    spec = importlib.util.spec_from_file_location(name, FIXTURES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


compare, make_weights = _module("compare"), _module("make_weights")


@pytest.fixture(scope="module")
def model():
    lm = SpeechLm(
        sizes_from_config(json.loads((FIXTURES / "mini_qwen_config.json").read_text()), speech_codes=243)
    )
    shapes = json.loads((FIXTURES / "keys" / "mini_llm.json").read_text())
    lm.load_official({k: torch.from_numpy(make_weights.tensor(k, s)) for k, s in shapes.items()})
    return lm.eval()


def _forced_scores(lm, text, prompt_text, prompt_speech, forced, cached):
    layout = SpeechLmLayout(lm.sizes.speech_codes, lm.sizes.text_vocab)
    prompt = layout.prompt_ids(prompt_text, text, prompt_speech)
    ids = torch.tensor([[*prompt, *forced[:-1]]])
    positions = torch.arange(ids.shape[1])[None]
    with torch.no_grad():
        if not cached:
            return lm.scores(lm(ids, positions, causal_attend)[0, len(prompt) - 1 :])
        caches = lm.new_caches(1, ids.shape[1])
        hidden = [lm(ids[:, : len(prompt)], positions[:, : len(prompt)], causal_attend, caches)[:, -1]]
        for i in range(len(prompt), ids.shape[1]):
            hidden.append(lm(ids[:, i : i + 1], positions[:, i : i + 1], causal_attend, caches)[:, -1])
        return lm.scores(torch.cat(hidden))


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize(
    ("out", "keep_text", "keep_speech"),
    [("out_logp", True, True), ("out_logp_noprompt", False, False), ("out_logp_instruct", True, False)],
)
def test_mini_log_probabilities(model, out, keep_text, keep_speech, cached):
    given = compare.inputs("06_llm_mini")
    prompt_text = given["in_prompt_text"] if keep_text else []
    prompt_speech = given["in_prompt_speech"] if keep_speech else []
    scores = _forced_scores(model, given["in_text"], prompt_text, prompt_speech, given["in_forced"], cached)
    got = torch.log_softmax(scores, dim=-1).numpy()
    assert compare.check("06_llm_mini", {out: got.astype(np.float32)}) == []


def test_key_names_are_those_of_the_official_file(model):
    shapes = json.loads((FIXTURES / "keys" / "mini_llm.json").read_text())
    del shapes["llm.model.lm_head.weight"]
    assert {k: list(t.shape) for k, t in model.official_tensors().items()} == shapes
