"""The speech LM under teacher forcing (06_llm), and its sampler (06_ras)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from studio.models.speech_lm.layout import END_IDS, SpeechLmLayout, TokenBounds
from studio.models.speech_lm.qwen2 import SpeechLm, causal_attend, sizes_from_config
from studio.models.speech_lm.ras import NO_TOKEN, RasRows, final_log_probs
from studio.parity.compare import Line, Tolerance, compare, equal, near
from studio.parity.fixtures import Fixtures

TOP_P, TOP_K, WINDOW = 0.8, 25, 10


@lru_cache(maxsize=1)
def load_lm(fixtures: Fixtures, size: str) -> SpeechLm:
    """The folder's speech LM of a size as the plain network, on its device. Raises FixtureMissing."""
    tensors = fixtures.weights(size, "llm")
    codes = tensors["speech_embedding.weight"].shape[0] - END_IDS
    with torch.device("meta"):  # the tensors read take the place of the made ones: the official size is 2 GB
        lm = SpeechLm(sizes_from_config(fixtures.lm_config(size), codes))
    lm.load_official(tensors, assign=True)
    return lm.eval().to(fixtures.device)


@torch.inference_mode()
def run_llm(fixtures: Fixtures, name: str) -> Iterator[Line]:
    """06_llm: the prompt's embeddings, scores before each forced token, and the bounds of the length."""
    lm = load_lm(fixtures, fixtures.size_of(name))
    given = {key: tensor.tolist() for key, tensor in fixtures.inputs(name).items()}
    text, prompt_text, prompt_speech = given["text"], given["prompt_text"], given["prompt_speech"]
    layout = SpeechLmLayout(lm.sizes.speech_codes, lm.sizes.text_vocab)

    def scores(prompt_text: Sequence[int], prompt_speech: Sequence[int]) -> Tensor:
        return forced_scores(lm, layout.prompt_ids(prompt_text, text, prompt_speech), given["forced"])

    wanted = fixtures.arrays(name, "out_").keys()
    logits = scores(prompt_text, prompt_speech)
    prompt = torch.tensor(layout.prompt_ids(prompt_text, text, prompt_speech), device=fixtures.device)
    least, most = TokenBounds().of(len(text))
    got = {
        "out_lm_input": F.embedding(prompt, lm.embedding_table()),
        "out_logits": logits,
        "out_logp": logits.log_softmax(-1),
        "out_step_masked": [int(step < least) for step in range(len(given["forced"]))],
        "out_min_max_len": [least, most],
    }
    for key, heard_text in (("out_logp_noprompt", []), ("out_logp_instruct", prompt_text)):
        if key in wanted:
            got[key] = scores(heard_text, []).log_softmax(-1)
    return compare(fixtures, name, got)


def forced_scores(lm: SpeechLm, prompt: list[int], forced: list[int]) -> Tensor:
    """Scores before each forced token, [T, S + 3]; one token a step over the cached prompt, as speech is made."""
    device = lm.llm_decoder.weight.device
    ids = torch.tensor([[*prompt, *forced[:-1]]], device=device)
    positions = torch.arange(ids.shape[1], device=device)[None]
    caches, start, hidden = lm.new_caches(1, ids.shape[1]), 0, []
    for end in range(len(prompt), ids.shape[1] + 1):
        hidden.append(lm(ids[:, start:end], positions[:, start:end], causal_attend, caches)[0, -1])
        start = end
    return lm.scores(torch.stack(hidden))


def run_ras(fixtures: Fixtures, name: str) -> Iterator[Line]:
    """Each case's candidates and branch. The seeded draws are left out: they hold for one order of draws only."""
    found = fixtures.meta(name)
    for case in found["cases"]:
        yield from _ras_case(name, case, found["tolerance_max_abs"]["candidate_probs"])


def _ras_case(name: str, case: dict[str, Any], tolerance: float) -> Iterator[Line]:
    scores, expect = torch.tensor([case["logp"]]), case["expect"]
    first, recent = expect["first_id"], case["decoded"][-WINDOW:]
    nucleus = _law(scores, [])  # nothing is repeated: what is drawn first
    ids = [int(i) for i in nucleus.argsort(descending=True, stable=True) if nucleus[i] > 0]
    yield equal(name, f"{case['name']} candidate_ids", ids, expect["candidate_ids"])
    p = scores.softmax(1)[0, expect["candidate_ids"]]
    yield near(name, f"{case['name']} candidate_probs", p, expect["candidate_probs"], Tolerance(tolerance))
    law, without = _law(scores, recent), _law(scores, [t for t in recent if t != first])
    branch = "keep" if torch.equal(law, without) else "resample"
    yield equal(name, f"{case['name']} branch", branch, expect["branch"])
    # The repeat of `first` moves its share of the first draw to a second one, so the difference is that draw.
    second = (law - without) / nucleus[first]
    second[first] += 1
    likeliest = first if branch == "keep" else int(second.argmax())
    if branch == "resample" and second[expect["final_id"]] >= second[likeliest] - tolerance:
        likeliest = expect["final_id"]  # of equals any is the likeliest
    yield equal(name, f"{case['name']} final_id", likeliest, expect["final_id"])


def _law(scores: Tensor, recent: Sequence[int]) -> Tensor:
    window = torch.tensor([[*recent, *[NO_TOKEN] * (WINDOW - len(recent))]])
    one = torch.ones(1, 1)
    rows = RasRows(one, one * TOP_P, one.long() * TOP_K, one.long(), TOP_K)
    return final_log_probs(scores, window, rows).exp()[0].double()
