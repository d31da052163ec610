"""A voice of the library as a noun: what is known of it, and what its fields may hold. Stores nothing."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from studio.audio.retime import MAX_PITCH
from studio.errors import InvalidRequest
from studio.text.normalize import clean, only_marks

NAME_MAX_CHARS = 64
TRANSCRIPT_MAX_CHARS = 800
TRANSCRIPT_MAX_CJK_CHARS = 400
"""A sign of Chinese, Japanese or Korean is a syllable or more: about twice the tokens of a letter."""
MAX_CHARS = {"language": 16, "details": 400, "consent": 400, "notes": 2000, "audition": 400}
TAG_MAX_CHARS, MAX_TAGS = 24, 12
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]")

DEFAULTS: dict[str, tuple[type, float, float]] = {
    "speed": (float, 0.5, 2.0),
    "pitch": (float, -MAX_PITCH, MAX_PITCH),
    "seed": (int, 0, 2**32 - 1),
    "temperature": (float, 0.05, 2.0),
    "top_p": (float, 0.05, 1.0),
    "top_k": (int, 1, 200),
    "repetition_window": (int, 0, 50),
    "instructions": (str, 0, 400),
    "language": (str, 0, 16),
}
"""Fields of a speech request that a voice may fill where the request names none: type and least and most value, or
characters."""


@dataclass(frozen=True, slots=True)
class Source:
    """What a voice prompt is made of: a clip by its content hash, and what is said in it."""

    clip: str
    transcript: str


@dataclass(frozen=True, slots=True)
class Part:
    """A voice that is blended into another: its label, what its prompt is made of, and its share, 0 to 1."""

    name: str
    clip: str
    transcript: str
    weight: float

    @property
    def source(self) -> Source:
        return Source(self.clip, self.transcript)


@dataclass(frozen=True, slots=True)
class Voice:
    """A library entry; a draft has no name, and a deleted one has deleted_s.

    clip_s: seconds of its clip; created_s, deleted_s: Unix time. defaults: fields of a speech request, see DEFAULTS.
    A blend has parts, whose speaker embeddings it mixes; prompt tokens and mel are those of its own clip.
    """

    id: str
    name: str | None
    origin: str
    transcript: str
    language: str
    consent: str
    details: str
    clip: str
    clip_s: float
    created_s: float
    tags: tuple[str, ...] = ()
    notes: str = ""
    audition: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    deleted_s: float | None = None

    @property
    def has_clip(self) -> bool:
        """False for presets of a checkpoint and for voices taken from a spk2info.pt: their prompts are all there is."""
        return self.clip_s > 0

    @property
    def source(self) -> Source:
        return Source(self.clip, self.transcript)

    @property
    def sources(self) -> tuple[Source, ...]:
        """All that the voice is made of: its own prompt's first."""
        return (self.source, *(part.source for part in self.parts))

    def matches(self, query: str, label: str = "") -> bool:
        """Whether every word of a query occurs in what is written about the voice, or its label; case is ignored."""
        told = (self.name or "", label, self.language, self.details, self.notes, self.transcript, *self.tags)
        heap = "\n".join(told).casefold()
        return all(word in heap for word in query.casefold().split())


def preset(name: str) -> Voice:
    """A voice that a checkpoint brings along; its id is the same whenever it is shown."""
    return Voice(uuid.uuid5(uuid.NAMESPACE_OID, name).hex, name, "preset", "", "", "", "", "", 0.0, 0.0)


def check_transcript(text: str) -> str:
    """The stripped transcript; cloning by this model needs one."""
    text = text.strip()
    limit = TRANSCRIPT_MAX_CJK_CHARS if _CJK.search(text) else TRANSCRIPT_MAX_CHARS
    if len(text) > limit:
        raise InvalidRequest("transcript.too_long", param="ref_text", characters=len(text), limit=limit)
    if not is_unicode(text):
        raise InvalidRequest("text.not_unicode", param="ref_text", field="ref_text")
    if only_marks(clean(text)):
        raise InvalidRequest("transcript.missing", param="ref_text")
    return text


def check_name(name: str) -> str:
    """The name with single blanks between its words."""
    name = " ".join(name.split())
    if not name:
        raise InvalidRequest("voice.name_missing", param="name")
    if len(name) > NAME_MAX_CHARS or not name.isprintable():
        raise InvalidRequest("voice.name_bad", param="name", limit=NAME_MAX_CHARS)
    return name


def check_tags(tags: object) -> tuple[str, ...]:
    """Each once, in the order given; letter case does not make two of one."""
    if not isinstance(tags, (list, tuple)) or not all(isinstance(tag, str) for tag in tags):
        raise InvalidRequest("voice.tags_bad", param="tags", limit=MAX_TAGS, characters=TAG_MAX_CHARS)
    plain = [" ".join(tag.split()) for tag in tags]
    known = [tag.casefold() for tag in plain]
    kept = tuple(tag for n, tag in enumerate(plain) if tag and known.index(tag.casefold()) == n)
    if len(kept) > MAX_TAGS or any(len(t) > TAG_MAX_CHARS or "," in t or not t.isprintable() for t in kept):
        raise InvalidRequest("voice.tags_bad", param="tags", limit=MAX_TAGS, characters=TAG_MAX_CHARS)
    return kept


def check_text(field_name: str, text: object) -> str:
    """A field of plain text, stripped."""
    limit = MAX_CHARS[field_name]
    if not isinstance(text, str) or len(text := text.strip()) > limit:
        raise InvalidRequest("voice.field_long", param=field_name, field=field_name, limit=limit)
    if not is_unicode(text) or "\0" in text:
        raise InvalidRequest("text.not_unicode", param=field_name, field=field_name)
    return text


def check_defaults(defaults: object) -> dict[str, Any]:
    """Known fields in their ranges; None takes a field away."""
    if not isinstance(defaults, Mapping):
        raise InvalidRequest("voice.defaults_bad", param="defaults", known=", ".join(DEFAULTS))
    found: dict[str, Any] = {}
    for name, value in defaults.items():
        if name not in DEFAULTS:
            raise InvalidRequest("voice.defaults_bad", param="defaults", known=", ".join(DEFAULTS))
        if value is not None and value != "":
            found[name] = _check_default(name, value)
    return found


def _check_default(name: str, value: Any) -> object:
    kind, low, high = DEFAULTS[name]
    if kind is str:
        if isinstance(value, str) and is_unicode(value) and len(value) <= high:
            return value.strip()
    elif _is_number(value) and low <= value <= high and (kind is float or value == int(value)):
        return kind(value)
    raise InvalidRequest("request.out_of_range", param=f"defaults.{name}", field=name, low=low, high=high)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def check_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """What people write about a voice, judged field by field. Raises InvalidRequest for the first that will not do."""
    checks = {
        "name": check_name,
        "transcript": check_transcript,
        "tags": check_tags,
        "defaults": check_defaults,
    }
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name in MAX_CHARS:
            found[name] = check_text(name, value)
        elif name in ("name", "transcript") and not isinstance(value, str):
            raise InvalidRequest("request.field_missing", param=name, field=name)
        else:
            found[name] = checks[name](value)
    return found


def is_unicode(text: str) -> bool:
    """False for halves of surrogate pairs, which JSON can carry but neither SQLite nor UTF-8 takes."""
    return not any("\ud800" <= sign <= "\udfff" for sign in text)
