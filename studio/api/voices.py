"""/v1/audio/voices: the library, in the shape that Open WebUI and vLLM-Omni's clients read, with all that is ours."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, File, Form, Request, UploadFile
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict

from studio.api.clips import read_clip
from studio.api.errors import language_of
from studio.audio.encode import encode_file
from studio.audio.threads import in_clip_thread
from studio.errors import ClientError, InvalidRequest
from studio.library.starters import label
from studio.library.store import BIN_LIFE_S, VoiceStore
from studio.library.voice import Voice, check_name, check_transcript, is_unicode
from studio.registry.models import Models
from studio.settings import Settings

FIELD_NAMES = {"ref_text": "transcript"}
"""Clients' word for a field, where it is not ours."""


class VoiceEdit(BaseModel):
    """What may be written about a voice; fields that are left out stay as they are."""

    model_config = ConfigDict(extra="forbid")

    name: str | None = None
    ref_text: str | None = None
    language: str | None = None
    details: str | None = None
    tags: list[str] | None = None
    notes: str | None = None
    audition: str | None = None
    defaults: dict[str, Any] | None = None

    def written(self) -> dict[str, Any]:
        """By our names, as the library judges them."""
        given = self.model_dump(exclude_unset=True)
        if missing := [name for name, value in given.items() if value is None]:
            raise InvalidRequest("request.field_missing", param=missing[0], field=missing[0])
        return {FIELD_NAMES.get(name, name): value for name, value in given.items()}


def wire(voice: Voice) -> dict[str, object]:
    """A voice as clients see it; never its clip's place on disk."""
    found: dict[str, object] = {
        "id": voice.id,
        "name": voice.name,
        "origin": voice.origin,
        "language": voice.language,
        "ref_text": voice.transcript,
        "details": voice.details,
        "clip_seconds": round(voice.clip_s, 2),
        "created_at": int(voice.created_s),
        "tags": list(voice.tags),
        "notes": voice.notes,
        "audition": voice.audition,
        "defaults": dict(voice.defaults),
        "blend": [{"name": part.name, "weight": part.weight} for part in voice.parts],
    }
    if voice.deleted_s is not None:
        found["restore_until"] = int(voice.deleted_s + BIN_LIFE_S)
    return found


def check_consent(consent: str) -> str:
    """A voice that stays needs the word that its speaker agrees."""
    if not consent.strip():
        raise InvalidRequest("consent.missing", param="consent")
    return consent.strip()


async def text_fields(request: Request) -> dict[str, str]:
    """The form's fields as sent, so that an empty one differs from a missing one. Refuses broken characters."""
    fields = {k: v for k, v in (await request.form()).items() if isinstance(v, str)}
    for field, value in fields.items():
        if not is_unicode(value):
            raise InvalidRequest("text.not_unicode", param=field, field=field)
    return fields


def sweep_drafts(store: VoiceStore, models: Models) -> None:
    """Forget drafts that are old or too many, and voices deleted a day ago, with what was stored of them."""
    for voice in store.forget_drafts():
        models.forget(voice)


def voices_router(store: VoiceStore, models: Models, settings: Settings) -> APIRouter:
    router = APIRouter()

    @router.get("/v1/audio/voices")
    async def list_voices(
        request: Request, q: str = "", tag: str = "", deleted: bool = False
    ) -> dict[str, object]:
        """All voices, or those in which every word of q occurs, with this tag; deleted: those that can come back."""
        language = language_of(request)
        voices = store.discarded() if deleted else store.all()
        found = [(v, label(v, language)) for v in voices]
        found = [(v, told) for v, told in found if v.matches(q, told)]
        if tag:
            found = [(v, told) for v, told in found if tag.casefold() in (t.casefold() for t in v.tags)]
        data = [{**wire(v), "label": told} for v, told in found]
        return {"voices": [v.name for v, _ in found], "data": data}

    @router.post("/v1/audio/voices")
    async def create_voice(
        request: Request,
        audio_sample: Annotated[UploadFile | None, File()] = None,
        name: Annotated[str | None, Form()] = None,  # for /docs; read below, since here an empty one is none
        ref_text: Annotated[str, Form()] = "",
        consent: Annotated[str, Form()] = "",
        language: Annotated[str, Form()] = "",
        speaker_description: Annotated[str, Form()] = "",
    ) -> dict[str, object]:
        """Save a voice, with its speaker's consent; without a name it is a draft, forgotten after a day."""
        name = (await text_fields(request)).get("name")
        if audio_sample is None:
            raise InvalidRequest("clip.missing", param="audio_sample")
        transcript = check_transcript(ref_text)
        if name is not None:
            name, consent = check_name(name), check_consent(consent)
        clip = await read_clip(audio_sample, settings)
        voice = store.add(
            clip.samples,
            clip.sample_rate_hz,
            transcript,
            name=name,
            language=language[:16],
            consent=consent[:400],
            details=speaker_description[:400],
        )
        sweep_drafts(store, models)
        models.expect(voice)
        return wire(voice)

    @router.get("/v1/audio/voices/{voice}/clip")
    async def voice_clip(voice: str) -> Response:
        """The clip of a voice, as WAV; an id never gets another clip, so it may be cached."""
        samples, rate_hz = await in_clip_thread(store.clip_samples, store.find(voice))
        headers = {"Cache-Control": "private, max-age=3600"}
        return Response(encode_file(samples, rate_hz, "wav"), media_type="audio/wav", headers=headers)

    @router.post("/v1/audio/voices/{voice}/name")
    async def name_voice(
        request: Request, voice: str, name: Annotated[str, Form()], consent: Annotated[str, Form()] = ""
    ) -> dict[str, object]:
        """Give a draft its name, so that it stays; asks for consent as saving does."""
        await text_fields(request)
        return wire(store.keep(voice, name, check_consent(consent)[:400]))

    @router.post("/v1/audio/voices/{voice}/restore")
    async def restore_voice(voice: str) -> dict[str, object]:
        """Take back the deletion of a voice, by its id; where its name was given away it gets a number."""
        return wire(store.restore(voice))

    @router.get("/v1/audio/voices/{voice:path}")
    async def read_voice(voice: str) -> dict[str, object]:
        return wire(store.find(voice))

    @router.patch("/v1/audio/voices/{voice:path}")
    async def edit_voice(voice: str, edit: VoiceEdit) -> dict[str, object]:
        """Change what is written about a voice: what is sent, nothing else."""
        try:
            return wire(store.edit(voice, **edit.written()))
        except ClientError as error:
            ours = {ours: theirs for theirs, ours in FIELD_NAMES.items()}
            error.param = ours.get(error.param or "", error.param)
            raise

    @router.delete("/v1/audio/voices/{voice:path}")
    async def delete_voice(voice: str, forever: bool = False) -> dict[str, object]:
        """Delete a voice; for a day it can be restored, unless it is deleted for good. Blends made of it stay."""
        if forever:
            gone = store.delete(voice)
            models.forget(gone)
        else:
            gone = store.discard(voice)
        still_in = [blend.name for blend in store.blends_of(gone)]
        return {**wire(gone), "deleted": True, "still_in": still_in}

    return router
