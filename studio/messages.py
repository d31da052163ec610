"""The sentence catalogue: every sentence shown to a person, by key and language, read from assets/messages."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

CATALOGUE = Path(__file__).resolve().parent.parent / "assets" / "messages"
LANGUAGES = ("en", "zh")


class MessageKey(str):
    """A field's value that is itself a sentence of the catalogue, such as the stage of a start."""

    __slots__ = ()


@cache
def catalogue(language: str) -> dict[str, str]:
    """All sentences of one language; each value may hold {named} fields."""
    return json.loads((CATALOGUE / f"{language}.json").read_text(encoding="utf-8"))


@cache
def knob_effects() -> dict[str, str]:
    """What the settings of the Admin tab do, in Chinese, by name; the settings table has them in English."""
    return json.loads((CATALOGUE / "knobs_zh.json").read_text(encoding="utf-8"))


def best_language(wanted: str | None) -> str:
    """ "zh" for any Chinese tag or Accept-Language that puts Chinese first, else "en"."""
    first = (wanted or "").split(",")[0].strip().lower()
    return "zh" if first.startswith("zh") else "en"


def render(key: str, language: str = "en", **values: object) -> str:
    """The sentence of a key with its fields filled; a key that is missing is a bug and raises KeyError."""
    sentences = catalogue(language if language in LANGUAGES else "en")
    filled = {
        name: sentences[value] if isinstance(value, MessageKey) else value for name, value in values.items()
    }
    return sentences[key].format(**filled)
