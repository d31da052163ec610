"""Voices as one zip file: clips in FLAC, prompts in safetensors, the rest in JSON. Nothing in it is ever executed.

bundle.json says what the voices are; clips/CLIP.flac and prompts/MODELS/NAME.safetensors lie beside it. A prompt only
saves encoding its clip again, and counts only for the models that made it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import IO, Any

from studio.archive import streamed_zip
from studio.audio.check import usable_clip
from studio.errors import InvalidRequest, RequestTooLarge, StudioError
from studio.library.clips import CLIP_ID
from studio.library.design import MAX_PARTS
from studio.library.prompts import VoicePrompts
from studio.library.store import VoiceStore
from studio.library.unpacking import MAX_ENTRIES, Unpacking
from studio.library.voice import NAME_MAX_CHARS, Part, Voice, check_fields

FORMAT, VERSION = "cosyvoice-studio-voices", 1
LISTING = "bundle.json"
ALLOWED = {
    re.compile(r"bundle\.json"): 8_000_000,
    re.compile(r"clips/[0-9a-f]{32}\.flac"): 10_000_000,
    re.compile(r"prompts/[0-9a-f]{16}/[0-9a-f]{32}-[0-9a-f]{16}\.safetensors"): 2_000_000,
}
"""What a bundle may hold, and how many bytes of each: 30 seconds of sound are a third of that."""
MAX_VOICES = 1000
WRITTEN = ("name", "transcript", "language", "consent", "details", "tags", "notes", "audition", "defaults")
"""The fields of a voice that are carried over; ids, times and paths are not."""


def bundle_of(
    voices: Sequence[Voice], max_bytes: int, store: VoiceStore, prompts: VoicePrompts
) -> Iterator[bytes]:
    """A bundle of voices with all that they are made of, piece by piece.

    Args:    max_bytes: of all that is in it, as `take_bundle` has it.
    Raises:  RequestTooLarge at once for more than could be taken in again.
    """
    listing = {"format": FORMAT, "version": VERSION, "voices": [_listed(voice) for voice in voices]}
    text = json.dumps(listing, ensure_ascii=False, indent=1).encode()
    files = _files_of(voices, store, prompts)
    size_bytes = len(text) + sum(file.stat().st_size for file in files.values())
    if size_bytes > max_bytes or len(files) >= MAX_ENTRIES or len(voices) > MAX_VOICES:
        raise RequestTooLarge(
            "bundle.export_large", param="voice", megabytes=size_bytes / 1e6, limit=max_bytes / 1e6, voices=MAX_VOICES
        )
    entries = ((name, file.read_bytes()) for name, file in files.items())
    return streamed_zip(chain([(LISTING, text)], entries))


def _files_of(voices: Sequence[Voice], store: VoiceStore, prompts: VoicePrompts) -> dict[str, Path]:
    """By their names in the bundle."""
    clips = sorted({source.clip for voice in voices for source in voice.sources})
    made = sorted({prompt for voice in voices for prompt in prompts.files_of(voice)})
    return {_clip_file(clip): store.clips.file(clip) for clip in clips} | {
        f"prompts/{prompt.parent.name}/{prompt.name}": prompt for prompt in made
    }


def _listed(voice: Voice) -> dict[str, Any]:
    written = {name: getattr(voice, name) for name in WRITTEN}
    return {**written, "clip": voice.clip, "parts": [asdict(part) for part in voice.parts]}


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of a bundle's voices: those taken in, and the names of those that were here already."""

    voices: list[Voice]
    present: list[str]


def take_bundle(
    file: IO[bytes], max_bytes: int, consent: str, store: VoiceStore, prompts: VoicePrompts
) -> Taken:
    """Take the voices of a bundle in; a name in use gets a number, a voice that is here already is passed over.

    Args:    max_bytes: of all that is unpacked; consent: the word of whoever takes them in, kept beside the bundle's.
    Raises:  InvalidRequest or RequestTooLarge, before anything is taken in.
    """
    with Unpacking(file, ALLOWED, max_bytes) as bundle:
        voices = _read_listing(bundle.read(LISTING))
        seconds = {
            clip: _check_clip(bundle, clip) for v in voices for clip in sorted({s.clip for s in v.sources})
        }
        known = {_same(v) for v in store.all()}
        new = [replace(v, clip_s=seconds[v.clip]) for v in voices if _same(v) not in known]
        if store.room() < len(new):
            raise InvalidRequest("voice.limit", limit=store.max_voices)
        try:
            for clip in {source.clip for voice in new for source in voice.sources}:
                store.clips.take(bundle.read(_clip_file(clip)), clip)
            taken = [_take(voice, consent, store) for voice in new]
        finally:
            store.drop_unused(seconds)
        for voice in taken:
            prompts.take(voice, lambda name: bundle.find(f"prompts/{name}"))
    return Taken(taken, [v.name or "" for v in voices if _same(v) in known])


def _same(voice: Voice) -> object:
    """Equal for a voice and its copy from another library, whatever was written about either since."""
    return voice.name, voice.source, voice.parts


def _take(voice: Voice, consent: str, store: VoiceStore) -> Voice:
    told = "; ".join(word for word in (voice.consent, consent) if word)[:400]
    return store.insert(replace(voice, name=store.free_name(voice.name or ""), consent=told))


def _clip_file(clip: str) -> str:
    return f"clips/{clip}.flac"


def _check_clip(bundle: Unpacking, clip: str) -> float:
    """Its seconds; a clip that could not be cloned here is refused, as an uploaded one is."""
    data = bundle.read(_clip_file(clip))
    if not data.startswith(b"fLaC"):
        raise InvalidRequest("bundle.broken", param="bundle", file=_clip_file(clip))
    try:
        return usable_clip(data).seconds
    except StudioError as error:
        error.param = "bundle"
        raise


def _read_listing(data: bytes) -> list[Voice]:
    try:
        listing = json.loads(data)
        if (
            listing["format"] != FORMAT
            or listing["version"] != VERSION
            or len(listing["voices"]) > MAX_VOICES
        ):
            raise ValueError
        return [_voice_of(entry) for entry in listing["voices"]]
    except InvalidRequest as error:
        error.param = "bundle"
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        raise InvalidRequest("bundle.broken", param="bundle", file=LISTING) from None


def _voice_of(entry: dict[str, Any]) -> Voice:
    """Raises InvalidRequest for what a person could not have typed; ValueError, KeyError, TypeError for the rest."""
    written = check_fields({name: entry[name] for name in WRITTEN if name in entry})
    parts = tuple(_part_of(part) for part in entry.get("parts", []))
    if len(parts) > MAX_PARTS:
        raise ValueError
    fields = {"language": "", "consent": "", "details": "", **written}
    return Voice(
        "", **fields, origin="user", clip=_clip_id(entry["clip"]), clip_s=0.0, created_s=0.0, parts=parts
    )


def _part_of(entry: dict[str, Any]) -> Part:
    written = check_fields({"transcript": entry["transcript"]})
    weight, name = float(entry["weight"]), str(entry["name"])
    if not 0 < weight <= 1 or len(name) > NAME_MAX_CHARS or not name.isprintable():
        raise ValueError
    return Part(name, _clip_id(entry["clip"]), written["transcript"], weight)


def _clip_id(text: str) -> str:
    if not CLIP_ID.fullmatch(text):
        raise ValueError
    return text
