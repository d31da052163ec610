"""Which model a name stands for, and what is said of one that cannot speak now."""

from __future__ import annotations

import pytest

from studio.backends.fake import FakePromptEncoder, ScriptedSpeechLM, SineToken2Wav, WordFrontend
from studio.engine.engine import Engine
from studio.errors import ModelNotFound, ModelNotLoaded
from studio.library.prompts import VoicePrompts
from studio.library.store import VoiceStore
from studio.registry.loaded import Loaded
from studio.registry.models import Models
from studio.speech import ServedModel


@pytest.fixture
def load(tmp_path):
    store = VoiceStore(tmp_path / "library")

    def loaded(name: str) -> Loaded:
        model, engine = ServedModel(name), Engine(ScriptedSpeechLM(), SineToken2Wav(), WordFrontend())
        prompts = VoicePrompts(store, FakePromptEncoder(), tmp_path / "prompts", name, model=name)
        return Loaded(model, engine, prompts, {}, model.sampling)

    yield loaded
    store.close()


async def test_while_one_model_is_known_every_name_is_its(load) -> None:
    models = Models(load("first"))
    assert {models.get(name).name for name in ("", "first", "tts-1", "any")} == {"first"}
    assert models.of_take("of long ago").name == "first"


async def test_once_several_are_known_a_name_is_theirs_or_none(load) -> None:
    models = Models(load("first"), known={"second": "folder"})
    assert models.get().name == models.get("first").name == "first"
    with pytest.raises(ModelNotFound, match="first, second"):
        models.get("tts-1")
    with pytest.raises(ModelNotLoaded) as told:
        models.get("second")
    assert told.value.retry_after_s is None and not told.value.retryable
    models.find("second").state = "loading"
    with pytest.raises(ModelNotLoaded) as told:
        models.get("second")
    assert told.value.retry_after_s
    models.put(load("second"))
    assert models.get("second").name == models.of_take("second").name == "second"
    assert [loaded.name for loaded in models] == ["first", "second"]


async def test_model_that_is_going_is_none_any_more_for_those_who_come(load) -> None:
    models = Models(load("first"), known={"second": "folder"})
    models.put(load("second"))
    models.find("second").state = "unloading"
    assert [loaded.name for loaded in models] == ["first"]
    for ask in (models.get, models.of_take):
        with pytest.raises(ModelNotLoaded, match="first"):
            ask("second")


async def test_two_models_of_one_name_are_refused(load) -> None:
    with pytest.raises(ValueError, match="first"):
        Models(load("first"), known={"first": "folder"})
