"""The starter voices of assets/starters, put into the library once. Does not touch voices of users."""

from __future__ import annotations

import json
from pathlib import Path

import soundfile

from studio.errors import VoiceConflict
from studio.library.store import VoiceStore


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
