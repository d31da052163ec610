"""/v1/jobs: speech that goes on while its page is loaded again; place in line, time to go, sound, and stop.

POST takes the body of /v1/audio/speech and answers at once; the sound is read at /v1/jobs/ID/audio, over HTTP or as a
WebSocket, as often as wanted and always from the start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from fastapi import APIRouter, WebSocket
from fastapi.responses import StreamingResponse
from starlette.requests import HTTPConnection, Request

from studio.api.body import SpeechBody
from studio.api.errors import error_body, language_of
from studio.api.speaking import Speaking, stream_headers
from studio.api.speech import chunks_after, first_or_leave
from studio.audio.encode import encode_stream, to_pcm
from studio.engine.jobs import Job, Jobs
from studio.errors import StudioError
from studio.messages import render
from studio.registry.models import Models
from studio.speech import SAMPLE_RATE_HZ

TITLE_CHARS = 200


def wire(job: Job, models: Models, language: str) -> dict[str, object]:
    """A job as clients see it. eta_s: to the first sound, wrong by eta_error_s lately; both None once it is there."""
    progress = models.progress(job.id)
    choice = job.stream.choice
    reason = render(choice.reason, language, seconds=choice.seconds, others=choice.others)
    return {
        "id": job.id,
        "object": "job",
        "state": job.state,
        "text": job.request.text[:TITLE_CHARS],
        "seed": job.request.sampling.seed,
        "audio_s": round(job.samples / SAMPLE_RATE_HZ, 3),
        "position": progress.position if progress else None,
        "ahead_tokens": progress.ahead_tokens if progress else None,
        "eta_s": round(progress.eta_s, 2) if progress else None,
        "eta_error_s": None
        if progress is None or progress.eta_error_s is None
        else round(progress.eta_error_s, 2),
        "prebuffer_ms": round(1000 * job.stream.prebuffer_s),
        "quality": choice.quality,
        "quality_reason": reason,
        "error": error_body(job.error, language)["error"] if job.error else None,
    }


def jobs_router(speaking: Speaking, jobs: Jobs, client_of: Callable[[HTTPConnection], str]) -> APIRouter:
    """A job is seen by its own client alone."""
    router = APIRouter()
    models = speaking.models

    @router.post("/v1/jobs", status_code=201)
    async def create_job(request: Request, body: SpeechBody) -> dict[str, object]:
        stream, synthesis = await speaking.begin(body, client_of(request))
        return wire(jobs.begin(stream, synthesis), models, language_of(request))

    @router.get("/v1/jobs")
    async def list_jobs(request: Request) -> dict[str, object]:
        """The caller's jobs, newest first, for a page that was loaded again."""
        language = language_of(request)
        return {
            "object": "list",
            "data": [wire(job, models, language) for job in jobs.of(client_of(request))],
        }

    @router.get("/v1/jobs/{job_id}")
    async def show_job(request: Request, job_id: str) -> dict[str, object]:
        return wire(jobs.find(job_id, client_of(request)), models, language_of(request))

    @router.delete("/v1/jobs/{job_id}")
    async def stop_job(request: Request, job_id: str) -> dict[str, object]:
        """Ends it at once: when the reply comes, nothing of it is held any more."""
        job = jobs.find(job_id, client_of(request))
        await job.stop()
        return wire(job, models, language_of(request))

    @router.get("/v1/jobs/{job_id}/audio")
    async def job_audio(request: Request, job_id: str) -> StreamingResponse:
        """PCM as /v1/audio/speech streams it; an error before the first sound has its status."""
        job = jobs.find(job_id, client_of(request))
        sound = job.read()
        data = encode_stream(chunks_after(await first_or_leave(request, sound), sound), "pcm")
        return StreamingResponse(
            data, media_type="audio/pcm", headers=stream_headers(job.stream, job.request)
        )

    @router.websocket("/v1/jobs/{job_id}/audio")
    async def job_socket(socket: WebSocket, job_id: str) -> None:
        """One text message {type: "audio.start", ...}, binary PCM, then {type: "audio.done"} or {type: "error"}."""
        await socket.accept()
        sending = asyncio.create_task(send(socket, job_id))
        leaving = asyncio.create_task(socket.receive())  # nothing is expected but the end
        await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        for task in (sending, leaving):
            task.cancel()
        await asyncio.gather(sending, leaving, return_exceptions=True)

    async def send(socket: WebSocket, job_id: str) -> None:
        language = language_of(socket)
        try:
            job = jobs.find(job_id, client_of(socket))
            async with aclosing(job.read()) as sound:
                async for chunk in sound:
                    if chunk.index == 0:
                        await socket.send_json({"type": "audio.start", **wire(job, models, language)})
                    await socket.send_bytes(to_pcm(chunk.samples))
            await socket.send_json({"type": "audio.done", **wire(job, models, language)})
        except StudioError as error:
            await socket.send_json({"type": "error", **error_body(error, language)})
        await socket.close()

    return router
