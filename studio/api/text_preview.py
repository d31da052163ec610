"""POST /v1/audio/speech/preview: what will be said and how long it lasts, before anything is made of it."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from studio.api.speaking import Speaking
from studio.text.changes import spans


class PreviewBody(BaseModel):
    """As in a request to speak; of the voice only pronunciations and language are read."""

    model_config = ConfigDict(extra="forbid", strict=True)

    input: str
    voice: str = ""
    model: str = ""
    language: str | None = None
    speed: Annotated[float, Field(ge=0.25, le=4.0)] = 1.0


def preview_router(speaking: Speaking) -> APIRouter:
    """Needs no model, so it answers while the engine starts too."""
    router = APIRouter()

    @router.post("/v1/audio/speech/preview")
    async def preview_speech(body: PreviewBody) -> dict[str, object]:
        """Segments in order; `typed` stands where what is said differs from the text, empty where nothing stands for
        it. seconds: by the speed measured lately, pauses included. Refuses what speaking would refuse."""
        segments, seconds = await speaking.preview(
            body.input, body.voice, body.speed, body.language, body.model
        )
        # Texts made for it take the comparison seconds; streams must go on meanwhile.
        parts = await asyncio.to_thread(spans, body.input, [segment.text for segment in segments])
        return {
            "characters": len(body.input),
            "seconds": round(seconds, 1),
            "segments": [
                {
                    "pause_s": segment.pause_s,
                    "pause_after_s": segment.pause_after_s,
                    "spans": [{"said": span.said, "typed": span.typed} for span in found],
                }
                for segment, found in zip(segments, parts, strict=True)
            ],
        }

    return router
