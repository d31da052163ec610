"""What the engine is asked for a line of a script: judged as any request to speak, with its voice's defaults."""

from __future__ import annotations

from typing import Any

from studio.api.speech import SpeechBody, refuse_unmakeable, synthesis_of, voice_of, with_defaults
from studio.engine.engine import Engine
from studio.library.prompts import VoicePrompts
from studio.library.store import VoiceStore
from studio.library.voice import Voice
from studio.speech import ServedModel, SynthesisRequest


class LineRequests:
    """Called for each line when its turn has come. Raises what /v1/audio/speech would."""

    def __init__(self, engine: Engine, store: VoiceStore, prompts: VoicePrompts, model: ServedModel) -> None:
        self._engine = engine
        self._store = store
        self._prompts = prompts
        self._model = model

    async def __call__(
        self, text: str, voice: str, seed: int | None, client: str
    ) -> tuple[SynthesisRequest, Voice]:
        named: dict[str, Any] = {"input": text, "voice": voice, "seed": seed}
        # A seed that is named, even as None, would hide the voice's own.
        body = SpeechBody(**{name: value for name, value in named.items() if value is not None})
        found = voice_of(body, self._store)
        body = with_defaults(body, found)
        refuse_unmakeable(body, self._model)
        self._engine.check(text)
        return synthesis_of(body, await self._prompts.of(found), client, self._model), found
