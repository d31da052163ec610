"""The starter voices of assets/starters: put into the library once, listed first. Does not touch voices of users."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import soundfile

from studio.errors import VoiceConflict, VoiceNotFound
from studio.library.store import VoiceStore
from studio.library.voice import Voice

STARTERS = Path(__file__).resolve().parents[2] / "assets" / "starters"


@cache
def starter_entries() -> dict[str, dict[str, str]]:
    """What assets/starters says of each starter voice, by name, in the file's order."""
    listing = json.loads((STARTERS / "starters.json").read_text(encoding="utf-8"))
    return {entry["name"]: entry for entry in listing}


def label(voice: Voice, language: str) -> str:
    """The name; for a starter also what it sounds like, in "en" or "zh"."""
    entry = starter_entries().get(voice.name or "") if voice.origin == "starter" else None
    if entry is None:
        return voice.name or ""
    in_language = "_zh" if language == "zh" else ""
    return f"{entry[f'name{in_language}']} · {entry[f'description{in_language}']}"


def in_order(store: VoiceStore, language: str) -> list[Voice]:
    """Starters of the page's language, the other starters, then kept voices, newest first."""
    known = list(starter_entries())

    def place(voice: Voice) -> tuple[bool, bool, int]:
        starter = voice.origin == "starter"
        at = known.index(voice.name) if starter and voice.name in known else len(known)
        return not starter, starter and voice.language != language, at

    return sorted(store.all(), key=place)


def first_in_order(store: VoiceStore, language: str) -> Voice:
    """Raises: VoiceNotFound in an empty library."""
    if not (found := in_order(store, language)):
        raise VoiceNotFound("voice.library_empty")
    return found[0]


def add_starters(store: VoiceStore, folder: Path) -> int:
    """Add every starter that the library lacks; gives how many were added. A user's voice of the same name wins."""
    listing = folder / "starters.json"
    if not listing.exists():
        return 0
    have = {(v.name or "").casefold() for v in store.all()}
    added = 0
    for entry in json.loads(listing.read_text(encoding="utf-8")):
        if entry["name"].casefold() in have:
            continue
        samples, rate_hz = soundfile.read(folder / entry["file"], dtype="float32")
        details = f"{entry['source']} {entry['licence']}"
        try:
            store.add(
                samples,
                rate_hz,
                entry["transcript"],
                name=entry["name"],
                origin="starter",
                language=entry["language"],
                details=details,
            )
        except VoiceConflict:
            continue
        added += 1
    return added
