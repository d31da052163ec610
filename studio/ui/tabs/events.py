"""What the Studio tab's fields do on the server, and what its panels share. Speaking and cloning are not here."""

from __future__ import annotations

from typing import Any

import gradio as gr

from studio.errors import StudioError
from studio.library.prompts import VoicePrompts
from studio.library.store import VoiceStore
from studio.messages import best_language, render
from studio.ui import voices

ERROR_TEMPLATE = "<p class='field-error' data-part='error' role='alert' hidden></p>"
QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
"""Of an event that is the page's own: no spinner over its fields, no name in Gradio's API."""


def language_of(request: gr.Request | None) -> str:
    return best_language(request.headers.get("accept-language") if request else None)


def error_place(field: str) -> gr.HTML:
    """Where the sentence about a field appears, right under it."""
    return gr.HTML(
        html_template=ERROR_TEMPLATE,
        elem_id=f"error-{field}",
        elem_classes="field-error-place",
        padding=False,
    )


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

    async def delete(self, voice_id: str | None, request: gr.Request) -> Any:
        language = language_of(request)
        if not voice_id:
            return gr.skip()
        try:
            gone = self._store.discard(voice_id)
        except StudioError as error:
            gr.Warning(error.message(language))
            return gr.skip()
        gr.Info(render("page.discarded", language, name=gone.name))
        choices = voices.choices(self._store, language)
        return gr.Dropdown(choices=choices, value=choices[0][1] if choices else None)
