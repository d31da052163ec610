"""Takes in SQLite and their sound in FLAC files named by id; old ones make room for new ones. Knows no settings."""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import soundfile

from studio.audio.encode import to_pcm
from studio.audio.loudness import loudness_of
from studio.database import open_database
from studio.errors import NotFound
from studio.speech import SAMPLE_RATE_HZ, Float32, SpokenRow
from studio.takes.room import Loose, going, refuse_beyond_share

SCHEMA = Path(__file__).with_name("schema")
PAGE_TAKES = 50
CONVERSION = "conversion"
"""The mode of a take that was no text: a clip that was said by another voice."""


@dataclass(frozen=True, slots=True)
class Take:
    """One finished utterance. request: its SynthesisRequest as JSON; line: the script line that it is kept for."""

    id: str
    client: str
    created_s: float
    voice: str
    voice_name: str
    voice_key: str
    model: str
    request: str
    text: str
    seed: int
    spoken: str
    audio_s: float
    lufs: float
    peak_dbfs: float
    size_bytes: int
    starred: int
    line: str

    @property
    def is_conversion(self) -> bool:
        return bool(json.loads(self.request).get("mode") == CONVERSION)


@dataclass(frozen=True, slots=True)
class Usage:
    """How much there is of one client and of all, how much of it for good, and the most that may be."""

    takes: int
    own_bytes: int
    own_kept_bytes: int
    all_bytes: int
    all_kept_bytes: int
    limit_bytes: int


COLUMNS = ", ".join(Take.__slots__)
_KEPT = "(starred = 1 OR line <> '')"


class TakeStore:
    """The table of takes and the folder of their sound; any thread may call."""

    def __init__(self, folder: Path, max_mb: float, now: Callable[[], float] = time.time) -> None:
        self._sound = folder / "sound"
        self._sound.mkdir(parents=True, exist_ok=True)
        self._limit_bytes = int(max_mb * 1e6)
        self._now = now
        self._db = open_database(folder / "takes.sqlite", SCHEMA)
        self._making_room = threading.Lock()
        for left in self._sound.glob("*.part"):
            left.unlink()

    @property
    def keeps_history(self) -> bool:
        return self._limit_bytes > 0

    def close(self) -> None:
        self._db.close()

    def add(
        self,
        take_id: str,
        client: str,
        samples: Float32,
        spoken: Sequence[SpokenRow],
        request: dict[str, object],
        *,
        voice: str,
        voice_name: str,
        voice_key: str,
        model: str,
        line: str = "",
    ) -> Take:
        """Keep a take: samples float32 [n] at 24 kHz are kept as 16 bits. Takes its time: call it in a thread.

        line: what keeps it for good. Raises: ClientError take.no_room, take.kept_share, take.kept_all, see `room.py`.
        """
        tokens = json.dumps([asdict(row) for row in spoken], separators=(",", ":"))
        loudness = loudness_of(samples, SAMPLE_RATE_HZ)
        with self._written(samples) as partial:
            size_bytes = partial.stat().st_size + len(tokens)
            sampling = request.get("sampling")
            take = Take(
                take_id, client, self._now(), voice, voice_name, voice_key, model,
                json.dumps(request, ensure_ascii=False), str(request["text"]),
                int(sampling["seed"]) if isinstance(sampling, dict) else 0,
                tokens, len(samples) / SAMPLE_RATE_HZ, loudness.lufs, loudness.peak_dbfs, size_bytes, 0, line,
            )  # fmt: skip
            with self._making_room:
                if line:
                    self._refuse_beyond_share(client, size_bytes)
                self._make_room(client, size_bytes)
                self._insert(take, partial)
        return take

    def find(self, client: str, take_id: str) -> Take:
        """A client's own take. Raises NotFound, for other people's too."""
        rows = self._select("client = ? AND id = ?", [client, take_id], 1)
        if not rows:
            raise NotFound("take.not_found", param="take")
        return rows[0]

    def search(
        self, client: str, words: str = "", starred: bool = False, before_s: float | None = None
    ) -> list[Take]:
        """A page of a client's takes, newest first: those whose text or voice has every word, in any case."""
        where = "client = ?"
        values: list[object] = [client]
        for word in words.split()[:8]:
            where += r" AND (text LIKE ? ESCAPE '\' OR voice_name LIKE ? ESCAPE '\')"
            values += 2 * ["%" + "".join("\\" + sign if sign in r"\%_" else sign for sign in word) + "%"]
        if starred:
            where += " AND starred = 1"
        if before_s is not None:
            where += " AND created_s < ?"
            values.append(before_s)
        return self._select(where, values, PAGE_TAKES)

    def of_lines(self, lines: Sequence[str]) -> list[Take]:
        """The takes that are kept for script lines, the oldest first."""
        which = "line <> '' AND line IN (SELECT value FROM json_each(?))"
        return self._select(which, [json.dumps(list(lines))], 100_000)[::-1]

    def let_go(self, lines: Sequence[str]) -> None:
        """The takes of these lines are kept for them no longer; they stay in the history until room is needed."""
        which = "line <> '' AND line IN (SELECT value FROM json_each(?))"
        self._db.execute(f"UPDATE take SET line = '' WHERE {which}", [json.dumps(list(lines))])

    def star(self, client: str, take_id: str, starred: bool) -> Take:
        """A take with a star is not forgotten for want of room. Raises ClientError take.kept_share, take.kept_all."""
        with self._making_room:
            take = self.find(client, take_id)
            if starred and not (take.starred or take.line):
                self._refuse_beyond_share(client, take.size_bytes)
            self._db.execute("UPDATE take SET starred = ? WHERE id = ?", [starred, take_id])
        return self.find(client, take_id)

    def delete(self, client: str, take_id: str) -> Take:
        take = self.find(client, take_id)
        self._forget(take_id)
        return take

    def samples(self, take: Take) -> Float32:
        """The sound, float32 [n] at 24 kHz; to_pcm gives its 16 bits again. Raises NotFound if its file is gone."""
        try:
            pcm = soundfile.read(self._file(take.id), dtype="int16")[0]
        except soundfile.LibsndfileError:
            raise NotFound("take.not_found", param="take") from None
        return (pcm / 32767).astype(np.float32)

    def usage(self, client: str) -> Usage:
        sums = f"coalesce(sum(size_bytes), 0), coalesce(sum(size_bytes) FILTER (WHERE {_KEPT}), 0) FROM take"
        takes, own, own_kept = self._db.execute(f"SELECT count(*), {sums} WHERE client = ?", [client]).fetchone()
        all_, all_kept = self._db.execute(f"SELECT {sums}").fetchone()
        return Usage(takes, own, own_kept, all_, all_kept, self._limit_bytes)

    @contextmanager
    def _written(self, samples: Float32) -> Iterator[Path]:
        """The sound in a file that is gone afterwards, unless it was moved to its place; also when the disk is full."""
        partial = self._sound / f"{uuid.uuid4().hex}.part"
        try:
            pcm = np.frombuffer(to_pcm(samples), "<i2")  # the very samples that a listener gets
            soundfile.write(partial, pcm, SAMPLE_RATE_HZ, format="FLAC", subtype="PCM_16")
            yield partial
        finally:
            partial.unlink(missing_ok=True)

    def _insert(self, take: Take, sound: Path) -> None:
        """The sound in its place and the row that tells of it, or neither."""
        os.replace(sound, self._file(take.id))
        marks = ", ".join("?" * len(Take.__slots__))
        values = [getattr(take, column) for column in Take.__slots__]
        try:
            self._db.execute(f"INSERT INTO take ({COLUMNS}) VALUES ({marks})", values)
        except BaseException:
            self._file(take.id).unlink()
            raise

    def _file(self, take_id: str) -> Path:
        return self._sound / f"{take_id}.flac"

    def _select(self, where: str, values: Sequence[object], limit: int) -> list[Take]:
        order = "ORDER BY created_s DESC, rowid DESC LIMIT ?"
        rows = self._db.execute(f"SELECT {COLUMNS} FROM take WHERE {where} {order}", [*values, limit])
        return [Take(*row) for row in rows.fetchall()]

    def _refuse_beyond_share(self, client: str, size_bytes: int) -> None:
        """Refuse to keep so many bytes more for good."""
        now = self.usage(client)
        refuse_beyond_share(now.own_kept_bytes + size_bytes, now.all_kept_bytes + size_bytes, self._limit_bytes)

    def _make_room(self, client: str, size_bytes: int) -> None:
        """Forget takes that nothing keeps until so many bytes of this client fit."""
        excess_bytes = self.usage(client).all_bytes + size_bytes - self._limit_bytes
        if excess_bytes <= 0:
            return
        held = dict(self._db.execute("SELECT client, sum(size_bytes) FROM take GROUP BY client").fetchall())
        held[client] = held.get(client, 0) + size_bytes
        oldest_first = f"SELECT id, client, size_bytes FROM take WHERE NOT {_KEPT} ORDER BY created_s, rowid"
        loose = [Loose(*row) for row in self._db.execute(oldest_first).fetchall()]
        for take_id in going(loose, held, excess_bytes, self._limit_bytes):
            self._forget(take_id)

    def _forget(self, take_id: str) -> None:
        self._db.execute("DELETE FROM take WHERE id = ?", [take_id])
        self._file(take_id).unlink(missing_ok=True)
