"""Voices that the checkpoint brings along: in the library while it is loaded, and not to be changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from studio.backends.fake import FakePromptEncoder, voice_prompt
from studio.errors import ClientError, InvalidRequest, VoiceNotFound
from studio.library.design import design
from studio.library.prompts import VoicePrompts
from studio.library.store import VoiceStore


@pytest.fixture
def store(tmp_path: Path) -> VoiceStore:
    made = VoiceStore(tmp_path / "library")
    made.add(np.full(24_000, 0.1, np.float32), 24_000, "hello there", name="Ada")
    made.show_presets(["中文女", "Ada"])
    return made


def test_presets_come_last_and_a_kept_voice_of_the_name_goes_first(store: VoiceStore) -> None:
    assert [(v.name, v.origin) for v in store.all()] == [("Ada", "user"), ("中文女", "preset")]
    assert store.find("Ada").origin == "user"
    preset = store.find("中文女")
    assert store.find(preset.id) == preset
    assert store.room() == store.max_voices - 1


def test_presets_of_another_checkpoint_take_their_place(store: VoiceStore) -> None:
    store.show_presets(["英文男"])
    with pytest.raises(VoiceNotFound):
        store.find("中文女")
    assert store.find("英文男").origin == "preset"


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (lambda s: s.edit("中文女", notes="x"), ClientError),
        (lambda s: s.discard("中文女"), ClientError),
        (lambda s: s.delete("中文女"), ClientError),
        (lambda s: s.clip_file(s.find("中文女")), VoiceNotFound),
        (lambda s: s.clip_samples(s.find("中文女")), VoiceNotFound),
        (lambda s: design([(s.find("中文女"), 1.0)], s.find("中文女"), {}), InvalidRequest),
    ],
)
def test_what_needs_a_clip_or_changes_a_preset_is_refused_by_its_name(
    store: VoiceStore, ask: Callable[[VoiceStore], Any], error: type[Exception]
) -> None:
    with pytest.raises(error, match="中文女"):
        ask(store)


async def test_preset_s_prompt_is_the_checkpoint_s_embedding(store: VoiceStore, tmp_path: Path) -> None:
    encoder = FakePromptEncoder()
    encoder.preset = {"英文男": voice_prompt("preset", tokens=0, prompt_text="")}
    prompts = VoicePrompts(store, encoder, tmp_path / "prompts", "fake")
    prompts.show_presets()
    await asyncio.gather(*prompts._preparing)
    prompt = await prompts.of(store.find("英文男"))
    assert prompt is encoder.preset["英文男"] and prompt.modes[0] == "preset"
