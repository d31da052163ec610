"""Sound as server-sent events, in OpenAI's shape: speech.audio.delta, then speech.audio.done."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing

from studio.api.errors import error_body
from studio.engine.stream import SpeechStream
from studio.errors import StudioError

DELTA_BYTES = 3 * 16_384
"""The most in one event; a multiple of 3, so that its base64 ends without padding."""


def event(kind: str, **fields: object) -> bytes:
    return f"data: {json.dumps({'type': kind, **fields})}\n\n".encode()


async def speech_events(
    data: AsyncGenerator[bytes, None], stream: SpeechStream, language: str = "en"
) -> AsyncGenerator[bytes, None]:
    """A delta for each piece of sound as it comes, then what was used; a failure is the last event instead.

    usage: ids of the text, and speech tokens.
    """
    async with aclosing(data):
        try:
            async for piece in data:
                for at in range(0, len(piece), DELTA_BYTES):
                    part = piece[at : at + DELTA_BYTES]
                    yield event("speech.audio.delta", audio=base64.b64encode(part).decode())
        except StudioError as error:
            yield event("error", **error_body(error, language))
            return
    spoken = sum(len(row.tokens) for row in stream.spoken)
    usage = {
        "input_tokens": stream.text_ids,
        "output_tokens": spoken,
        "total_tokens": stream.text_ids + spoken,
    }
    yield event("speech.audio.done", usage=usage)
