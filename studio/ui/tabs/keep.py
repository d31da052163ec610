"""Keeping a cloned voice: its name, the speaker's consent, and the button. Part of the Studio tab's clone panel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from studio.audio.check import usable_clip
from studio.audio.threads import in_clip_thread
from studio.errors import InvalidRequest, StudioError
from studio.library.store import VoiceStore
from studio.library.voice import check_transcript
from studio.messages import render
from studio.ui import voices
from studio.ui.tabs.events import QUIET, language_of


@dataclass(frozen=True, slots=True)
class Keep:
    """The fields of this part."""

    name: gr.Textbox
    consent: gr.Checkbox
    button: gr.Button
    told: gr.Markdown


def keep_part(i18n: gr.I18n) -> Keep:
    with gr.Accordion(i18n("page.keep"), open=True, elem_id="keep-voice"):
        name = gr.Textbox(label=i18n("field.name"), max_lines=1, elem_id="name", max_length=64)
        consent = gr.Checkbox(label=i18n("field.consent"), elem_id="consent")
        button = gr.Button(i18n("button.keep"), elem_id="keep")
        told = gr.Markdown("", elem_id="kept")
    return Keep(name, consent, button, told)


def wire_keep(
    keep: Keep, clip: gr.Audio, transcript: gr.Textbox, voice: gr.Dropdown, store: VoiceStore
) -> None:
    async def on_keep(
        path: str | None, said: str, name: str, agreed: bool, request: gr.Request
    ) -> tuple[str, Any]:
        """A sentence, and the list of voices with the new one picked."""
        language = language_of(request)
        try:
            if not path:
                raise InvalidRequest("clip.missing", param="audio_sample")
            transcript = check_transcript(said)
            if not agreed:
                raise InvalidRequest("page.consent_missing", param="consent")
            usable = await in_clip_thread(lambda: usable_clip(Path(path).read_bytes()))
            consent = render("field.consent", "en")
            made = store.add(usable.samples, usable.sample_rate_hz, transcript, name=name, consent=consent)
        except StudioError as error:
            return f"⚠️ {error.message(language)}", gr.skip()
        told = "✅ " + render("page.kept", language, name=made.name)
        return told, gr.Dropdown(choices=voices.choices(store, language), value=made.id)

    wanted = [clip, transcript, keep.name, keep.consent]
    keep.button.click(on_keep, wanted, [keep.told, voice], **QUIET)
