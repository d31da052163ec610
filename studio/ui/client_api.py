"""Names for gradio_client: English, stable, each a route of /v1 with its refusals; nothing that the page itself uses.

Functions that take or give a file are in client_files.py.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Protocol
from urllib.parse import quote

import gradio as gr
import httpx
from starlette.requests import HTTPConnection


class Routes(Protocol):
    """Whole replies of the application's routes to a caller; `studio.api.own_routes.OwnRoutes`."""

    def __call__(
        self, caller: HTTPConnection, method: str, path: str, **content: Any
    ) -> Awaitable[httpx.Response]: ...


async def told(reply: Awaitable[httpx.Response]) -> httpx.Response:
    """The reply; a refusal as Gradio tells it, in the sentence of the route."""
    found = await reply
    if found.is_success:
        return found
    raise gr.Error(found.json()["error"]["message"])


def at(path: str, name: str) -> str:
    """A path that ends with what a caller names."""
    return f"{path}/{quote(name, safe='') or '-'}"


class ClientApi:
    """Each public method is a name; what it gives is the JSON of its route, unless it says otherwise."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes

    async def _json(self, request: gr.Request, method: str, path: str, **content: Any) -> Any:
        return (await told(self._routes(request.request, method, f"/v1{path}", **content))).json()

    async def preview_text(
        self, request: gr.Request, text: str, voice: str = "", language: str = ""
    ) -> dict[str, Any]:
        """Characters, seconds, what will be said, segment by segment, and what of it differs from the text."""
        body = {"input": text, "voice": voice, "language": language or None}
        found = await self._json(request, "POST", "/audio/speech/preview", json=body)
        segments = [segment["spans"] for segment in found.pop("segments")]
        changed = [span for spans in segments for span in spans if span["typed"] is not None]
        return found | {
            "said": ["".join(span["said"] for span in spans) for spans in segments],
            "changes": [{"typed": span["typed"], "said": span["said"].strip()} for span in changed],
        }

    async def list_voices(self, request: gr.Request) -> list[dict[str, str]]:
        """Ids and names."""
        found = await self._json(request, "GET", "/audio/voices")
        return [{"id": voice["id"], "name": voice["name"] or ""} for voice in found["data"]]

    async def edit_voice(self, request: gr.Request, voice: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Change name, tags, notes, language, audition or defaults of a voice, by name or id."""
        return await self._json(request, "PATCH", at("/audio/voices", voice), json=fields)

    async def design_voice(
        self,
        request: gr.Request,
        weights: dict[str, float],
        prompt: str,
        defaults: dict[str, Any],
        name: str,
        consent: str,
    ) -> dict[str, Any]:
        """Keep a blend of 1 to 4 voices under a name; prompt: whose clip is continued; defaults: pitch, speed ..."""
        voices = [{"voice": voice, "weight": float(weight)} for voice, weight in weights.items()]
        body = {"voices": voices, "prompt": prompt, "defaults": defaults, "name": name, "consent": consent}
        return await self._json(request, "POST", "/audio/voice-designs", json=body)

    async def delete_voice(self, request: gr.Request, voice: str) -> dict[str, Any]:
        """Delete a voice; for a day /restore_voice takes its id."""
        return await self._json(request, "DELETE", at("/audio/voices", voice))

    async def restore_voice(self, request: gr.Request, voice_id: str) -> dict[str, Any]:
        """Take back a deletion."""
        return await self._json(request, "POST", at("/audio/voices", voice_id) + "/restore")

    async def list_pronunciations(self, request: gr.Request) -> list[dict[str, Any]]:
        """How words are said, by all voices or by one."""
        return (await self._json(request, "GET", "/audio/pronunciations"))["data"]

    async def add_pronunciation(
        self, request: gr.Request, word: str, said: str, voice: str = ""
    ) -> dict[str, Any]:
        """Have a word said otherwise, by one voice or by all."""
        body = {"word": word, "said": said, "voice": voice}
        return await self._json(request, "POST", "/audio/pronunciations", json=body)

    async def delete_pronunciation(self, request: gr.Request, pronunciation: str) -> dict[str, Any]:
        """Forget one, by its id."""
        return await self._json(request, "DELETE", at("/audio/pronunciations", pronunciation))

    async def start_job(
        self, request: gr.Request, text: str, voice: str, options: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Begin to speak and do not wait; options: fields of /v1/audio/speech. Its sound is /job_file."""
        return await self._json(request, "POST", "/jobs", json={**(options or {}), "input": text, "voice": voice})

    async def list_jobs(self, request: gr.Request) -> list[dict[str, Any]]:
        """The caller's jobs, newest first."""
        return (await self._json(request, "GET", "/jobs"))["data"]

    async def show_job(self, request: gr.Request, job: str) -> dict[str, Any]:
        """State, place in line and time to go."""
        return await self._json(request, "GET", at("/jobs", job))

    async def stop_job(self, request: gr.Request, job: str) -> dict[str, Any]:
        """End it; nothing of it is held then."""
        return await self._json(request, "DELETE", at("/jobs", job))

    async def list_takes(
        self, request: gr.Request, words: str = "", starred: bool = False
    ) -> list[dict[str, Any]]:
        """The caller's takes with every word in text or voice, newest first, 50 at most."""
        return (await self._json(request, "GET", "/audio/takes", params={"q": words, "starred": starred}))["data"]

    async def take_settings(self, request: gr.Request, take: str) -> dict[str, Any]:
        """What made a take: its request, voice and model."""
        return await self._json(request, "GET", at("/audio/takes", take) + "/settings")

    async def star_take(self, request: gr.Request, take: str, starred: bool = True) -> dict[str, Any]:
        """A take with a star is kept when room is needed."""
        return await self._json(request, "POST", at("/audio/takes", take) + "/star", json={"starred": starred})

    async def delete_take(self, request: gr.Request, take: str) -> dict[str, Any]:
        """Delete a take for good."""
        return await self._json(request, "DELETE", at("/audio/takes", take))

    async def make_script(
        self, request: gr.Request, content: str, title: str = "", form: str = "auto", voice: str = ""
    ) -> dict[str, Any]:
        """A script of a play ("Name: line"), CSV or subtitles; voice: of lines that name none. Nothing is spoken."""
        body = {"content": content, "title": title, "form": form, "voice": voice}
        return await self._json(request, "POST", "/audio/scripts", json=body)

    async def list_scripts(self, request: gr.Request) -> list[dict[str, Any]]:
        """The caller's scripts, without their lines."""
        return (await self._json(request, "GET", "/audio/scripts"))["data"]

    async def show_script(self, request: gr.Request, script: str) -> dict[str, Any]:
        """A script with its lines, how far each is, and what failed."""
        return await self._json(request, "GET", at("/audio/scripts", script))

    async def speak_script(
        self, request: gr.Request, script: str, lines: list[str] | None = None
    ) -> dict[str, Any]:
        """Begin a take of each of these lines, by id; of none named, of all without one. /export_script gives it."""
        return await self._json(request, "POST", at("/audio/scripts", script) + "/speak", json={"lines": lines or []})

    async def stop_script(self, request: gr.Request, script: str) -> dict[str, Any]:
        """End what is being made of it."""
        return await self._json(request, "POST", at("/audio/scripts", script) + "/stop")

    async def delete_script(self, request: gr.Request, script: str) -> dict[str, Any]:
        """Its takes stay in the history until room is needed."""
        return await self._json(request, "DELETE", at("/audio/scripts", script))


def client_api(routes: Routes) -> None:
    """Put every name into the page's API."""
    functions = ClientApi(routes)
    for name in vars(ClientApi):
        if not name.startswith("_"):
            gr.api(getattr(functions, name), api_name=name)
