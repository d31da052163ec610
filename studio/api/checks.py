"""Checked takes: what is wrong with a take and where, and several takes of which the best is kept, with reasons."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from studio.api.body import SEED_MAX, SpeechBody
from studio.api.errors import language_of
from studio.api.speaking import Speaking
from studio.api.speech import all_samples, or_leave
from studio.checks.mistakes import Mark
from studio.checks.take import MOST_S, Sound, TakeReport, best_of, check_take
from studio.engine.stream import SpeechStream
from studio.errors import ClientError, InvalidRequest, StudioError
from studio.library.store import VoiceStore
from studio.messages import render
from studio.protocols import Ears
from studio.takes.store import Take, TakeStore


class BestBody(SpeechBody):
    """A request to speak, and how many takes of it to compare; a seed is the first one's, the next have the next."""

    takes: Annotated[int, Field(ge=2, le=8)] = 3

    def bodies(self) -> list[SpeechBody]:
        fields = self.model_dump(exclude={"takes"}, exclude_unset=True)
        seeds = [None if self.seed is None else (self.seed + n) % (SEED_MAX + 1) for n in range(self.takes)]
        return [SpeechBody.model_validate(fields | {"seed": seed}) for seed in seeds]


class MoreTakes(BaseModel):
    """How many takes to make beside the one that there is."""

    takes: Annotated[int, Field(ge=1, le=7)] = 3


@dataclass(frozen=True, slots=True)
class Made:
    """One of several takes. id: None if there is none; error: why there is none, or why it could not be checked."""

    id: str | None
    seed: int
    report: TakeReport | None = None
    error: StudioError | None = None


def wire_mark(mark: Mark, language: str) -> dict[str, object]:
    return {
        "kind": mark.kind,
        "severity": mark.severity,
        "start_s": round(mark.start_s, 3),
        "end_s": round(mark.end_s, 3),
        "message": mark.message(language),
    }


def wire(report: TakeReport, language: str) -> dict[str, object]:
    """Figures that could not be measured are null; marks lie in the take, notes are about all of it."""
    return {
        "heard": report.heard,
        "word_error_ratio": _rounded(report.word_error_ratio),
        "likeness": _rounded(report.likeness),
        "lufs": round(report.lufs, 1),
        "peak_dbfs": round(report.peak_dbfs, 1),
        "penalty": round(report.penalty, 3),
        "summary": summary(report, language),
        "reasons": report.reasons(language),
        "marks": [wire_mark(mark, language) for mark in report.marks],
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def summary(report: TakeReport, language: str) -> str:
    """The figures in one line."""
    words = report.word_error_ratio
    told = [
        render("check.words_unheard" if report.heard is None else "check.words_unknown", language)
        if words is None
        else render("check.words_wrong", language, percent=100 * words)
        if words
        else render("check.words_right", language)
    ]
    if report.likeness is not None:
        told.append(render("check.likeness", language, likeness=report.likeness))
    return " · ".join([*told, render("check.lufs", language, lufs=report.lufs)])


class TakeChecks:
    """Finds what a check needs beside a take's sound: the clip of its voice, and what is said in it."""

    def __init__(self, takes: TakeStore, voices: VoiceStore, ears: Ears) -> None:
        self._takes, self._voices, self._ears = takes, voices, ears

    async def report(self, take: Take) -> TakeReport:
        """Raises InvalidRequest for a take that is too long, NotFound if its sound is gone; as `check_take`."""
        if take.audio_s > MOST_S:
            raise InvalidRequest("check.too_long", param="take", seconds=take.audio_s, limit=MOST_S)
        samples = await asyncio.to_thread(self._takes.samples, take)
        prompt_text, clip = "", None
        try:
            voice = self._voices.find(take.voice)
            prompt_text = voice.transcript
            if not voice.parts:  # a blend is meant to be unlike its clip
                clip = await asyncio.to_thread(self._voices.clip_samples, voice)
        except (ClientError, OSError):
            pass  # the voice was deleted; everything else can still be checked
        return await check_take(Sound(samples, take.text, prompt_text, clip), self._ears)


def checks_router(
    speaking: Speaking, takes: TakeStore, checks: TakeChecks, client_of: Callable[[Request], str]
) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/audio/takes/{take_id}/check")
    async def check_one(request: Request, take_id: str) -> dict[str, object]:
        """Listen to one of the caller's takes."""
        report = await checks.report(takes.find(client_of(request), take_id))
        return {"id": take_id, **wire(report, language_of(request))}

    @router.post("/v1/audio/takes/{take_id}/best")
    async def better_take(request: Request, take_id: str, more: MoreTakes) -> dict[str, object]:
        """Make more takes of what made one of the caller's, and say which of all is best and why."""
        client = client_of(request)
        first = takes.find(client, take_id)
        known = Made(first.id, first.seed, await checks.report(first))  # before others are made in vain
        async with AsyncExitStack() as streams:
            begun = []
            for _ in range(more.takes):
                stream, synthesis = await speaking.begin_again(first)
                begun.append((await streams.enter_async_context(stream), synthesis.seed))
            made = await or_leave(request, streams, _made(begun, takes, checks, client))
        return _choice([known, *made], language_of(request))

    @router.post("/v1/audio/speech/best")
    async def keep_the_best(request: Request, body: BestBody) -> dict[str, object]:
        """Make several takes, listen to each, and say which is best and why; all are in the caller's takes."""
        if not takes.keeps_history:
            raise InvalidRequest("check.no_takes", param="takes")
        client = client_of(request)
        if (seconds := await speaking.expected_s(body)) > MOST_S:
            raise InvalidRequest("check.would_be_long", param="input", seconds=seconds, limit=MOST_S)
        async with AsyncExitStack() as streams:
            begun = []
            for one in body.bodies():
                stream, synthesis = await speaking.begin(one, client)
                begun.append((await streams.enter_async_context(stream), synthesis.seed))
            made = await or_leave(request, streams, _made(begun, takes, checks, client))
        return _choice(made, language_of(request))

    return router


async def _made(
    begun: Sequence[tuple[SpeechStream, int]], takes: TakeStore, checks: TakeChecks, client: str
) -> list[Made]:
    """Each take, of a stream and its seed, spoken, all at once, and then judged; one that fails loses no other."""
    outcomes = await asyncio.gather(*(all_samples(stream) for stream, _ in begun), return_exceptions=True)
    made = []
    for (stream, seed), outcome in zip(begun, outcomes, strict=True):
        if isinstance(outcome, StudioError):
            made.append(Made(None, seed, error=outcome))
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            made.append(await _judged(stream.request_id, seed, takes, checks, client))
    return made


async def _judged(take_id: str, seed: int, takes: TakeStore, checks: TakeChecks, client: str) -> Made:
    kept_as = None
    try:
        take = takes.find(client, take_id)
        kept_as = take.id
        return Made(kept_as, seed, await checks.report(take))
    except StudioError as error:  # it was not kept, for want of room, or the ears are busy
        return Made(kept_as, seed, error=error)


def _choice(made: Sequence[Made], language: str) -> dict[str, object]:
    """Which is best, and what was found of each. Raises the first error if none could be judged."""
    judged = [(one.id, one.report) for one in made if one.report is not None]
    if not judged:
        raise next(one.error for one in made if one.error is not None)
    best = judged[best_of([report for _, report in judged])][0]
    return {"best": best, "takes": [_told(one, language) for one in made]}


def _told(one: Made, language: str) -> dict[str, object]:
    error = one.error.message(language) if one.error else None
    found = wire(one.report, language) if one.report else {"reasons": [error]}
    return {"id": one.id, "seed": one.seed, **found, "error": error}
