"""What gradio_client may call by name, on the same way in as HTTP. Gradio's types stay in studio/ui/client_api.py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
from pydantic import ValidationError
from starlette.requests import HTTPConnection

from studio.api.body import SpeechBody, format_of
from studio.api.speaking import Speaking
from studio.audio.encode import encode_file
from studio.errors import InvalidRequest
from studio.library.store import VoiceStore
from studio.speech import SAMPLE_RATE_HZ
from studio.text.changes import spans


class ClientFunctions:
    """Raises StudioError, as the routes do."""

    def __init__(
        self, speaking: Speaking, store: VoiceStore, client_of: Callable[[HTTPConnection], str]
    ) -> None:
        self._speaking = speaking
        self._store = store
        self._client_of = client_of

    async def speak(self, caller: HTTPConnection, **fields: Any) -> tuple[bytes, str]:
        """A whole file and its format. fields: those of a request to speak."""
        body = _body(fields)
        wanted = format_of(body)
        stream, _request = await self._speaking.begin(body, self._client_of(caller))
        async with stream:
            samples = np.concatenate([chunk.samples async for chunk in stream])
        return await asyncio.to_thread(encode_file, samples, SAMPLE_RATE_HZ, wanted), wanted

    async def preview_text(self, text: str, voice: str) -> dict[str, Any]:
        """Characters, seconds, and what will be said, segment by segment."""
        segments, seconds = await self._speaking.preview(text, voice)
        said = await asyncio.to_thread(spans, text, [segment.text for segment in segments])
        return {
            "characters": len(text),
            "seconds": round(seconds, 1),
            "said": [segment.text for segment in segments],
            "changes": [
                {"typed": span.typed, "said": span.said.strip()}
                for found in said
                for span in found
                if span.typed is not None
            ],
        }

    def list_voices(self) -> list[dict[str, str]]:
        return [{"id": voice.id, "name": voice.name or ""} for voice in self._store.all()]


def _body(fields: dict[str, Any]) -> SpeechBody:
    try:
        return SpeechBody(**{name: value for name, value in fields.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise InvalidRequest("request.field_bad", param=field, field=field, reason=first["msg"]) from None
