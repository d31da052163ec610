"""The logits processor as vLLM makes it, without an engine."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from studio.models.speech_lm import ras_processor
from studio.models.speech_lm.layout import SpeechLmLayout


@pytest.mark.parametrize(("version", "width"), [(2, 6564), (3, 6761)])
def test_the_law_is_built_for_the_scores_and_not_for_the_merged_vocabulary(
    monkeypatch: pytest.MonkeyPatch, version: int, width: int
) -> None:
    """A kernel of a row of 158,000 takes minutes to build, and is not the one that serves."""
    asked: list[int] = []
    monkeypatch.setattr(ras_processor, "best_draw", lambda device, width: asked.append(width))
    monkeypatch.setattr(ras_processor, "RasBatch", lambda rows, pin_memory, draw: None)
    config = SimpleNamespace(speech_codes=6561, text_ids=151936, version=version)
    vllm_config = SimpleNamespace(
        model_config=SimpleNamespace(hf_config=config), scheduler_config=SimpleNamespace(max_num_seqs=4)
    )
    ras_processor.RepetitionAwareSampling(vllm_config, torch.device("cpu"), False)
    assert asked == [width] and SpeechLmLayout.of(config).vocabulary > 150_000
