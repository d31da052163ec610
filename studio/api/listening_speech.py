"""Speech for listening tests: the requests that conditions describe, through the engine that serves everybody."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from pydantic import ValidationError

from studio.api import engine_settings
from studio.api.body import SpeechBody, refuse_unmakeable, synthesis_of, with_defaults
from studio.engine.stream import SpeechStream
from studio.errors import CapacityError, InvalidRequest, StudioError, SynthesisError
from studio.library.store import VoiceStore
from studio.listening.design import Design, Source
from studio.listening.generation import Utterance
from studio.registry.loaded import Loaded
from studio.registry.models import Models
from studio.speech import Float32, SynthesisRequest

NOT_SETTINGS = {"input", "voice", "seed", "response_format", "stream_format", "keep_take"}
LONGEST_S = 600.0
"""For a sentence that everybody else waits for; the longest takes minutes on a slow machine."""
CLIENT = "listening tests"
"""One client of the fair queue, so that making material leaves places to listeners."""


JSON_KINDS = {"number": "float", "integer": "int", "boolean": "bool"}


def request_settings(models: Sequence[str]) -> list[dict[str, object]]:
    """What a condition may set of its requests, as a form needs it: name, kind, range, choices, usual value.

    models: those that may be chosen; one is no choice.
    """
    found: list[dict[str, object]] = []
    for name, schema in SpeechBody.model_json_schema()["properties"].items():
        if name == "model" and len(models) > 1:
            row = {"name": name, "kind": "str", "choices": list(models), "unit": "", "effect": ""}
            found.append(row | {"least": None, "most": None, "value": models[0]})
        elif name not in NOT_SETTINGS | {"model"}:
            one = next(kind for kind in schema.get("anyOf", [schema]) if kind.get("type") != "null")
            choices = [choice for choice in one["enum"] if choice != "auto"] if "enum" in one else None
            found.append({
                "name": name, "kind": JSON_KINDS.get(one["type"], "str"), "choices": choices, "unit": "", "effect": "",
                "least": one.get("minimum"), "most": one.get("maximum"), "value": schema.get("default"),
            })  # fmt: skip
    return found


class ConditionSpeech:
    """Checks what conditions ask of the studio, and speaks it."""

    def __init__(self, models: Models, store: VoiceStore, possible: engine_settings.Check) -> None:
        self._models, self._store, self._possible = models, store, possible

    @property
    def models(self) -> list[str]:
        """Those that speak now, the default first."""
        return [loaded.name for loaded in self._models]

    def check(self, design: Design) -> None:
        """Refuse unknown voices, and settings that a request or the engine cannot have."""
        for condition in design.conditions:
            engine_settings.check(condition.source.studio, self._possible)
            if condition.source.kind != "speech":
                continue
            if condition.source.voice:
                self._store.find(condition.source.voice)
            self._refuse_settings_of_others(condition.source)
            self._body(Utterance("a", condition.source.voice, 0, condition.source.settings))
        for number, text in enumerate(design.texts, 1):
            try:
                self.check_text(text)
            except InvalidRequest as error:
                reason = error.message("en")
                raise InvalidRequest("listening.text_bad", param="texts", number=number, reason=reason) from None

    def _refuse_settings_of_others(self, source: Source) -> None:
        """Settings of the studio restart the default model alone, so they would do nothing to another."""
        if source.studio and source.settings.get("model", self._models.default.name) != self._models.default.name:
            raise InvalidRequest("listening.studio_other_model", param="conditions", model=self._models.default.name)

    def naming_models(self, design: Design) -> Design:
        """The design with each spoken condition naming its model, where several are known."""
        if len(self._models.entries) == 1:
            return design
        usual = {"model": self._models.default.name}
        conditions = tuple(
            replace(c, source=replace(c.source, settings=usual | dict(c.source.settings)))
            if c.source.kind == "speech" else c
            for c in design.conditions
        )  # fmt: skip
        return replace(design, conditions=conditions)

    def check_text(self, text: str) -> None:
        """Refuse a text that cannot be spoken, whatever the voice. Raises InvalidRequest."""
        try:
            self._models.default.engine.check(text)
        except CapacityError:
            pass  # the text was judged first; that the engine is not up yet matters when it is to speak

    async def speak(self, wanted: Utterance) -> Float32:
        """One sentence in its turn, float32 [n] at 24 kHz."""
        loaded, request = await self._request(wanted)
        return await _heard(await loaded.engine.submit(request))

    async def speak_past_line(self, wanted: Utterance) -> Float32:
        """As `speak`, while everybody else waits in line. Raises SynthesisError for what takes without end."""
        loaded, request = await self._request(wanted)
        try:
            return await asyncio.wait_for(_heard(await loaded.engine.try_out(request)), LONGEST_S)
        except TimeoutError:
            raise SynthesisError("listening.speech_slow", minutes=LONGEST_S / 60) from None

    async def _request(self, wanted: Utterance) -> tuple[Loaded, SynthesisRequest]:
        body, voice = self._body(wanted), self._store.find(wanted.voice)
        loaded = self._loaded(body)
        body = with_defaults(body, voice, loaded.model)
        refuse_unmakeable(body, loaded.model)
        return loaded, synthesis_of(body, await loaded.prompts.of(voice), CLIENT, loaded.model)

    def _loaded(self, body: SpeechBody) -> Loaded:
        """The model of a condition, whose name must be known. Raises ModelNotFound, ModelNotLoaded."""
        try:
            return self._models.get(self._models.find(body.model).name if body.model else "")
        except StudioError as error:
            error.param = "conditions"
            raise

    def clip_of_voice(self, voice: str) -> tuple[Float32, int]:
        """The clip that a voice was cloned from, float32 [n], and its rate in Hz."""
        return self._store.clip_samples(self._store.find(voice))

    def _body(self, wanted: Utterance) -> SpeechBody:
        """The request that a condition describes; its settings are named as in POST /v1/audio/speech."""
        settings: Mapping[str, Any] = wanted.settings
        for name in settings:
            if name in NOT_SETTINGS or name not in SpeechBody.model_fields:
                known = ", ".join(sorted(SpeechBody.model_fields.keys() - NOT_SETTINGS))
                raise InvalidRequest("listening.setting_unknown", param="conditions", setting=name, known=known)
        try:
            body = SpeechBody.model_validate(
                {"input": wanted.text, "voice": wanted.voice, "seed": wanted.seed, **settings}
            )
        except ValidationError as error:
            first = error.errors()[0]
            name = str(first["loc"][0])
            raise InvalidRequest(
                "listening.setting_bad", param="conditions", setting=name, reason=first["msg"]
            ) from None
        if body.quality == "auto":  # the load of the moment would choose, another time for each sentence
            raise InvalidRequest("listening.quality_auto", param="conditions")
        refuse_unmakeable(body, self._loaded(body).model)
        return body


async def _heard(stream: SpeechStream) -> Float32:
    async with stream:
        return np.concatenate([chunk.samples async for chunk in stream])
