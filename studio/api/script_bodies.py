"""What clients send of scripts and their lines, and how it becomes lines with voices."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from studio.library.voice import is_unicode
from studio.script.casting import Voices, cast
from studio.script.lines import (
    MAX_AT_S,
    MAX_LINES,
    MAX_PAUSE_S,
    MAX_SPEAKER_CHARS,
    PAUSE_S,
    SEED_MAX,
    DraftLine,
    decoded,
)
from studio.script.parse import parse


def whole_signs(text: str) -> str:
    if not is_unicode(text):
        raise ValueError("it holds broken characters")
    return text


Text = Annotated[str, Field(max_length=100_000), AfterValidator(whole_signs)]
Name = Annotated[str, Field(max_length=MAX_SPEAKER_CHARS), AfterValidator(whole_signs)]
Pause = Annotated[float, Field(ge=0, le=MAX_PAUSE_S)]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class LineBody(Body):
    """A line as a program gives it; `input` as in /v1/audio/speech."""

    input: Text
    voice: Name = ""
    speaker: Name = ""
    pause_s: Pause = PAUSE_S
    at_s: Annotated[float | None, Field(ge=0, le=MAX_AT_S)] = None
    seed: Annotated[int | None, Field(ge=0, le=SEED_MAX)] = None

    def draft(self) -> DraftLine:
        text = " ".join(self.input.split())
        return DraftLine(text, self.speaker.strip(), self.voice.strip(), self.pause_s, self.at_s, self.seed)


class NewLine(LineBody):
    position: int = MAX_LINES


class ScriptBody(Body):
    """A script as text in one of the forms, or as items. voice: for lines that name none and whose speaker has none."""

    title: Text = ""
    content: str = ""
    form: Literal["auto", "play", "csv", "srt"] = "auto"
    items: Annotated[list[LineBody], Field(max_length=MAX_LINES)] = []
    voice: Name = ""
    voices: dict[str, str] = {}

    def lines(self, voices: Voices) -> list[DraftLine]:
        """Its lines with ids of voices. Raises InvalidRequest for a script without any."""
        lines = [item.draft() for item in self.items] or parse(self.content, self.form)[1]
        return cast(lines, voices, self.voices, self.voice)


class LineEdit(Body):
    """What of a line is to change; `take` picks the one that is exported."""

    input: Text | None = None
    voice: Name | None = None
    speaker: Name | None = None
    pause_s: Pause | None = None
    take: str | None = None


class Cast(Body):
    """The voice of all lines of a speaker; speaker "": of those without one."""

    speaker: Name
    voice: Name


class Title(Body):
    title: Name


class Wanted(Body):
    """Lines to make a take of; none named: all that have none. A line with a take gets a further one."""

    lines: list[str] = []


async def script_of(request: Request) -> ScriptBody:
    """The body as JSON; as any other type, the file itself, with title, form and voice in the query."""
    data = await request.body()
    try:
        if request.headers.get("content-type", "application/json").startswith("application/json"):
            body = ScriptBody.model_validate_json(data)
        else:
            query = {name: request.query_params.get(name, "") for name in ("title", "voice")}
            form = request.query_params.get("form", "auto")
            body = ScriptBody.model_validate({**query, "form": form, "content": decoded(data)})
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from None
    return body
