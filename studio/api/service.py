"""GET /v1/models, /health and /metrics, and the player's report of what the listener heard."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, Field

from studio.api.errors import language_of
from studio.audio.encode import FORMATS, STREAMED_FORMATS
from studio.engine.quality import documented
from studio.messages import render
from studio.metrics.exporter import CONTENT_TYPE, exposition, joined
from studio.registry.loaded import Loaded
from studio.registry.models import Models


class PlayerReport(BaseModel):
    """What a player measured; comes from a browser, so it is clamped and only counted."""

    underruns: Annotated[int, Field(ge=0, le=1000)]
    first_sound_ms: Annotated[float, Field(ge=0, le=600_000)]
    played_ms: Annotated[float, Field(ge=0, le=3_600_000)]


def wire(loaded: Loaded) -> dict[str, object]:
    """A model as clients see it: its name, and what it honours."""
    model, qualities = loaded.model, documented(loaded.engine.first_chunk_tokens)
    return {
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


def service_router(models: Models) -> APIRouter:
    """/health and the players' reports are about the default model."""
    router = APIRouter()
    engine = models.default.engine

    @router.get("/v1/models")
    async def list_models() -> dict[str, object]:
        """The models that may be asked to speak, the default first; not_loaded: others that are known."""
        others = [{"id": e.name, "state": e.state} for e in models.entries.values() if e.state != "loaded"]
        return {"object": "list", "data": [wire(loaded) for loaded in models], "not_loaded": others}

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
        """The studio's figures, and vLLM's own from its processes, in one scrape, each labelled with its model."""
        present = {loaded.name: loaded.engine for loaded in models}
        ours = exposition({name: await engine.stats() for name, engine in present.items()})
        theirs = joined({name: await engine.lm_metrics() for name, engine in present.items()})
        return PlainTextResponse(ours + theirs, media_type=CONTENT_TYPE)

    @router.post("/player/report")
    async def player_report(report: PlayerReport) -> dict[str, bool]:
        engine.report_underruns(report.underruns)
        return {"ok": True}

    return router
