"""A voice as a row of its table, and back; lists and mappings are JSON there."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import Any

from studio.library.voice import Part, Voice

NAMES = tuple(f.name for f in fields(Voice))
COLUMNS = ", ".join(NAMES)


def row_of(voice: Voice) -> tuple[object, ...]:
    as_json = {
        "tags": voice.tags,
        "defaults": dict(voice.defaults),
        "parts": [asdict(part) for part in voice.parts],
    }
    return tuple(
        json.dumps(as_json[name], ensure_ascii=False) if name in as_json else getattr(voice, name)
        for name in NAMES
    )


def voice_of(row: tuple[Any, ...]) -> Voice:
    values = dict(zip(NAMES, row, strict=True))
    values["tags"] = tuple(json.loads(values["tags"]))
    values["defaults"] = json.loads(values["defaults"])
    values["parts"] = tuple(Part(**part) for part in json.loads(values["parts"]))
    return Voice(**values)
