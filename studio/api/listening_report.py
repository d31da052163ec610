"""/v1/listening/tests/{id}/report: a test's results for its owner, as page, PDF, pictures and JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from studio.api.errors import language_of
from studio.api.listening import answers_shown
from studio.api.owners import Owners
from studio.audio.encode import encode_file
from studio.errors import InvalidRequest, NotFound
from studio.listening.companion import Companion, companion
from studio.listening.export import export
from studio.listening.leaderboard import vote_weights
from studio.listening.measuring import measure
from studio.listening.raters import study
from studio.listening.report import FORMATS, picture_names, render_html, render_pdf, render_picture
from studio.listening.room import ListeningRoom
from studio.listening.statistics.analysis import Analysis, Options, analyse, as_json
from studio.listening.statistics.screening import Rules
from studio.listening.store import Test
from studio.speech import Float32

NO_STORE = {"Cache-Control": "no-store"}
# The page holds names that people typed: nothing in it may run or fetch, whatever gets past the escaping.
PAGE_HEADERS = NO_STORE | {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
}

Result = TypeVar("Result")
Share = Annotated[float | None, Field(ge=0, le=1)]


class ReportOptions(BaseModel):
    """What the owner may choose; a share of 1 switches its rule off. language: en or zh, else the browser's."""

    model_config = ConfigDict(extra="forbid")

    language: Literal["en", "zh"] | None = None
    mixed: bool = False
    difference: float | None = Field(None, gt=0, le=100)
    reference_below: float = Field(Rules().reference_below, ge=0, le=100)
    reference_share: Share = None
    trap_share: Share = None
    repeat_distance: Share = None

    def rules(self) -> Rules:
        """The rules of screening; what is not chosen stays as it is."""
        chosen = {name: getattr(self, name) for name in ("reference_share", "trap_share", "repeat_distance")}
        chosen = {name: value for name, value in chosen.items() if value is not None}
        turned = {"repeat_turned": self.repeat_distance} if self.repeat_distance is not None else {}
        return Rules(reference_below=self.reference_below, **chosen, **turned)


Chosen = Annotated[ReportOptions, Query()]
ClipOfVoice = Callable[[str], tuple[Float32, int]]


def report_router(room: ListeningRoom, owners: Owners, clip_of_voice: ClipOfVoice) -> APIRouter:
    router = APIRouter(prefix="/v1/listening/tests/{test_id}")
    # matplotlib is not made for several threads, and one analysis at a time is enough for one machine.
    drawing, measuring = asyncio.Lock(), asyncio.Lock()

    def test_of(request: Request, test_id: str) -> Test:
        test = owners.test(request, test_id)
        answers_shown(room, test)
        return test

    def analysis_of(test: Test, chosen: ReportOptions) -> Analysis:
        answers = room.raters.answers(test.id)
        weights = vote_weights(room.raters.of_test(test.id), answers) if test.design.arena else {}
        return analyse(
            answers, study(test), Options(chosen.difference, chosen.mixed, chosen.rules(), weights)
        )

    def measures_of(test: Test) -> Companion | None:
        text = room.store.measures(test.id)
        return companion(text, room.raters.answers(test.id), study(test)) if text else None

    def voice_of(test: Test) -> bytes | None:
        """The clip of the one voice that speaks in all conditions that the studio made, as WAV."""
        voices = {c.source.voice for c in test.design.conditions if c.source.kind == "speech"}
        return encode_file(*clip_of_voice(voices.pop()), "wav") if len(voices) == 1 else None

    async def drawn(work: Callable[[], Result]) -> Result:
        async with drawing:
            return await asyncio.to_thread(work)

    @router.get("/report")
    async def page(request: Request, test_id: str, chosen: Chosen) -> Response:
        test, language = test_of(request, test_id), chosen.language or language_of(request)
        told = await drawn(lambda: render_html(analysis_of(test, chosen), language, measures_of(test)))
        return Response(told, media_type="text/html; charset=utf-8", headers=PAGE_HEADERS)

    @router.get("/report.pdf")
    async def paper(request: Request, test_id: str, chosen: Chosen) -> Response:
        test, language = test_of(request, test_id), chosen.language or language_of(request)
        told = await drawn(lambda: render_pdf(analysis_of(test, chosen), language, measures_of(test)))
        named = {"Content-Disposition": f'attachment; filename="report-{test.id}.pdf"'}
        return Response(told, media_type="application/pdf", headers=NO_STORE | named)

    @router.get("/report.json")
    async def figures(request: Request, test_id: str, chosen: Chosen) -> dict[str, Any]:
        """Everything that the report says, as numbers, and the names of its pictures."""
        test = test_of(request, test_id)
        found = await drawn(lambda: analysis_of(test, chosen))
        return as_json(found) | {"pictures": picture_names(found)}

    @router.get("/pictures/{name}.{form}")
    async def picture(request: Request, test_id: str, name: str, form: str, chosen: Chosen) -> Response:
        """values, answers, differences, power or ranking, as png or svg."""
        test, language = test_of(request, test_id), chosen.language or language_of(request)

        def work() -> bytes:
            found = analysis_of(test, chosen)
            names = picture_names(found)
            if name not in names or form not in FORMATS:
                raise NotFound("report.no_picture", names=", ".join(names), forms=", ".join(FORMATS))
            return render_picture(found, name, form, language)

        return Response(await drawn(work), media_type=FORMATS.get(form), headers=NO_STORE)

    @router.post("/measures")
    async def measure_clips(request: Request, test_id: str) -> dict[str, Any]:
        """Have instruments judge the clips, here and now; the report then shows them beside the answers."""
        test = owners.test(request, test_id)
        async with measuring:
            reference = await asyncio.to_thread(voice_of, test)
            return kept(test, await measure(export(room.store, room.raters, test), reference))

    @router.put("/measures")
    async def put_measures(request: Request, test_id: str) -> dict[str, Any]:
        """Take what `python -m studio.evaluate.companion` printed on another machine."""
        test = owners.test(request, test_id)
        return kept(test, (await request.body()).decode("utf-8", "replace"))

    @router.get("/measures")
    async def show_measures(request: Request, test_id: str) -> Response:
        """What was measured, as the command prints it."""
        text = room.store.measures(owners.test(request, test_id).id)
        if not text:
            raise NotFound("report.no_measures")
        return Response(text, media_type="application/json", headers=NO_STORE)

    def kept(test: Test, text: str) -> dict[str, Any]:
        try:
            told = companion(text, (), study(test))
        except (ValueError, KeyError, TypeError, AttributeError) as reason:
            raise InvalidRequest("report.bad_measures", param="body") from reason
        room.store.keep_measures(test.id, text)
        return {"clips": len(told.clips), "absent": told.absent}

    return router
