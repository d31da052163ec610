"""GET /v1/models, /health and /metrics, and the player's report of what the listener heard."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, Field

from studio.api.errors import language_of
from studio.audio.encode import FORMATS, STREAMED_FORMATS
from studio.engine.engine import Engine
from studio.engine.quality import documented
from studio.messages import render
from studio.metrics.exporter import CONTENT_TYPE, exposition
from studio.speech import ServedModel


class PlayerReport(BaseModel):
    """What a player measured; comes from a browser, so it is clamped and only counted."""

    underruns: Annotated[int, Field(ge=0, le=1000)]
    first_sound_ms: Annotated[float, Field(ge=0, le=600_000)]
    played_ms: Annotated[float, Field(ge=0, le=3_600_000)]


def service_router(engine: Engine, model: ServedModel) -> APIRouter:
    router = APIRouter()

    @router.get("/v1/models")
    async def models() -> dict[str, object]:
        """The one model, and what it honours."""
        qualities = documented(engine.first_chunk_tokens)
        entry = {
            "id": model.name,
            "object": "model",
            "created": 0,
            "owned_by": "cosyvoice-studio",
            "modes": model.modes,
            "sound_tags": model.sound_tags,
            "languages": model.languages,
            "interleaved_text": model.interleaved,
            "sampling": {
                "temperature": model.sampling.temperature,
                "top_p": model.sampling.top_p,
                "top_k": model.sampling.top_k,
                "repetition_window": model.sampling.window,
            },
            "formats": FORMATS,
            "streamed_formats": STREAMED_FORMATS,
            "qualities": list(qualities),
            "quality_settings": qualities,
        }
        return {"object": "list", "data": [entry]}

    @router.get("/health")
    async def health(request: Request) -> JSONResponse:
        """200 when speech can be made, else 503; the body says where each worker stands, for the page.

        seed_holds: when a seed gives the same tokens, "beside_others" or "alone"; null until the speech LM was ready.
        """
        state = engine.state()
        language = language_of(request)
        workers = [
            {
                "name": w.name,
                "stage": w.stage,
                "text": render(w.stage, language),
                "fraction": round(w.fraction, 3),
                "reason": w.reason,
            }
            for w in state.workers
        ]
        body = {
            "status": "ok" if state.ready else "failed" if state.failed else "starting",
            "workers": workers,
            "running": state.running,
            "waiting": state.waiting,
            "eta_s": round(state.expected_ready_s, 1),
            "seed_holds": state.seed_holds,
        }
        return JSONResponse(body, 200 if state.ready else 503, {"Cache-Control": "no-store"})

    @router.get("/metrics")
    async def metrics() -> PlainTextResponse:
        """The studio's figures, and vLLM's own from its process, in one scrape."""
        ours, theirs = exposition(await engine.stats()), await engine.lm_metrics()
        return PlainTextResponse(ours + theirs, media_type=CONTENT_TYPE)

    @router.post("/player/report")
    async def player_report(report: PlayerReport) -> dict[str, bool]:
        engine.report_underruns(report.underruns)
        return {"ok": True}

    return router
