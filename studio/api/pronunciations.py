"""/v1/audio/pronunciations: how words are to be said, by all voices or by one."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from studio.errors import VoiceNotFound
from studio.library.pronunciations import Pronunciation, Pronunciations
from studio.library.store import VoiceStore


class PronunciationBody(BaseModel):
    """voice: by id or name; empty: all voices."""

    model_config = ConfigDict(extra="forbid", strict=True)

    word: str
    said: str
    voice: str = ""


def pronunciations_router(pronunciations: Pronunciations, voices: VoiceStore) -> APIRouter:
    router = APIRouter()

    def wire(pronunciation: Pronunciation) -> dict[str, object]:
        voice: dict[str, object] | None = None
        if pronunciation.voice:
            voice = {"id": pronunciation.voice, "name": name_of(pronunciation.voice)}
        return {
            "id": pronunciation.id,
            "word": pronunciation.word,
            "said": pronunciation.said,
            "voice": voice,
            "created_at": int(pronunciation.created_s),
        }

    def name_of(voice_id: str) -> str | None:
        try:
            return voices.find(voice_id).name
        except VoiceNotFound:
            return None

    @router.get("/v1/audio/pronunciations")
    async def list_pronunciations() -> dict[str, object]:
        return {"object": "list", "data": [wire(p) for p in pronunciations.all()]}

    @router.post("/v1/audio/pronunciations", status_code=201)
    async def add_pronunciation(body: PronunciationBody) -> dict[str, object]:
        """From the next request on; a word that is in the list already is said otherwise from then on."""
        voice = voices.find(body.voice).id if body.voice else ""
        return wire(pronunciations.add(body.word, body.said, voice))

    @router.delete("/v1/audio/pronunciations/{pronunciation_id}")
    async def delete_pronunciation(pronunciation_id: str) -> dict[str, object]:
        return wire(pronunciations.delete(pronunciation_id)) | {"deleted": True}

    return router
