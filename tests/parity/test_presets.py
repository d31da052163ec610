"""spk2info.pt: presets and voices that upstream saved are read, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from studio.errors import CheckpointError
from studio.models.prompt.presets import read_presets, read_uploaded


def written(folder: Path, stored: Any) -> Path:
    torch.save(stored, folder / "spk2info.pt")
    return folder


def prompted(tokens: torch.Tensor, mel: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"embedding": torch.ones(192), "flow_prompt_speech_token": tokens, "prompt_speech_feat": mel}


def test_preset_is_an_embedding_alone(tmp_path: Path) -> None:
    found = read_presets(written(tmp_path, {"中文女": {"embedding": torch.arange(192.0)[None]}}))
    assert found["中文女"].modes[0] == "preset"
    assert found["中文女"].speaker_embedding[7] == 7


def test_voice_that_upstream_saved_has_prompt_speech_cut_to_fit_and_no_transcript(tmp_path: Path) -> None:
    saved = {
        "prompt_text": torch.zeros(1, 5, dtype=torch.int32), "flow_embedding": torch.ones(1, 192),
        "flow_prompt_speech_token": torch.arange(20)[None], "prompt_speech_feat": torch.zeros(1, 37, 80),
    }  # fmt: skip
    voice = read_presets(written(tmp_path, {"mine": saved}))["mine"]
    assert (len(voice.speech_tokens), len(voice.mel)) == (18, 36)
    assert voice.modes[0] == "cross_lingual"


def test_file_that_somebody_sent_is_read_as_the_checkpoints_own(tmp_path: Path) -> None:
    data = (written(tmp_path, {"mine": {"embedding": torch.ones(192)}}) / "spk2info.pt").read_bytes()
    assert list(read_uploaded(data, 10)) == ["mine"]


def test_voice_of_models_with_more_speech_codes_is_refused(tmp_path: Path) -> None:
    stored = {"theirs": prompted(torch.tensor([3, 4]), torch.zeros(4, 80))}
    data = (written(tmp_path, stored) / "spk2info.pt").read_bytes()
    assert list(read_uploaded(data, 5)) == ["theirs"]
    with pytest.raises(CheckpointError, match="4 is not below 4"):
        read_uploaded(data, 4)


def test_checkpoint_without_the_file_has_none(tmp_path: Path) -> None:
    assert read_presets(tmp_path) == {}


@pytest.mark.parametrize(
    ("stored", "told"),
    [
        ([1], "list"),
        ({"a": 3}, "'a' is a int"),
        ({"a": {}}, "'a' has no speaker embedding"),
        ({"a": {"embedding": torch.zeros(1, 100)}}, "192"),
        ({"a": {"embedding": torch.full((192,), float("nan"))}}, "finite"),
        ({"a": {"embedding": torch.zeros(1).expand(192_000_000_000)}}, "192"),
        ({"a": prompted(torch.zeros(1).expand(3_000_000_000), torch.zeros(2, 80))}, "more than the 775"),
        ({"a": prompted(torch.zeros(1), torch.zeros(1).expand(37_500_000, 80))}, "more than the 124000"),
        ({"a": prompted(torch.zeros(1), torch.full((2, 80), float("inf")))}, "finite"),
        ({"a": prompted(torch.zeros(1), torch.zeros(2, 79))}, "reshape"),
        ({"a": prompted(torch.full((1,), -3), torch.zeros(2, 80))}, "negative"),
        ({str(n): {} for n in range(1001)}, "1001 voices"),
    ],
)
def test_entry_that_is_no_voice_is_named(tmp_path: Path, stored: Any, told: str) -> None:
    with pytest.raises(CheckpointError, match=told):
        read_presets(written(tmp_path, stored))


def test_file_with_code_is_refused(tmp_path: Path) -> None:
    import pickle

    (tmp_path / "spk2info.pt").write_bytes(pickle.dumps(print))
    with pytest.raises(CheckpointError, match=r"spk2info\.pt"):
        read_presets(tmp_path)
