"""POST /v1/audio/voice-designs: a new voice blended of others, with its own defaults; a draft until it gets a name."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from studio.api.voices import check_consent, sweep_drafts, wire
from studio.library.design import design
from studio.library.store import VoiceStore
from studio.registry.models import Models


class Share(BaseModel):
    """A voice by name or id, and its weight beside the others'."""

    model_config = ConfigDict(extra="forbid")

    voice: str
    weight: float = 1.0


class DesignBody(BaseModel):
    """prompt: whose clip is continued, by name or id; left out, the heaviest. defaults: of requests that name none,
    such as pitch and speed. With a name the voice is kept at once, which asks for consent."""

    model_config = ConfigDict(extra="forbid")

    voices: Annotated[list[Share], Field(min_length=1)]
    prompt: str | None = None
    defaults: dict[str, Any] = {}
    name: str | None = None
    consent: str = ""


def designs_router(store: VoiceStore, models: Models) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/audio/voice-designs")
    async def create_design(body: DesignBody) -> dict[str, object]:
        """A voice made of 1 to 4 others; nothing is encoded before it speaks."""
        shares = [(store.find(share.voice), share.weight) for share in body.voices]
        heaviest = max(shares, key=lambda share: share[1])[0]
        made = design(shares, store.find(body.prompt) if body.prompt else heaviest, body.defaults)
        if body.name is not None:
            made = replace(made, name=body.name, consent=check_consent(body.consent)[:400])
        kept = store.insert(made)
        sweep_drafts(store, models)
        return wire(kept)

    return router
