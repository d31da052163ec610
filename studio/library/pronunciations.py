"""How words are to be said: respellings that are read in place of words, for all voices or for one."""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from studio.database import open_database
from studio.errors import InvalidRequest, NotFound
from studio.text.normalize import TAG, only_marks
from studio.text.pauses import WRITTEN as PAUSE

WORD_MAX_CHARS = 64
SAID_MAX_CHARS = 200
MOST = 1000
_LATIN = r"[0-9A-Za-z\u00c0-\u024f]"
_TOKEN = re.compile(rf"{TAG.pattern}|{PAUSE.pattern}|{_LATIN}+|\S", re.IGNORECASE)
"""Where a word may begin: Hanzi stand side by side with other words, Latin letters do not. Tags stay whole."""
_INSIDE = re.compile(_LATIN * 2)


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
        self._changing = threading.Lock()
        self._respelling = _Respelling(self.all())

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
        self._change(
            f"INSERT OR REPLACE INTO pronunciation ({COLUMNS}) VALUES (?, ?, ?, ?, ?)",
            *(getattr(made, column) for column in Pronunciation.__slots__),
        )
        return made

    def delete(self, pronunciation_id: str) -> Pronunciation:
        """Raises NotFound."""
        where = (pronunciation_id,)
        row = self._db.execute(f"SELECT {COLUMNS} FROM pronunciation WHERE id = ?", where).fetchone()
        if row is None:
            raise NotFound("pronunciation.not_found", param="id")
        self._change("DELETE FROM pronunciation WHERE id = ?", *where)
        return Pronunciation(*row)

    def _change(self, statement: str, *values: object) -> None:
        with self._changing:
            self._db.execute(statement, values)
            self._respelling = _Respelling(self.all())

    def respell(self, text: str, voice: str) -> str:
        """The text as it is to be read by a voice. Longer words win, a voice's own win over those for all."""
        return self._respelling.of(text, voice)


class _Respelling:
    """A list made ready to be looked up, so that a text costs as much however long the list is."""

    def __init__(self, listed: Iterable[Pronunciation]) -> None:
        self._said: dict[tuple[str, str], str] = {}
        lengths: dict[str, set[int]] = {}
        for p in listed:
            self._said[p.voice, p.word.casefold()] = p.said
            first = _TOKEN.match(p.word)
            assert first is not None
            lengths.setdefault(first[0].casefold(), set()).add(len(p.word))
        self._lengths = {first: sorted(found, reverse=True) for first, found in lengths.items()}
        """How long the words are that begin so, the longest first."""

    def of(self, text: str, voice: str) -> str:
        if not self._said:
            return text
        parts: list[str] = []
        done = 0
        for token in _TOKEN.finditer(text):
            if token.start() < done or (found := self._at(text, token, voice)) is None:
                continue
            said, end = found
            parts += (text[done : token.start()], said)
            done = end
        return "".join(parts) + text[done:]

    def _at(self, text: str, token: re.Match[str], voice: str) -> tuple[str, int] | None:
        """What is said instead of the words from a token on, and where they end."""
        for length in self._lengths.get(token[0].casefold(), ()):
            end = token.start() + length
            word = text[token.start() : end].casefold()
            said = self._said.get((voice, word)) or self._said.get(("", word))
            if said and not _INSIDE.match(text, end - 1):
                return said, end
        return None


def _checked(field: str, value: str, limit: int) -> str:
    value = " ".join(value.split())
    if not value.isprintable() or only_marks(value) or len(value) > limit or set("[]<>") & set(value):
        raise InvalidRequest("pronunciation.bad", param=field, field=field, limit=limit)
    return value
