"""Names for gradio_client: English, stable, and nothing that the page itself uses."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any, Protocol

import gradio as gr
from starlette.requests import HTTPConnection

from studio.errors import StudioError
from studio.ui.tabs.events import language_of


class Functions(Protocol):
    """What stands behind the names; `studio.api.client_functions.ClientFunctions`."""

    async def speak(self, caller: HTTPConnection, **fields: Any) -> tuple[bytes, str]: ...

    async def preview_text(self, text: str, voice: str) -> dict[str, Any]: ...

    def list_voices(self) -> list[dict[str, str]]: ...


def client_api(functions: Functions) -> None:
    """/speak gives a file; /preview_text and /list_voices give JSON. Errors are the sentences of the routes."""
    with gr.Row(visible=False):
        text = gr.Textbox(label="text")
        voice = gr.Textbox(label="voice")
        speed = gr.Number(1.0, label="speed")
        quality = gr.Textbox("balanced", label="quality")
        seed = gr.Number(None, label="seed", precision=0)
        audio_format = gr.Textbox("wav", label="audio_format")
        file = gr.File(label="file")
        ask = gr.Button()

    async def speak(
        text: str,
        voice: str,
        speed: float,
        quality: str,
        seed: int | None,
        audio_format: str,
        request: gr.Request,
    ) -> str:
        """Speak a text in a voice, by name or id, and get the whole file."""
        fields = {"input": text, "voice": voice, "speed": float(speed), "quality": quality, "seed": seed}
        try:
            data, ending = await functions.speak(request.request, response_format=audio_format, **fields)
        except StudioError as error:
            raise gr.Error(error.message(language_of(request))) from None
        made = Path(file.GRADIO_CACHE, uuid.uuid4().hex, f"speech.{ending}")  # Gradio forgets what lies there
        made.parent.mkdir(parents=True)
        made.write_bytes(data)
        return str(made)

    async def preview_text(text: str, voice: str = "") -> dict:
        """What will be said, what of it differs from the text, and how long it lasts."""
        try:
            return await functions.preview_text(text, voice)
        except StudioError as error:
            raise gr.Error(error.message("en")) from None

    def list_voices() -> list:
        """Ids and names, those of /v1/audio/voices."""
        return functions.list_voices()

    ask.click(
        speak,
        [text, voice, speed, quality, seed, audio_format],
        file,
        api_name="speak",
        show_progress="hidden",
    )
    gr.api(preview_text, api_name="preview_text")
    gr.api(list_voices, api_name="list_voices")
