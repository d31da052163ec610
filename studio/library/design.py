"""New voices out of those of the library: blends, and how they speak unasked. Nothing is encoded or kept here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from studio.errors import InvalidRequest
from studio.library.voice import Part, Voice, check_defaults

MAX_VOICES = 4
MAX_PARTS = 12
"""Parts of a blend of blends."""


def design(shares: Sequence[tuple[Voice, float]], prompt: Voice, defaults: Mapping[str, Any]) -> Voice:
    """A draft that speaks with the prompt of one voice and with the speaker embedding mixed of all.

    Args:    shares: 1 to 4 voices of the library and their weights; prompt: one of them; defaults: as of Voice, over
             those that the prompt's voice has; None takes one away.
    Raises:  InvalidRequest for what cannot be made.
    """
    ids = [voice.id for voice, _ in shares]
    if not 1 <= len(ids) <= MAX_VOICES or len(set(ids)) < len(ids):
        raise InvalidRequest("design.parts", param="voices", limit=MAX_VOICES)
    if without_clip := [voice.name for voice, _ in shares if not voice.has_clip]:
        raise InvalidRequest("voice.no_clip", param="voices", name=without_clip[0])
    weights = [weight for _, weight in shares]
    # Not "weight < 0": that would let through what is no number.
    if not all(0 <= weight < float("inf") for weight in weights) or not sum(weights) > 0:
        raise InvalidRequest("design.weights", param="voices")
    if prompt.id not in ids:
        raise InvalidRequest("design.prompt", param="prompt", voice=prompt.name or prompt.id)
    shared = [part for voice, weight in shares for part in _parts_of(voice, weight / sum(weights))]
    parts = _merged(shared)
    if len(parts) > MAX_PARTS:
        raise InvalidRequest("design.deep", param="voices", parts=len(parts), limit=MAX_PARTS)
    is_itself = len(parts) == 1 and parts[0].source == prompt.source
    return replace(
        prompt,
        name=None,
        origin="draft",
        consent="",
        details="",
        tags=(),
        notes="",
        defaults=check_defaults({**prompt.defaults, **defaults}),
        parts=() if is_itself else parts,
    )


def _parts_of(voice: Voice, share: float) -> list[Part]:
    """A voice as parts: itself, or if it is a blend those that it is made of."""
    parts = voice.parts or (Part(voice.name or "", voice.clip, voice.transcript, 1.0),)
    return [replace(part, weight=part.weight * share) for part in parts if share]


def _merged(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Each source once, with all of its shares."""
    found: dict[object, Part] = {}
    for part in parts:
        known = found.get(part.source)
        found[part.source] = replace(known, weight=known.weight + part.weight) if known else part
    return tuple(replace(part, weight=round(part.weight, 4)) for part in found.values())
