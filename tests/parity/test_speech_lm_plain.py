"""The plain speech LM: its key/value cache changes nothing, and its names are the official ones."""

import pytest
import torch

from studio.models.speech_lm.layout import SpeechLmLayout
from studio.models.speech_lm.qwen2 import SpeechLm, causal_attend, sizes_from_config
from studio.parity.speech_lm import forced_scores
from tests.parity.conftest import GOLDEN


@pytest.fixture
def model(weights) -> SpeechLm:
    lm = SpeechLm(sizes_from_config(GOLDEN.lm_config("mini"), speech_codes=243))
    lm.load_official(weights("mini", "llm"))
    return lm.eval()


@torch.no_grad()
def test_scores_are_the_same_without_the_cache(model):
    given = {key: tensor.tolist() for key, tensor in GOLDEN.inputs("06_llm_mini").items()}
    layout = SpeechLmLayout(model.sizes.speech_codes, model.sizes.text_vocab)
    prompt = layout.prompt_ids(given["prompt_text"], given["text"], given["prompt_speech"])
    ids = torch.tensor([[*prompt, *given["forced"][:-1]]])
    hidden = model(ids, torch.arange(ids.shape[1])[None], causal_attend)[0, len(prompt) - 1 :]
    cached = forced_scores(model, prompt, given["forced"])
    torch.testing.assert_close(cached, model.scores(hidden), atol=1e-5, rtol=0)


def test_key_names_are_those_of_the_official_file(model):
    shapes = GOLDEN.json("keys/mini_llm.json")
    del shapes["llm.model.lm_head.weight"]
    assert {k: list(t.shape) for k, t in model.official_tensors().items()} == shapes
