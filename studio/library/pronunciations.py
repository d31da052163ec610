"""How words are to be said: respellings that are read in place of words, for all voices or for one."""

from __future__ import annotations

import re
import sqlite3
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from studio.database import open_database
from studio.errors import InvalidRequest, NotFound
from studio.text.normalize import TAG, only_marks
from studio.text.pauses import WRITTEN as PAUSE

WORD_MAX_CHARS = 64
SAID_MAX_CHARS = 200
MOST = 1000
_LATIN = r"0-9A-Za-z\u00c0-\u024f"


@dataclass(frozen=True, slots=True)
class Pronunciation:
    """voice: the id of the only voice it is for; "": all. created_s: Unix time."""

    id: str
    word: str
    said: str
    voice: str
    created_s: float


COLUMNS = ", ".join(Pronunciation.__slots__)


class Pronunciations:
    """The list, in a database of its own. May be called from any thread."""

    def __init__(self, folder: Path, now: Callable[[], float] = time.time) -> None:
        self._db = open_database(
            folder / "pronunciations.sqlite", Path(__file__).with_name("pronunciation_schema")
        )
        self._now = now

    def close(self) -> None:
        self._db.close()

    def all(self) -> list[Pronunciation]:
        """By word; for all voices before for one."""
        rows = self._db.execute(f"SELECT {COLUMNS} FROM pronunciation ORDER BY word, voice")
        return [Pronunciation(*row) for row in rows]

    def add(self, word: str, said: str, voice: str = "") -> Pronunciation:
        """Say a word so from now on, instead of how it was said before. Raises InvalidRequest."""
        word, said = _checked("word", word, WORD_MAX_CHARS), _checked("said", said, SAID_MAX_CHARS)
        if self._db.execute("SELECT count(*) FROM pronunciation").fetchone()[0] >= MOST:
            raise InvalidRequest("pronunciation.limit", param="word", limit=MOST)
        made = Pronunciation(uuid.uuid4().hex[:16], word, said, voice, self._now())
        self._db.execute(
            f"INSERT OR REPLACE INTO pronunciation ({COLUMNS}) VALUES (?, ?, ?, ?, ?)",
            [getattr(made, column) for column in Pronunciation.__slots__],
        )
        return made

    def delete(self, pronunciation_id: str) -> Pronunciation:
        """Raises NotFound."""
        where = (pronunciation_id,)
        row = self._db.execute(f"SELECT {COLUMNS} FROM pronunciation WHERE id = ?", where).fetchone()
        if row is None:
            raise NotFound("pronunciation.not_found", param="id")
        self._db.execute("DELETE FROM pronunciation WHERE id = ?", where)
        return Pronunciation(*row)

    def respell(self, text: str, voice: str) -> str:
        """The text as it is to be read by a voice. Longer words win, a voice's own win over those for all."""
        try:
            rows = self._db.execute(
                "SELECT word, said FROM pronunciation WHERE voice IN ('', ?) ORDER BY voice", (voice,)
            )
        except sqlite3.InterfaceError:  # an id that cannot be one, such as half of a surrogate pair
            return text
        said = {word.casefold(): said for word, said in rows}
        if not said:
            return text
        words = "|".join(_whole(word) for word in sorted(said, key=len, reverse=True))
        kept = f"{TAG.pattern}|{PAUSE.pattern}"
        return re.sub(
            f"(?:{kept})|({words})",
            lambda m: said[m[1].casefold()] if m[1] else m[0],
            text,
            flags=re.IGNORECASE,
        )


def _whole(word: str) -> str:
    """A pattern for the word where it is not a part of another one; Hanzi stand side by side with other words."""
    before = f"(?<![{_LATIN}])" if re.match(f"[{_LATIN}]", word) else ""
    after = f"(?![{_LATIN}])" if re.search(f"[{_LATIN}]$", word) else ""
    return f"{before}{re.escape(word)}{after}"


def _checked(field: str, value: str, limit: int) -> str:
    value = " ".join(value.split())
    if not value.isprintable() or only_marks(value) or len(value) > limit or set("[]<>") & set(value):
        raise InvalidRequest("pronunciation.bad", param=field, field=field, limit=limit)
    return value
