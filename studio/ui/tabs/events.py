"""What the Studio tab's fields do on the server: show a voice, judge a clip, keep and delete. Speaking is not here."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np

from studio.audio.check import best_part, usable_clip
from studio.audio.decode import decode_clip
from studio.errors import InvalidRequest, StudioError
from studio.library.prompts import VoicePrompts
from studio.library.store import VoiceStore, check_transcript
from studio.messages import best_language, render
from studio.speech import Float32
from studio.ui import voices


def language_of(request: gr.Request | None) -> str:
    return best_language(request.headers.get("accept-language") if request else None)


def as_sound(samples: Float32, rate_hz: int) -> tuple[int, np.ndarray]:
    """As gr.Audio wants it; int16, since Gradio would stretch float samples to full scale."""
    return rate_hz, (np.clip(samples, -1, 1) * 32767).astype(np.int16)


class TabEvents:
    """The handlers; each gives the values of the fields that it was wired to."""

    def __init__(self, store: VoiceStore, prompts: VoicePrompts) -> None:
        self._store = store
        self._prompts = prompts

    async def load(self, request: gr.Request) -> Any:
        choices = voices.choices(self._store, language_of(request))
        return gr.Dropdown(choices=choices, value=choices[0][1] if choices else None)

    async def voice(self, voice_id: str | None, request: gr.Request) -> tuple[str, Any]:
        """What there is to say of it, and whether it may be deleted."""
        if not voice_id:
            return "", gr.Button(visible=False)
        try:
            found = self._store.find(voice_id)
        except StudioError as error:
            return error.message(language_of(request)), gr.Button(visible=False)
        self._prompts.expect(found)
        return voices.describe(found, language_of(request)), gr.Button(visible=found.origin != "starter")

    async def clip(self, path: str | None, request: gr.Request) -> tuple[str, Any]:
        """A sentence on the clip, and the way out if it is only too long."""
        if not path:
            return "", gr.Button(visible=False)
        language = language_of(request)
        try:
            found = await asyncio.to_thread(lambda: usable_clip(Path(path).read_bytes()))
        except StudioError as error:
            return f"⚠️ {error.message(language)}", gr.Button(visible=error.key == "clip.too_long")
        seconds = len(found.samples) / found.sample_rate_hz
        return "✅ " + render("page.clip_good", language, seconds=seconds), gr.Button(visible=False)

    async def best_part(self, path: str | None, request: gr.Request) -> Any:
        if not path:
            return None
        part = await asyncio.to_thread(lambda: best_part(decode_clip(Path(path).read_bytes())))
        return as_sound(part.samples, part.sample_rate_hz)

    async def keep(
        self, path: str | None, said: str, name: str, agreed: bool, request: gr.Request
    ) -> tuple[str, Any]:
        """A sentence, and the list of voices with the new one picked."""
        language = language_of(request)
        try:
            if not path:
                raise InvalidRequest("clip.missing", param="audio_sample")
            transcript = check_transcript(said)
            if not agreed:
                raise InvalidRequest("page.consent_missing", param="consent")
            clip = await asyncio.to_thread(lambda: usable_clip(Path(path).read_bytes()))
            consent = render("field.consent", "en")
            made = self._store.add(clip.samples, clip.sample_rate_hz, transcript, name=name, consent=consent)
        except StudioError as error:
            return f"⚠️ {error.message(language)}", gr.skip()
        told = "✅ " + render("page.kept", language, name=made.name)
        return told, gr.Dropdown(choices=voices.choices(self._store, language), value=made.id)

    async def delete(self, voice_id: str | None, request: gr.Request) -> Any:
        language = language_of(request)
        if not voice_id:
            return gr.skip()
        try:
            self._prompts.forget(self._store.delete(voice_id))
        except StudioError as error:
            gr.Warning(error.message(language))
            return gr.skip()
        choices = voices.choices(self._store, language)
        return gr.Dropdown(choices=choices, value=choices[0][1] if choices else None)
