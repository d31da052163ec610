"""Who speaks which line: names of voices, as written, to the voices that there are. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from studio.library.voice import Voice
from studio.script.lines import DraftLine, Fault


class Voices:
    """The voices of the library, to be found by id or by name in any case."""

    def __init__(self, voices: Iterable[Voice]) -> None:
        self._ids: dict[str, str] = {}
        for voice in voices:
            self._ids[(voice.name or voice.id).casefold()] = voice.id
            self._ids[voice.id] = voice.id

    def id_of(self, written: str) -> str | None:
        written = written.strip()
        return self._ids.get(written) or self._ids.get(written.casefold())


def cast(lines: Sequence[DraftLine], voices: Voices, by_speaker: Mapping[str, str], otherwise: str) -> list[DraftLine]:
    """The lines with ids of voices: its own, else its speaker's, else one named like the speaker, else otherwise.

    A name that no voice has is a fault of that line alone. Without any name the line has no voice yet.
    """
    return [_cast(line, voices, by_speaker.get(line.speaker, ""), otherwise) for line in lines]


def _cast(line: DraftLine, voices: Voices, speakers: str, otherwise: str) -> DraftLine:
    written = line.voice or speakers
    if not written and line.speaker and voices.id_of(line.speaker):
        written = line.speaker
    written = written or otherwise
    found = voices.id_of(written) if written else ""
    if found is not None:
        return replace(line, voice=found)
    return replace(line, voice="", fault=line.fault or Fault("script.row_voice", {"voice": written[:40]}))
