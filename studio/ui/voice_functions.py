"""What gradio_client may do with the library, by stable English names; all of it, and more, is in /v1 too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gradio as gr

from studio.errors import InvalidRequest, StudioError
from studio.library.design import design
from studio.library.store import VoiceStore
from studio.library.voice import Voice


def voice_functions(store: VoiceStore) -> None:
    """/edit_voice, /design_voice, /delete_voice and /restore_voice. Errors are the sentences of the routes."""

    def edit_voice(voice: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Change name, tags, notes, language, audition or defaults of a voice, by name or id."""
        if unknown := fields.keys() - {"name", "tags", "notes", "language", "audition", "defaults"}:
            raise gr.Error(f"fields: {', '.join(sorted(unknown))}?")
        return told(lambda: store.edit(voice, **fields))

    def design_voice(
        weights: dict[str, float], prompt: str, defaults: dict[str, Any], name: str, consent: str
    ) -> dict[str, Any]:
        """Keep a blend of 1 to 4 voices under a name; prompt: whose clip is continued; defaults: pitch, speed ..."""

        def made() -> Voice:
            if not consent.strip():
                raise InvalidRequest("consent.missing", param="consent")
            shares = [(store.find(voice), float(weight)) for voice, weight in weights.items()]
            draft = design(shares, store.find(prompt), defaults)
            return store.insert(replace(draft, name=name, consent=consent.strip()[:400]))

        return told(made)

    def delete_voice(voice: str) -> dict[str, Any]:
        """Delete a voice; for a day /restore_voice takes its id."""
        return told(lambda: store.discard(voice))

    def restore_voice(voice_id: str) -> dict[str, Any]:
        """Take back a deletion."""
        return told(lambda: store.restore(voice_id))

    for function in (edit_voice, design_voice, delete_voice, restore_voice):
        gr.api(function, api_name=function.__name__)


def told(work: Callable[[], Voice]) -> dict[str, Any]:
    """Id and name of the voice that it gives; what it refuses as Gradio tells it."""
    try:
        voice = work()
    except StudioError as error:
        raise gr.Error(error.message("en")) from None
    return {"id": voice.id, "name": voice.name, "tags": list(voice.tags), "defaults": dict(voice.defaults)}
