"""What gradio_client calls that takes or gives files, by stable English names; the rest is in client_api.py."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradio as gr

from studio.audio.encode import wav_header
from studio.speech import SAMPLE_RATE_HZ
from studio.ui.client_api import Routes, at, told


class ClientFiles:
    """Each public method is a name; a file that it gives is forgotten by Gradio after a while."""

    def __init__(self, routes: Routes, cache: str) -> None:
        self._routes = routes
        self._cache = cache

    async def _ask(self, request: gr.Request, method: str, path: str, **content: Any) -> Any:
        return await told(self._routes(request.request, method, f"/v1{path}", **content))

    def _place(self, name: str) -> Path:
        return Path(self._cache, uuid.uuid4().hex, name)

    async def _kept(self, request: gr.Request, name: str, path: str, **params: Any) -> str:
        """The file that a path gives, which may be larger than memory."""
        made = self._place(name)
        await self._ask(request, "GET", path, into=made, params=params)
        return str(made)

    async def _sound(self, name: str, data: bytes, audio_format: str) -> str:
        """A file of a reply; of a wav the samples were asked for, since a streamed one does not know its length."""
        head = wav_header(SAMPLE_RATE_HZ, len(data)) if audio_format == "wav" else b""
        made = self._place(f"{name}.{audio_format}")

        def write() -> None:
            made.parent.mkdir(parents=True)
            made.write_bytes(head + data)

        await asyncio.to_thread(write)
        return str(made)

    async def speak(
        self,
        text: str,
        voice: str,
        speed: float,
        quality: str,
        seed: int | None,
        audio_format: str,
        language: str,
        request: gr.Request,
    ) -> str:
        """Speak a text in a voice, by name or id, and get the whole file; seed -1: a new one."""
        fields = {"input": text, "voice": voice, "speed": float(speed), "quality": quality}
        wanted = "pcm" if audio_format == "wav" else audio_format
        body = fields | {"response_format": wanted}
        body |= {"seed": seed} if seed is not None and seed >= 0 else {}  # else the voice's own, or a new one
        body |= {"language": language} if language else {}
        reply = await self._ask(request, "POST", "/audio/speech", json=body)
        return await self._sound("speech", reply.content, audio_format)

    async def job_file(self, job: str, request: gr.Request) -> str:
        """The whole sound of a job as wav, once it is made."""
        reply = await self._ask(request, "GET", at("/jobs", job) + "/audio")
        return await self._sound("speech", reply.content, "wav")

    async def take_file(self, take: str, audio_format: str, request: gr.Request) -> str:
        """A take as wav, flac, opus or mp3, with its settings inside."""
        path = at("/audio/takes", take) + "/audio"
        return await self._kept(request, f"take.{audio_format}", path, format=audio_format)

    async def export_script(self, script: str, what: str, request: gr.Request) -> str:
        """wav, mp3 or flac of the whole, srt, vtt, or zip: all of it with stems and settings."""
        path = at("/audio/scripts", script) + "/export"
        return await self._kept(request, f"script.{what}", path, what=what)

    async def export_voices(self, voices: list[str] | None, request: gr.Request) -> str:
        """A bundle (zip) of voices, by name or id; of none named, of all but the starters."""
        return await self._kept(request, "library.zip", "/audio/voice-bundles", voice=voices or [])

    async def import_voices(self, bundle: str | None, consent: str, request: gr.Request) -> dict[str, Any]:
        """Take in the voices of a bundle, or of upstream's spk2info.pt; consent: how their speakers agreed."""
        sent = {"files": {"bundle": await _given(bundle)}} if bundle else {}
        reply = await self._ask(request, "POST", "/audio/voice-bundles", data={"consent": consent}, **sent)
        return dict(reply.json())

    async def clone_voice(
        self, clip: str | None, transcript: str, name: str, consent: str, request: gr.Request
    ) -> dict[str, Any]:
        """Keep the voice of a clip; transcript: what is said in it; consent: how its speaker agreed."""
        form = {"ref_text": transcript, "name": name, "consent": consent}
        sent = {"files": {"audio_sample": await _given(clip)}} if clip else {}
        return dict((await self._ask(request, "POST", "/audio/voices", data=form, **sent)).json())

    async def convert_clip(self, clip: str | None, voice: str, request: gr.Request) -> str:
        """What a clip says, in another voice, as wav."""
        form = {"voice": voice, "response_format": "pcm"}
        sent = {"files": {"audio_sample": await _given(clip)}} if clip else {}
        reply = await self._ask(request, "POST", "/audio/conversions", data=form, **sent)
        return await self._sound("converted", reply.content, "wav")


async def _given(path: str) -> tuple[str, bytes]:
    """A file as it is sent; routes judge it by what is in it."""
    return Path(path).name, await asyncio.to_thread(Path(path).read_bytes)


def client_files(routes: Routes) -> None:
    """Put every name into the page's API. The fields are hidden, and only say what types there are."""
    with gr.Row(visible=False):
        text, voice, name, transcript, consent, job, take, script = (
            gr.Textbox(label=label)
            for label in ("text", "voice", "name", "transcript", "consent", "job", "take", "script")
        )
        speed, seed = gr.Number(1.0, label="speed"), gr.Number(-1, label="seed", precision=0)
        quality, language = gr.Textbox("balanced", label="quality"), gr.Textbox("", label="language")
        audio_format, what = gr.Textbox("wav", label="audio_format"), gr.Textbox("zip", label="what")
        voices = gr.JSON([], label="voices")
        given, file = gr.File(label="file", type="filepath"), gr.File(label="file")
        kept = gr.JSON(label="voice")
        ask = gr.Button()
    files = ClientFiles(routes, file.GRADIO_CACHE)
    wanted: list[tuple[Callable[..., Any], list[Any], Any]] = [
        (files.speak, [text, voice, speed, quality, seed, audio_format, language], file),
        (files.job_file, [job], file),
        (files.take_file, [take, audio_format], file),
        (files.export_script, [script, what], file),
        (files.export_voices, [voices], file),
        (files.import_voices, [given, consent], kept),
        (files.clone_voice, [given, transcript, name, consent], kept),
        (files.convert_clip, [given, voice], file),
    ]
    for function, fields, result in wanted:
        ask.click(function, fields, result, api_name=function.__name__, show_progress="hidden")
