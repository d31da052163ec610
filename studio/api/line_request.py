"""What the engine is asked for a line of a script: judged as any request to speak, with its voice's defaults."""

from __future__ import annotations

from typing import Any

from studio.api.body import SpeechBody
from studio.api.speaking import Speaking
from studio.library.voice import Voice
from studio.speech import SynthesisRequest


class LineRequests:
    """Called for each line when its turn has come. Raises what /v1/audio/speech would."""

    def __init__(self, speaking: Speaking) -> None:
        self._speaking = speaking

    async def __call__(
        self, text: str, voice: str, seed: int | None, client: str
    ) -> tuple[SynthesisRequest, Voice]:
        named: dict[str, Any] = {"input": text, "voice": voice, "seed": seed, "quality": "best"}
        # A seed that is named, even as None, would hide the voice's own.
        body = SpeechBody(**{name: value for name, value in named.items() if value is not None})
        return await self._speaking.request_of(body, client)
