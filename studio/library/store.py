"""The table of voices and the folder of their clips. Does not encode, decode or judge sound."""

from __future__ import annotations

import sqlite3
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from studio.database import open_database
from studio.errors import ClientError, InvalidRequest, QueueFull, VoiceConflict, VoiceNotFound
from studio.library.clips import ClipFiles
from studio.library.rows import COLUMNS, NAMES, row_of, voice_of
from studio.library.voice import NAME_MAX_CHARS, Source, Voice, check_fields, check_name, is_unicode, preset
from studio.speech import Float32

DRAFT_LIFE_S = 24 * 3600
BIN_LIFE_S = 24 * 3600
"""For so long a deleted voice can be restored."""
MAX_DRAFTS = 200
DRAFT_SAFE_S = 3600
"""For so long no draft makes room for others."""
USES_CLIP = (
    "(clip = :clip OR EXISTS (SELECT 1 FROM json_each(parts) WHERE json_extract(value, '$.clip') = :clip))"
)


class VoiceStore:
    """Owns one SQLite connection, which may be used from any thread; every change is one statement."""

    def __init__(self, folder: Path, max_voices: int = 1000, now: Callable[[], float] = time.time) -> None:
        self.clips = ClipFiles(folder / "clips")
        self.max_voices = max_voices
        self._now = now
        self._presets_of: dict[str, dict[str, Voice]] = {}  # by model
        self._db = open_database(folder / "voices.sqlite", Path(__file__).with_name("schema"))

    def close(self) -> None:
        self._db.close()

    def add(
        self,
        samples: Float32,
        rate_hz: int,
        transcript: str,
        *,
        name: str | None = None,
        origin: str = "user",
        **written: Any,
    ) -> Voice:
        """Keep a voice of a clip; without a name it is a draft, which `forget_drafts` drops one day.

        written: other fields that people write, judged here. Raises as `insert`.
        """
        written = check_fields(written)
        name = self._room_for(name)
        clip = self.clips.write(samples, rate_hz)
        voice = Voice("", name, origin, transcript, "", "", "", clip, len(samples) / rate_hz, 0.0)
        return self.insert(replace(voice, **written))

    def insert(self, voice: Voice) -> Voice:
        """Keep a voice whose clips are in the folder; gives it as kept, with an id and a time of its own.

        Raises: InvalidRequest for a bad name or a full library; VoiceConflict for a name in use; QueueFull for a draft
        too many.
        """
        name = self._room_for(voice.name)
        origin = "draft" if name is None else "user" if voice.origin == "draft" else voice.origin
        new_id, now_s = uuid.uuid4().hex, self._now()
        voice = replace(voice, id=new_id, name=name, origin=origin, created_s=now_s, deleted_s=None)
        marks = ", ".join("?" * len(NAMES))
        self._change(f"INSERT INTO voice ({COLUMNS}) VALUES ({marks})", row_of(voice), name)
        return voice

    def _name_for(self, name: str) -> str:
        """A name that one more voice may have."""
        name = check_name(name)
        if self._one("name = ? AND deleted_s IS NULL", name):
            raise VoiceConflict("voice.exists", param="name", name=name)
        if self.room() < 1:
            raise InvalidRequest("voice.limit", limit=self.max_voices)
        return name

    def _room_for(self, name: str | None) -> str | None:
        """As `_name_for`; None for a draft, which is refused while there are too many and none may go yet."""
        if name is not None:
            return self._name_for(name)
        drafts = self._drafts()
        if len(drafts) >= MAX_DRAFTS and (wait_s := drafts[MAX_DRAFTS - 1].created_s + DRAFT_SAFE_S - self._now()) > 0:
            raise QueueFull("voice.drafts_full", limit=MAX_DRAFTS, minutes=wait_s / 60, retry_after_s=wait_s)
        return None

    def _drafts(self) -> list[Voice]:
        """The newest first."""
        return self._many("origin = 'draft' AND deleted_s IS NULL ORDER BY created_s DESC, rowid DESC")

    def show_presets(self, names: Iterable[str], model: str = "") -> dict[str, Voice]:
        """The voices that a loaded model brings along, in place of its earlier ones; a kept name goes first.

        They are in no table: another checkpoint has others. Gives them by name.
        """
        self._presets_of[model] = {name: preset(name) for name in names if is_unicode(name) and name.strip()}
        return dict(self._presets_of[model])

    @property
    def _presets(self) -> dict[str, Voice]:
        """Of all models, each name once."""
        return {name: voice for presets in self._presets_of.values() for name, voice in presets.items()}

    def room(self) -> int:
        """How many more voices the library takes."""
        count = "SELECT count(*) FROM voice WHERE origin = 'user' AND deleted_s IS NULL"
        return self.max_voices - int(self._db.execute(count).fetchone()[0])

    def free_name(self, wanted: str) -> str:
        """The wanted name, or with a number after it where that is in use: Ada, Ada 2, Ada 3."""
        name, number = check_name(wanted), 1
        while self._one("name = ? AND deleted_s IS NULL", name):
            number += 1
            name = f"{check_name(wanted)[: NAME_MAX_CHARS - 5].rstrip()} {number}"
        return name

    def keep(self, voice_id: str, name: str, consent: str = "") -> Voice:
        """Give a draft its name; it then stays.

        Raises: VoiceNotFound; VoiceConflict for a voice that has a name, or a name in use; InvalidRequest as `insert`.
        """
        voice = self.find(voice_id)
        if voice.origin != "draft":
            raise VoiceConflict("voice.named", param="voice", name=voice.name)
        name = self._name_for(name)
        change = "UPDATE voice SET name = ?, origin = 'user', consent = ? WHERE id = ? AND origin = 'draft'"
        self._change(change, (name, consent, voice.id), name)
        return self.find(voice.id)

    def edit(self, voice: str, **written: Any) -> Voice:
        """Change what people write about a voice, and nothing else, so that two pages may edit different fields.

        Raises: VoiceNotFound, VoiceConflict, InvalidRequest. A starter keeps its name and its transcript.
        """
        found = self._changeable(self.find(voice))
        written = check_fields(written)
        if found.origin == "starter" and {"name", "transcript", "details"} & written.keys():
            raise ClientError("voice.starter_fixed", param="voice", name=found.name)
        if "transcript" in written:
            self._with_clip(found)
        if "name" in written and found.origin == "draft":
            raise ClientError("voice.draft", param="name")  # naming one asks for consent: `keep`
        if not written:
            return found
        row = dict(zip(NAMES, row_of(replace(found, **written)), strict=True))
        places = ", ".join(f"{name} = ?" for name in written)
        values = (*(row[name] for name in written), found.id)
        self._change(f"UPDATE voice SET {places} WHERE id = ?", values, written.get("name"))
        return self.find(found.id)

    def find(self, voice: str) -> Voice:
        """By id or name (names ignore case). Raises VoiceNotFound, which lists the known names."""
        if not is_unicode(voice):
            raise InvalidRequest("text.not_unicode", param="voice", field="voice")
        found = self._one("(id = ? OR name = ?) AND deleted_s IS NULL", voice, voice)
        found = found or next((v for v in self._presets.values() if voice in (v.id, v.name)), None)
        if found is None:
            known = ", ".join(v.name or "" for v in self.all()[:20])
            raise VoiceNotFound("voice.not_found", param="voice", voice=voice[:80], known=known or "-")
        return found

    def all(self) -> list[Voice]:
        """Named voices: starters first, then the newest, then the checkpoint's presets."""
        kept = self._many(
            "origin <> 'draft' AND deleted_s IS NULL ORDER BY origin <> 'starter', created_s DESC, name"
        )
        names = {(voice.name or "").casefold() for voice in kept}
        return [*kept, *(v for v in self._presets.values() if (v.name or "").casefold() not in names)]

    def discarded(self) -> list[Voice]:
        """Voices that can be restored, the one deleted last first."""
        return self._many("deleted_s IS NOT NULL ORDER BY deleted_s DESC, rowid DESC")

    def discard(self, voice: str) -> Voice:
        """Delete a voice in such a way that it can be restored for a day. Starters stay."""
        found = self._deletable(self.find(voice))
        deleted_s = self._now()
        self._db.execute("UPDATE voice SET deleted_s = ? WHERE id = ?", (deleted_s, found.id))
        return replace(found, deleted_s=deleted_s)

    def restore(self, voice_id: str) -> Voice:
        """Take back a deletion; where its name was given away, it comes back with a number after it."""
        found = self._one("id = ? AND deleted_s IS NOT NULL", voice_id)
        if found is None:
            raise VoiceNotFound("voice.not_deleted", param="voice", voice=voice_id[:80])
        name = None if found.name is None else self._name_for(self.free_name(found.name))
        self._change("UPDATE voice SET deleted_s = NULL, name = ? WHERE id = ?", (name, found.id), name)
        return self.find(found.id)

    def delete(self, voice: str) -> Voice:
        """Forget a voice for good, deleted or not, with the drafts of its clip, and the clip if no other voice uses
        that. Starters stay."""
        found = self._one("id = ? AND deleted_s IS NOT NULL", voice) or self._deletable(self.find(voice))
        self._forget(found)
        drafts = f"SELECT {COLUMNS} FROM voice WHERE origin = 'draft' AND {USES_CLIP}"
        for row in self._db.execute(drafts, {"clip": found.clip}).fetchall():
            self._forget(voice_of(row))
        return found

    def _deletable(self, voice: Voice) -> Voice:
        if voice.origin == "starter":
            raise ClientError("voice.starter", param="voice", name=voice.name)
        return self._changeable(voice)

    def _changeable(self, voice: Voice) -> Voice:
        if voice.origin == "preset":
            raise ClientError("voice.preset", param="voice", name=voice.name)
        return voice

    def forget_drafts(self) -> list[Voice]:
        """Drop what nobody asked for in a day: drafts, the oldest of too many, deleted voices; gives those dropped."""
        now_s = self._now()
        lives_s = ((v, DRAFT_SAFE_S if n >= MAX_DRAFTS else DRAFT_LIFE_S) for n, v in enumerate(self._drafts()))
        gone = [v for v, life_s in lives_s if v.created_s < now_s - life_s]
        gone += [v for v in self.discarded() if (v.deleted_s or 0.0) < now_s - BIN_LIFE_S]
        for voice in gone:
            self._forget(voice)
        return gone

    def _forget(self, voice: Voice) -> None:
        self._db.execute("DELETE FROM voice WHERE id = ?", (voice.id,))
        self.drop_unused(source.clip for source in voice.sources)

    def drop_unused(self, clips: Iterable[str]) -> None:
        """Delete those of the clips that no voice uses."""
        for clip in set(clips):
            if not self._one(USES_CLIP, clip=clip):
                self.clips.drop(clip)

    def blends_of(self, voice: Voice) -> list[Voice]:
        """Other named voices that the clip of this one is a part of; they outlive it."""
        return [v for v in self.all() if v.id != voice.id and any(p.clip == voice.clip for p in v.parts)]

    def sources_of(self, clip: str) -> set[Source]:
        """What prompts the voices of a clip are made of; empty once no voice uses the clip."""
        rows = self._db.execute(f"SELECT {COLUMNS} FROM voice WHERE {USES_CLIP}", {"clip": clip})
        voices = [voice_of(row) for row in rows.fetchall()]
        return {s for v in voices for s in v.sources if s.clip == clip}

    def clip_file(self, voice: Voice) -> Path:
        return self.clips.file(self._with_clip(voice).clip)

    def clip_samples(self, voice: Voice) -> tuple[Float32, int]:
        """The clip as float32 [n] and its rate in Hz."""
        return self.clips.samples(self._with_clip(voice).clip)

    def _with_clip(self, voice: Voice) -> Voice:
        if not voice.has_clip:
            raise VoiceNotFound("voice.no_clip", param="voice", name=voice.name)
        return voice

    def _change(self, statement: str, values: Iterable[object], name: str | None) -> None:
        try:
            self._db.execute(statement, tuple(values))
        except sqlite3.IntegrityError:
            raise VoiceConflict("voice.exists", param="name", name=name) from None

    def _one(self, where: str, *values: object, **named: object) -> Voice | None:
        row = self._db.execute(f"SELECT {COLUMNS} FROM voice WHERE {where}", named or values).fetchone()
        return voice_of(row) if row else None

    def _many(self, where: str) -> list[Voice]:
        return [voice_of(row) for row in self._db.execute(f"SELECT {COLUMNS} FROM voice WHERE {where}")]
