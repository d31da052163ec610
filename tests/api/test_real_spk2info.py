"""Files that torch itself saved, over HTTP to the worker that reads them: voices come in, code and misfits do not."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch

from studio.speech import MEL_BINS, SAMPLES_PER_TOKEN, SPEAKER_DIM
from tests.real_studio import RealStudio

NAME = "Kept upstream"


def saved(stored: Any, **how: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(stored, buffer, **how)
    return buffer.getvalue()


def voice(tokens: int = 40, frames: int = 80, bins: int = MEL_BINS, values: int = SPEAKER_DIM, code: int = 9) -> Any:
    """As upstream's own page saves one."""
    drawn = torch.Generator().manual_seed(7)
    return {
        "prompt_text": torch.zeros(1, 5, dtype=torch.int32),
        "llm_embedding": torch.randn(1, values, generator=drawn),
        "flow_embedding": torch.randn(1, values, generator=drawn),
        "flow_prompt_speech_token": torch.full((1, tokens), code, dtype=torch.int32),
        "prompt_speech_feat": torch.randn(1, frames, bins, generator=drawn) - 6,
    }


def take(studio: RealStudio, data: bytes) -> httpx.Response:
    return httpx.post(
        f"{studio.url}/v1/audio/voice-bundles", files={"bundle": ("spk2info.pt", data)}, data={"consent": "agreed"},
        timeout=60,
    )  # fmt: skip


def names(studio: RealStudio) -> set[str]:
    return set(httpx.get(f"{studio.url}/v1/audio/voices", timeout=120).json()["voices"])


@pytest.fixture
def kept(studio: RealStudio) -> Iterator[RealStudio]:
    """The shared studio, which forgets what was taken in."""
    before = names(studio)
    yield studio
    for name in names(studio) - before:
        httpx.delete(f"{studio.url}/v1/audio/voices/{name}?forever=true", timeout=120)


def test_import_of_upstream_spk2info_pt_that_torch_saved(kept: RealStudio) -> None:
    preset = {"embedding": torch.ones(1, SPEAKER_DIM)}
    taken = take(kept, saved({NAME: voice(), "中文女": preset}))
    assert taken.status_code == 200, taken.text
    assert [v["name"] for v in taken.json()["data"]] == [NAME, "中文女"]
    for name in (NAME, "中文女"):
        body = {"input": "Hello there.", "voice": name, "response_format": "pcm", "seed": 1}
        spoken = httpx.post(f"{kept.url}/v1/audio/speech", json=body, timeout=240)
        assert spoken.status_code == 200, spoken.text
        samples = np.frombuffer(spoken.content, "<i2")
        assert len(samples) and len(samples) % SAMPLES_PER_TOKEN == 0


class Command:
    """What runs a command where a pickle is read without care."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._file),)


@pytest.mark.parametrize("zipped", [True, False])
def test_pickle_with_code_is_refused_and_nothing_of_it_is_run(kept: RealStudio, tmp_path: Path, zipped: bool) -> None:
    before, ran = names(kept), tmp_path / "ran"
    data = saved({NAME: voice() | {"x": Command(ran)}}, _use_new_zipfile_serialization=zipped)
    refused = take(kept, data)
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "bundle"
    if zipped:  # the old form is no zip file, and never gets to the worker
        assert "holds code (" in refused.json()["error"]["message"]
    assert not ran.exists() and names(kept) == before
    torch.load(io.BytesIO(data), weights_only=False)
    assert ran.exists()  # so it would have


@pytest.mark.parametrize(
    ("stored", "told"),
    [
        ([1, 2], "holds a list"),
        ({NAME: 3}, "'Kept upstream' is a int"),
        ({NAME: voice(values=100)}, "no speaker embedding of 192"),
        ({NAME: voice(bins=79, frames=81)}, "is no voice"),
        ({NAME: voice(tokens=1000, frames=2000)}, "more than the 775"),
        ({NAME: voice(code=6000)}, "of other models"),
        ({NAME: {"embedding": torch.full((1, SPEAKER_DIM), float("nan"))}}, "finite"),
        ({"good": voice(), NAME: {"embedding": torch.zeros(1).expand(192_000_000)}}, "no speaker embedding of 192"),
    ],
)
def test_wrong_shapes_are_refused_with_the_reason_and_nothing_is_taken_in(
    kept: RealStudio, stored: Any, told: str
) -> None:
    before = names(kept)
    refused = take(kept, saved(stored))
    assert refused.status_code == 400, refused.text
    assert told in refused.json()["error"]["message"] and names(kept) == before
