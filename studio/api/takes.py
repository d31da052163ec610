"""/v1/audio/takes: a caller's own history: search, star, files with their settings inside, exact replay."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Literal
from urllib.parse import quote

import numpy as np
from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel

from studio.api.speech import finish_or_leave
from studio.audio.encode import encode_file, to_pcm
from studio.errors import InvalidRequest
from studio.library.store import VoiceStore
from studio.registry.models import Models
from studio.speech import SAMPLE_RATE_HZ, Float32
from studio.takes.card import HEAD_BYTES, Card, card_of, file_with_card, read_card
from studio.takes.recorder import voiced_again
from studio.takes.room import CLIENT_SHARE
from studio.takes.store import Take, TakeStore

MEDIA_TYPES = {"wav": "audio/wav", "flac": "audio/flac", "opus": "audio/ogg", "mp3": "audio/mpeg"}
Format = Literal["wav", "flac", "opus", "mp3"]


class Star(BaseModel):
    starred: bool


def wire(take: Take) -> dict[str, object]:
    """A take as clients see it, with all that speaking it again needs."""
    return {
        "id": take.id,
        "created_at": round(take.created_s, 3),
        "kind": "conversion" if take.is_conversion else "speech",
        "text": take.text,
        "voice": {"id": take.voice, "name": take.voice_name},
        "model": take.model,
        "seed": take.seed,
        "seconds": round(take.audio_s, 3),
        "lufs": round(take.lufs, 2),
        "peak_dbfs": round(take.peak_dbfs, 2),
        "bytes": take.size_bytes,
        "starred": bool(take.starred),
        "line": take.line or None,
        "request": json.loads(take.request),
    }


def file_name(take: Take, ending: str) -> str:
    """Voice, time, seed and the begin of the id: enough to find the take again by hand."""
    voice = re.sub(r"[^\w-]+", "-", take.voice_name).strip("-") or "voice"
    made = datetime.fromtimestamp(take.created_s, UTC).strftime("%Y%m%d-%H%M%S")
    return f"{voice}_{made}_{take.seed}_{take.id[:4]}.{ending}"


def attachment(name: str) -> str:
    """Content-Disposition for a name in any script."""
    plain = name.encode("ascii", "replace").decode().replace("?", "_")
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name)}"


def difference(heard: Float32, again: Float32) -> int:
    """The largest difference of two sounds in steps of 16 bits; of another length counts as full scale."""
    kept, made = (np.frombuffer(to_pcm(s), "<i2").astype(np.int32) for s in (heard, again))
    return int(np.abs(kept - made).max(initial=0)) if len(kept) == len(made) else 65535


def with_voice_here(card: Card, voices: VoiceStore) -> Card:
    """The card with the voice of this library that it means, by id, else by name; None if there is none."""
    voice = card["voice"]
    assert isinstance(voice, dict)
    known = {key: found for found in voices.all() for key in (found.name, found.id)}
    here = known.get(voice.get("id")) or known.get(voice.get("name"))
    return {**card, "voice_here": {"id": here.id, "name": here.name} if here else None}


def takes_router(
    takes: TakeStore, models: Models, voices: VoiceStore, client_of: Callable[[Request], str]
) -> APIRouter:
    router = APIRouter()

    @router.get("/v1/audio/takes")
    async def list_takes(
        request: Request,
        q: Annotated[str, Query(max_length=200)] = "",
        starred: bool = False,
        before: float | None = None,
    ) -> dict[str, object]:
        """A page of the caller's takes, newest first; `before`: created_at of the last one that is known."""
        client = client_of(request)
        found = takes.search(client, q, starred, before)
        usage = takes.usage(client)
        return {
            "data": [wire(take) for take in found],
            "usage": {
                "takes": usage.takes,
                "own_bytes": usage.own_bytes,
                "own_kept_bytes": usage.own_kept_bytes,
                "own_kept_limit_bytes": int(CLIENT_SHARE * usage.limit_bytes),
                "all_bytes": usage.all_bytes,
                "limit_bytes": usage.limit_bytes,
            },
        }

    @router.post("/v1/audio/takes/read")
    async def read_settings(request: Request) -> dict[str, object]:
        """The settings in a file that was made here: send its first 256 KB, or the JSON beside it."""
        head = b""
        async for part in request.stream():
            head += part
            if len(head) >= HEAD_BYTES:
                break
        return with_voice_here(read_card(head), voices)

    @router.get("/v1/audio/takes/{take_id}")
    async def one_take(request: Request, take_id: str) -> dict[str, object]:
        return wire(takes.find(client_of(request), take_id))

    @router.get("/v1/audio/takes/{take_id}/audio")
    async def take_audio(request: Request, take_id: str, format: Format = "wav") -> Response:
        """The sound with its settings inside; a take never changes, so it may be cached."""
        take = takes.find(client_of(request), take_id)

        def make() -> bytes:
            return file_with_card(takes.samples(take), card_of(take), format)

        headers = {
            "Content-Disposition": attachment(file_name(take, format)),
            "Cache-Control": "private, max-age=3600",
        }
        return Response(await asyncio.to_thread(make), media_type=MEDIA_TYPES[format], headers=headers)

    @router.get("/v1/audio/takes/{take_id}/settings")
    async def take_settings(request: Request, take_id: str) -> JSONResponse:
        """The JSON that goes beside the file; posting its request to /v1/audio/speech makes the take again."""
        take = takes.find(client_of(request), take_id)
        headers = {"Content-Disposition": attachment(file_name(take, "settings.json"))}
        return JSONResponse(card_of(take), headers=headers)

    @router.get("/v1/audio/takes/{take_id}/card")
    async def take_card(request: Request, take_id: str) -> dict[str, object]:
        """The same settings as /read gives of the take's file."""
        return with_voice_here(card_of(takes.find(client_of(request), take_id)), voices)

    @router.post("/v1/audio/takes/{take_id}/star")
    async def star_take(request: Request, take_id: str, star: Star) -> dict[str, object]:
        return wire(await asyncio.to_thread(takes.star, client_of(request), take_id, star.starred))

    @router.post("/v1/audio/takes/{take_id}/replay")
    async def replay_take(request: Request, take_id: str) -> Response:
        """The stored speech tokens voiced again, as wav. X-Replay-Difference: from the kept sound, in 16-bit steps."""
        client = client_of(request)
        take = takes.find(client, take_id)
        loaded = models.of_take(take.model)
        loaded.engine.refuse_unless_ready()
        loaded.engine.refuse_if_full(client)  # before a clip is encoded for it
        prompt = await loaded.prompts.of(voices.find(take.voice))
        stream = await loaded.engine.voice(voiced_again(take, prompt))
        again = await finish_or_leave(request, stream)
        kept = await asyncio.to_thread(takes.samples, take)
        headers = {"X-Replay-Difference": str(difference(kept, again)), "Cache-Control": "no-store"}
        return Response(encode_file(again, SAMPLE_RATE_HZ, "wav"), media_type="audio/wav", headers=headers)

    @router.delete("/v1/audio/takes/{take_id}")
    async def delete_take(request: Request, take_id: str) -> dict[str, object]:
        client = client_of(request)
        if takes.find(client, take_id).line:
            raise InvalidRequest("take.in_script", param="take")
        return {"id": takes.delete(client, take_id).id, "deleted": True}

    return router
