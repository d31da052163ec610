"""The form of a listening test: its fields on the wire to a design, and a test as its owner sees it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import asdict
from itertools import count
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from studio.errors import InvalidRequest
from studio.library.store import is_unicode
from studio.listening import problems
from studio.listening.answers import Kind
from studio.listening.design import Condition, Design, Source
from studio.listening.opening import all_problems
from studio.listening.problems import Problem, no_effect
from studio.listening.room import ListeningRoom
from studio.listening.store import Test

_Text = Annotated[str, Field(max_length=4000)]


class SourceBody(BaseModel):
    """Where a condition's clips come from; settings are those of POST /v1/audio/speech, studio those of app.py."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["upload", "speech", "takes"] = "upload"
    folder: str = Field("", max_length=200)
    voice: str = Field("", max_length=200)
    settings: dict[str, str | float | int | bool] = Field({}, max_length=20)
    studio: dict[str, str | float | int | bool | None] = Field({}, max_length=20)
    takes: list[Annotated[str, Field(max_length=64)]] = Field([], max_length=200)


class ConditionBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=200)
    source: SourceBody = Field(default_factory=lambda: SourceBody.model_validate({}))


class DesignBody(BaseModel):
    """The form. reference: the name of a condition, or "voice"."""

    model_config = ConfigDict(extra="forbid")

    kind: Kind
    title: str = Field("", max_length=200)
    conditions: list[ConditionBody] = Field(max_length=40)
    texts: list[Annotated[str, Field(max_length=4000)]] = Field([], max_length=500)
    reference: str = Field("", max_length=200)
    anchors: bool | None = None
    language: Literal["en", "zh"] = "en"
    consent: _Text = ""
    instructions: _Text = ""
    headphones: Literal["off", "ask", "require"] = "ask"
    training: int = Field(0, ge=0, le=20)
    traps: int = Field(0, ge=0, le=20)
    gold: int = Field(0, ge=0, le=20)
    repeats: int = Field(0, ge=0, le=50)
    rounds: int = Field(1, ge=1, le=10)
    coverage: Literal["full", "latin"] | None = None
    raters: int = Field(12, ge=1, le=10000)
    min_results: int = Field(0, ge=0, le=10000)
    timeout_s: int = Field(0, ge=0, le=3600)
    comments: bool = True
    arena: bool = False
    leaderboard: Literal["voted", "always", "never"] = "voted"
    leaderboard_votes: int = Field(20, ge=1, le=100_000)
    seed: int | None = Field(None, ge=0, le=2**32 - 1)


def design_of(body: DesignBody, before: Design | None = None) -> Design:
    """The form as a design: ids for names, blank texts left out, a seed drawn where none is given.

    before: the design that this one replaces; a condition of the same name keeps its id, and so its clips.
    """
    problems.refuse(_unread(body))
    fields = body.model_dump(exclude={"conditions", "reference", "texts", "seed", "coverage", "anchors"})
    known = {c.name: c.id for c in before.conditions} if before else {}
    fresh = (id for n in count(1) if (id := f"c{n}") not in known.values())
    names = [" ".join(c.name.split()) for c in body.conditions]
    ids = {name: known.get(name) or next(fresh) for name in names}
    conditions = tuple(
        Condition(ids[name], name, _source_of(c.source)) for name, c in zip(names, body.conditions, strict=True)
    )
    reference = body.reference if body.reference in ("", "voice") else ids.get(" ".join(body.reference.split()), "?")
    texts = tuple(text for line in body.texts if (text := " ".join(line.split())))
    coverage = body.coverage or ("latin" if body.kind is Kind.INTELLIGIBILITY else "full")
    seeds = (body.seed, before.seed if before else None, secrets.randbelow(2**32))
    design = Design(
        **fields,
        conditions=conditions,
        reference=reference,
        texts=texts,
        coverage=coverage,
        seed=next(seed for seed in seeds if seed is not None),
        anchors=body.kind is Kind.MUSHRA if body.anchors is None else body.anchors,
    )
    if not is_unicode(json.dumps(design.to_dict(), ensure_ascii=False)):
        raise InvalidRequest("text.not_unicode", param="design", field="design")
    problems.refuse(problems.of_design(design))
    return design


def _unread(body: DesignBody) -> Iterator[Problem]:
    """What only the form can tell from what it would be anyway."""
    if body.anchors and body.kind is not Kind.MUSHRA:
        yield no_effect("anchors", "anchors", "listening.because.anchors")
    if body.arena and body.seed is not None:
        yield no_effect("seed", "seed", "listening.because.arena")
    usual = DesignBody.model_fields
    for name in ("leaderboard", "leaderboard_votes"):
        if not body.arena and getattr(body, name) != usual[name].default:
            yield no_effect(name, name, "listening.because.no_arena")


def wire(room: ListeningRoom, test: Test, language: str) -> dict[str, Any]:
    """A test as its owner sees it; answers are not in it."""
    clips = room.store.clips(test.id, "given")
    found = all_problems(room.store, test) if test.state == "draft" else []
    spoken = [c for c in test.design.conditions if c.source.kind == "speech"]
    return {
        "id": test.id,
        "state": test.state,
        "created_at": int(test.created_s),
        "design": test.design.to_dict(),
        "clips": [
            {"item": clip.item, "condition": clip.condition, "seconds": round(clip.seconds, 2), "text": clip.text}
            for clip in clips.values()
        ],
        "making": room.is_making(test.id),
        "series": room.series.view(test.id) if room.series else None,
        "can_borrow": room.series is not None,
        "made": sum((clip.condition in {c.id for c in spoken}) for clip in clips.values()),
        "to_make": 0 if test.design.arena else len(spoken) * len(test.design.texts),
        "problem": test.problem_in(language),
        "waiting": [{"condition": w.condition.name, "wanted": w.wanted} for w in room.generation.waiting(test.design)],
        "problems": [{"level": p.level, "param": p.param, "message": p.sentence(language)} for p in found],
        "counts": room.raters.counts(test.id),
        "invitations": [asdict(invitation) for invitation in room.store.invitations(test.id)],
    }


def _source_of(body: SourceBody) -> Source:
    return Source(**(body.model_dump() | {"takes": tuple(body.takes)}))
