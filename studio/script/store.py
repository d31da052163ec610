"""Scripts and their lines in SQLite, so that what waits to be spoken goes on after a restart. Speaks nothing."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from studio.database import open_database, transaction
from studio.errors import InvalidRequest, NotFound
from studio.script.lines import MAX_LINES, DraftLine, Fault

SCHEMA = Path(__file__).with_name("schema")
MAX_SCRIPTS = 200
TITLE_CHARS = 80
Status = Literal["new", "waiting", "done", "failed"]


@dataclass(frozen=True, slots=True)
class Script:
    """A client's script; its lines are asked for apart."""

    id: str
    client: str
    title: str
    created_s: float


@dataclass(frozen=True, slots=True)
class Line:
    """A line as it stands. take: id of the one that is exported, or ""; fault: JSON, read by `fault_of`."""

    id: str
    script: str
    position: int
    speaker: str
    voice: str
    text: str
    pause_s: float
    at_s: float | None
    seed: int | None
    take: str
    status: Status
    fault: str


COLUMNS = ", ".join(Line.__slots__)
_WAITS_AS_IT_WAS = "id = ? AND text = ? AND voice = ? AND status = 'waiting'"


def fault_of(line: Line) -> Fault | None:
    """Why a failed line failed."""
    return Fault(**json.loads(line.fault)) if line.fault else None


class ScriptStore:
    """The tables of scripts and lines; any thread may call."""

    def __init__(self, folder: Path, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._db = open_database(folder / "scripts.sqlite", SCHEMA)
        self._lock = threading.RLock()

    def close(self) -> None:
        self._db.close()

    def add(self, client: str, title: str, lines: Sequence[DraftLine]) -> Script:
        """Keep a script; lines with a fault have failed already. Raises InvalidRequest script.too_many."""
        script = Script(uuid.uuid4().hex, client, title.strip()[:TITLE_CHARS], self._now())
        with self._whole():
            if self._db.execute("SELECT count(*) FROM script WHERE client = ?", [client]).fetchone()[0] >= MAX_SCRIPTS:
                raise InvalidRequest("script.too_many", limit=MAX_SCRIPTS)
            values = (script.id, script.client, script.title, script.created_s)
            self._db.execute("INSERT INTO script VALUES (?, ?, ?, ?)", values)
            for position, line in enumerate(lines):
                self._insert(script.id, position, line)
        return script

    def find(self, client: str, script_id: str) -> Script:
        """A client's own script. Raises NotFound, for other people's too."""
        return self._script("id = ? AND client = ?", script_id, client)

    def all(self, client: str) -> list[Script]:
        """A client's scripts, the newest first."""
        order = "ORDER BY created_s DESC, rowid DESC"
        return [Script(*row) for row in self._db.execute(f"SELECT * FROM script WHERE client = ? {order}", [client])]

    def unfinished(self) -> list[Script]:
        """Scripts of all clients with lines that wait to be spoken."""
        waiting = "SELECT script FROM line WHERE status = 'waiting'"
        rows = self._db.execute(f"SELECT * FROM script WHERE id IN ({waiting}) ORDER BY created_s")
        return [Script(*row) for row in rows.fetchall()]

    def rename(self, script: Script, title: str) -> None:
        self._db.execute("UPDATE script SET title = ? WHERE id = ?", [title.strip()[:TITLE_CHARS], script.id])

    def delete(self, script: Script) -> None:
        with self._whole():
            self._db.execute("DELETE FROM line WHERE script = ?", [script.id])
            self._db.execute("DELETE FROM script WHERE id = ?", [script.id])

    def lines(self, script: Script) -> list[Line]:
        """In order of hearing."""
        rows = self._db.execute(f"SELECT {COLUMNS} FROM line WHERE script = ? ORDER BY position", [script.id])
        return [Line(*row) for row in rows.fetchall()]

    def line(self, script: Script, line_id: str) -> Line:
        rows = self._db.execute(f"SELECT {COLUMNS} FROM line WHERE script = ? AND id = ?", [script.id, line_id])
        row = rows.fetchone()
        if row is None:
            raise NotFound("script.line_not_found", param="line")
        return Line(*row)

    def insert(self, script: Script, position: int, line: DraftLine) -> Line:
        """A further line before the one that has this position. Raises InvalidRequest script.too_long."""
        with self._whole():
            count = self._db.execute("SELECT count(*) FROM line WHERE script = ?", [script.id]).fetchone()[0]
            if count >= MAX_LINES:
                raise InvalidRequest("script.too_long", param="text", limit=MAX_LINES)
            position = max(0, min(position, count))
            move = "UPDATE line SET position = position + 1 WHERE script = ? AND position >= ?"
            self._db.execute(move, [script.id, position])
            line_id = self._insert(script.id, position, line)
        return self.line(script, line_id)

    def edit(self, line: Line, **changes: object) -> bool:
        """Other fields of a line; its fault is forgiven. True: the text or voice is another, so it needs a new take."""
        if not changes:
            return False
        is_another = any(changes.get(name, was) != was for name, was in (("text", line.text), ("voice", line.voice)))
        if is_another:
            changes |= {"take": "", "status": "new", "fault": ""}
        elif line.status == "failed":
            changes |= {"status": "done" if line.take else "new", "fault": ""}
        self._set(line.id, **changes)
        return is_another

    def cast(self, script: Script, speaker: str, voice: str) -> list[Line]:
        """A voice, by id, for all lines of a speaker; gives those that had another, which need a new take."""
        recast = "UPDATE line SET voice = ?, take = '', status = 'new', fault = ''"
        which = f"WHERE script = ? AND speaker = ? AND voice <> ? RETURNING {COLUMNS}"
        rows = self._db.execute(f"{recast} {which}", [voice, script.id, speaker, voice])
        return [Line(*row) for row in rows.fetchall()]

    def remove(self, line: Line) -> None:
        with self._whole():
            self._db.execute("DELETE FROM line WHERE id = ?", [line.id])
            move = "UPDATE line SET position = position - 1 WHERE script = ? AND position > ?"
            self._db.execute(move, [line.script, line.position])

    def choose(self, line: Line, take_id: str) -> None:
        """This take is exported."""
        self._set(line.id, take=take_id, status="done", fault="")

    def want(self, lines: Sequence[Line]) -> None:
        """The lines wait to be spoken, over a restart."""
        wait = "UPDATE line SET status = 'waiting', fault = '' WHERE id IN (SELECT value FROM json_each(?))"
        self._db.execute(wait, [json.dumps([line.id for line in lines])])

    def spoken(self, line: Line, take_id: str) -> None:
        """A take of the line as it was; nothing happens if it was edited or stopped meanwhile."""
        done = f"UPDATE line SET take = ?, status = 'done', fault = '' WHERE {_WAITS_AS_IT_WAS}"
        self._db.execute(done, [take_id, line.id, line.text, line.voice])

    def failed(self, line: Line, fault: Fault) -> None:
        """Why the line as it was could not be spoken; nothing happens if it was edited or stopped meanwhile."""
        fail = f"UPDATE line SET status = 'failed', fault = ? WHERE {_WAITS_AS_IT_WAS}"
        self._db.execute(fail, [_as_json(fault), line.id, line.text, line.voice])

    def unwant(self, script: Script) -> None:
        """No line waits any more; those with a take still have it."""
        stop = "UPDATE line SET status = CASE WHEN take = '' THEN 'new' ELSE 'done' END"
        self._db.execute(f"{stop} WHERE script = ? AND status = 'waiting'", [script.id])

    def _script(self, where: str, *values: object) -> Script:
        row = self._db.execute(f"SELECT * FROM script WHERE {where}", values).fetchone()
        if row is None:
            raise NotFound("script.not_found", param="script")
        return Script(*row)

    def _insert(self, script_id: str, position: int, line: DraftLine) -> str:
        line_id, status = uuid.uuid4().hex, "failed" if line.fault else "new"
        fault = _as_json(line.fault) if line.fault else ""
        values = (line_id, script_id, position, line.speaker, line.voice, line.text, line.pause_s, line.at_s,
                  line.seed, "", status, fault)  # fmt: skip
        marks = ", ".join("?" * len(values))
        self._db.execute(f"INSERT INTO line ({COLUMNS}) VALUES ({marks})", values)
        return line_id

    def _set(self, line_id: str, **values: object) -> None:
        names = ", ".join(f"{name} = ?" for name in values)
        self._db.execute(f"UPDATE line SET {names} WHERE id = ?", [*values.values(), line_id])

    def _whole(self) -> AbstractContextManager[None]:
        """All statements or none."""
        return transaction(self._db, self._lock)


def _as_json(fault: Fault) -> str:
    return json.dumps({"key": fault.key, "values": fault.values}, default=str)
