"""Voices in SQLite and clips in files named by content hash. Does not encode, decode or judge sound."""

from __future__ import annotations

import hashlib
import io
import os
import re
import sqlite3
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile

from studio.errors import ClientError, InvalidRequest, VoiceConflict, VoiceNotFound
from studio.speech import Float32
from studio.text.normalize import clean, only_marks

NAME_MAX_CHARS = 64
TRANSCRIPT_MAX_CHARS = 800
TRANSCRIPT_MAX_CJK_CHARS = 400
"""A sign of Chinese, Japanese or Korean is a syllable or more: about twice the tokens of a letter."""
DRAFT_LIFE_S = 24 * 3600
MAX_DRAFTS = 200
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]")
SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Voice:
    """A library entry; a draft has no name. clip_s: seconds of its clip; created_s: Unix time."""

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


COLUMNS = ", ".join(Voice.__slots__)


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


def is_unicode(text: str) -> bool:
    """False for halves of surrogate pairs, which JSON can carry but neither SQLite nor UTF-8 takes."""
    return not any("\ud800" <= sign <= "\udfff" for sign in text)


class VoiceStore:
    """The table of voices and the folder of clips; owns one SQLite connection, which may be used from any thread."""

    def __init__(self, folder: Path, max_voices: int = 1000, now: Callable[[], float] = time.time) -> None:
        self._clips = folder / "clips"
        self._clips.mkdir(parents=True, exist_ok=True)
        self._max_voices = max_voices
        self._now = now
        # SQLite is built serialised (sqlite3.threadsafety 3), and every change here is one statement.
        self._db = sqlite3.connect(folder / "voices.sqlite", isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA busy_timeout = 5000")
        self._migrate()

    def _migrate(self) -> None:
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise RuntimeError(
                f"the voice library has schema {version}, this studio knows {SCHEMA_VERSION}; update the studio"
            )
        if version == 0:
            schema = Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")
            self._db.executescript(f"BEGIN; {schema}; PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")

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
        language: str = "",
        consent: str = "",
        details: str = "",
    ) -> Voice:
        """Keep a voice; without a name it is a draft, which `forget_drafts` drops one day.

        Raises: InvalidRequest for a bad name or a full library; VoiceConflict for a name in use.
        """
        if name is None:
            origin = "draft"
        else:
            name = self._free_name(name)
        clip = self._write_clip(samples, rate_hz)
        voice = Voice(
            uuid.uuid4().hex,
            name,
            origin,
            transcript,
            language,
            consent,
            details,
            clip,
            len(samples) / rate_hz,
            self._now(),
        )
        marks = ", ".join("?" * len(Voice.__slots__))
        try:
            self._db.execute(
                f"INSERT INTO voice ({COLUMNS}) VALUES ({marks})",
                [getattr(voice, c) for c in Voice.__slots__],
            )
        except sqlite3.IntegrityError:
            raise VoiceConflict("voice.exists", param="name", name=name) from None
        return voice

    def _free_name(self, name: str) -> str:
        name = check_name(name)
        if self._one("name = ?", name):
            raise VoiceConflict("voice.exists", param="name", name=name)
        if (
            self._db.execute("SELECT count(*) FROM voice WHERE origin = 'user'").fetchone()[0]
            >= self._max_voices
        ):
            raise InvalidRequest("voice.limit", limit=self._max_voices)
        return name

    def keep(self, voice_id: str, name: str, consent: str = "") -> Voice:
        """Give a draft its name; it then stays.

        Raises: VoiceNotFound; VoiceConflict for a voice that has a name, or a name in use; InvalidRequest as `add`.
        """
        voice = self.find(voice_id)
        if voice.origin != "draft":
            raise VoiceConflict("voice.named", param="voice", name=voice.name)
        name = self._free_name(name)
        try:
            self._db.execute(
                "UPDATE voice SET name = ?, origin = 'user', consent = ? WHERE id = ? AND origin = 'draft'",
                (name, consent, voice.id),
            )
        except sqlite3.IntegrityError:
            raise VoiceConflict("voice.exists", param="name", name=name) from None
        return self.find(voice.id)

    def find(self, voice: str) -> Voice:
        """By id or name (names ignore case). Raises VoiceNotFound, which lists the known names."""
        if not is_unicode(voice):
            raise InvalidRequest("text.not_unicode", param="voice", field="voice")
        found = self._one("id = ? OR name = ?", voice, voice)
        if found is None:
            known = ", ".join(v.name or "" for v in self.all()[:20])
            raise VoiceNotFound("voice.not_found", param="voice", voice=voice[:80], known=known or "-")
        return found

    def all(self) -> list[Voice]:
        """Named voices: starters first, then the newest."""
        rows = self._db.execute(
            f"SELECT {COLUMNS} FROM voice WHERE origin <> 'draft' ORDER BY origin <> 'starter', created_s DESC, name"
        )
        return [Voice(*row) for row in rows]

    def delete(self, voice: str) -> Voice:
        """Forget a voice with the drafts of its clip, and the clip, if no other voice uses that. Starters stay."""
        found = self.find(voice)
        if found.origin == "starter":
            raise ClientError("voice.starter", param="voice", name=found.name)
        self._db.execute(
            "DELETE FROM voice WHERE id = ? OR (origin = 'draft' AND clip = ?)", (found.id, found.clip)
        )
        self._drop_unused_clip(found.clip)
        return found

    def forget_drafts(self) -> list[Voice]:
        """Drop drafts older than a day, and the oldest of too many; gives those dropped."""
        rows = self._db.execute(
            f"SELECT {COLUMNS} FROM voice WHERE origin = 'draft' ORDER BY created_s DESC, rowid DESC"
        )
        drafts = [Voice(*row) for row in rows]
        limit_s = self._now() - DRAFT_LIFE_S
        gone = [v for n, v in enumerate(drafts) if n >= MAX_DRAFTS or v.created_s < limit_s]
        for voice in gone:
            self._db.execute("DELETE FROM voice WHERE id = ? AND origin = 'draft'", (voice.id,))
            self._drop_unused_clip(voice.clip)
        return gone

    def transcripts_of(self, clip: str) -> set[str]:
        """What the voices of a clip say is said in it; empty once no voice uses the clip."""
        return {row[0] for row in self._db.execute("SELECT transcript FROM voice WHERE clip = ?", (clip,))}

    def clip_file(self, voice: Voice) -> Path:
        return self._clips / f"{voice.clip}.flac"

    def clip_samples(self, voice: Voice) -> tuple[Float32, int]:
        """The clip as float32 [n] and its rate in Hz."""
        samples, rate_hz = soundfile.read(self.clip_file(voice), dtype="float32")
        return samples, rate_hz

    def _one(self, where: str, *values: object) -> Voice | None:
        row = self._db.execute(f"SELECT {COLUMNS} FROM voice WHERE {where}", values).fetchone()
        return Voice(*row) if row else None

    def _write_clip(self, samples: Float32, rate_hz: int) -> str:
        buffer = io.BytesIO()
        soundfile.write(buffer, np.clip(samples, -1.0, 1.0), rate_hz, format="FLAC", subtype="PCM_16")
        data = buffer.getvalue()
        digest = hashlib.sha256(data).hexdigest()[:32]
        target = self._clips / f"{digest}.flac"
        if not target.exists():
            partial = target.with_suffix(f".{uuid.uuid4().hex}.part")
            partial.write_bytes(data)
            os.replace(partial, target)
        return digest

    def _drop_unused_clip(self, clip: str) -> None:
        if not self._db.execute("SELECT 1 FROM voice WHERE clip = ? LIMIT 1", (clip,)).fetchone():
            (self._clips / f"{clip}.flac").unlink(missing_ok=True)
