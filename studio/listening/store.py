"""Listening tests, their clips and invitations: rows in SQLite, sound in files with random names. Judges nothing."""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import soundfile

from studio.errors import ListeningConflict, NotFound, StudioError
from studio.listening.database import Database
from studio.listening.design import Design
from studio.messages import LANGUAGES
from studio.speech import Float32

Stage = Literal["given", "ready"]
State = Literal["draft", "open", "closed"]


@dataclass(frozen=True, slots=True)
class Test:
    """A listening test. state: a draft may change, an open one takes answers. owner: hash of the owner's key.

    problem: why its material could not be made, as JSON by language, or "".
    """

    id: str
    owner: str
    design: Design
    state: State
    problem: str
    created_s: float

    def problem_in(self, language: str) -> str:
        """Why its material could not be made, as a sentence; "" for no problem."""
        try:
            return str(json.loads(self.problem)[language]) if self.problem else ""
        except ValueError:  # kept by an earlier version, as a sentence
            return self.problem


@dataclass(frozen=True, slots=True)
class Clip:
    """One clip of the material. stage: as it came, or as raters hear it. file: below the test's folder."""

    item: str
    condition: str
    file: str
    samples: int
    rate_hz: int
    text: str

    @property
    def seconds(self) -> float:
        return self.samples / self.rate_hz


@dataclass(frozen=True, slots=True, eq=False)
class GivenClip:
    """Sound on its way into a test: float32 [n] mono."""

    item: str
    condition: str
    samples: Float32
    rate_hz: int
    text: str = ""


@dataclass(frozen=True, slots=True)
class Invitation:
    """A link. name: of the one rater it is for, "" for whoever has it. expires_s: Unix time."""

    token: str
    test: str
    name: str
    expires_s: float


def hashed(key: str) -> str:
    """What is kept of a secret: its holder proves it, the database does not tell it."""
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()


class ListeningStore:
    """Tests, clips and invitations; owns the folder, shares the database with the raters' store."""

    def __init__(self, folder: Path, database: Database, now: Callable[[], float] = time.time) -> None:
        self._files = folder / "files"
        self.exports = folder / "exports"
        for path in (self._files, self.exports):
            path.mkdir(parents=True, exist_ok=True)
        self._db = database
        self._now = now

    def create(self, design: Design, owner: str) -> Test:
        test = Test(secrets.token_hex(8), owner, design, "draft", "", self._now())
        self._db.run(
            "INSERT INTO test VALUES (?, ?, ?, 'draft', '', ?)",
            test.id, owner, json.dumps(design.to_dict()), test.created_s,
        )  # fmt: skip
        return test

    def find(self, test: str) -> Test:
        """Raises NotFound."""
        row = self._db.row("SELECT * FROM test WHERE id = ?", test)
        if row is None:
            raise NotFound("listening.not_found")
        return _test(row)

    def of_owner(self, owner: str | None) -> list[Test]:
        """Newest first; None: everybody's."""
        rows = self._db.rows(
            "SELECT * FROM test WHERE ?1 IS NULL OR owner = ?1 ORDER BY created_s DESC, id", owner
        )
        return [_test(row) for row in rows]

    def redesign(self, test: Test, design: Design) -> Test:
        """Change a draft; clips made for what is no longer in it go. Raises ListeningConflict once it was open."""
        changed = self._db.run(
            "UPDATE test SET design = ?, problem = '' WHERE id = ? AND state = 'draft'",
            json.dumps(design.to_dict()), test.id,
        )  # fmt: skip
        if not changed:
            raise ListeningConflict("listening.not_draft")
        before = {c.id: c.source for c in test.design.conditions}
        for condition in design.conditions:
            remade = condition.source.kind != "upload" and (
                test.design.texts != design.texts or test.design.seed != design.seed
            )
            if condition.id in before and (before[condition.id] != condition.source or remade):
                self.drop_clips(test.id, condition.id)
        for gone in before.keys() - {c.id for c in design.conditions}:
            self.drop_clips(test.id, gone)
        return self.find(test.id)

    def open(self, test: str) -> None:
        """Let raters in. Raises ListeningConflict for a test that is no draft."""
        if not self._db.run("UPDATE test SET state = 'open' WHERE id = ? AND state = 'draft'", test):
            raise ListeningConflict("listening.not_draft")

    def close(self, test: str) -> None:
        """Take no more answers; nothing for a test that is not open."""
        self._db.run("UPDATE test SET state = 'closed' WHERE id = ? AND state = 'open'", test)

    def set_problem(self, test: str, error: StudioError | None) -> None:
        """Why material could not be made; None for no problem."""
        told = json.dumps({language: error.message(language) for language in LANGUAGES}) if error else ""
        self._db.run("UPDATE test SET problem = ? WHERE id = ?", told, test)

    def begin_series(self, test: str, who: str) -> None:
        """Somebody had the material of a test made under settings of its own; kept until that has ended."""
        self._db.run("INSERT INTO series VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET tries = tries + 1", test, who)

    def series(self) -> dict[str, tuple[str, int]]:
        """What has begun and not ended: by test, who began it and how many times it was begun."""
        return {row["test"]: (row["who"], row["tries"]) for row in self._db.rows("SELECT * FROM series ORDER BY rowid")}

    def end_series(self, test: str) -> None:
        self._db.run("DELETE FROM series WHERE test = ?", test)

    def put_clip(self, test: str, stage: Stage, clip: GivenClip) -> None:
        """Keep a clip in place of one that there was. Raises NotFound for a test that was deleted meanwhile."""
        folder = self._files / test
        folder.mkdir(exist_ok=True)
        name = f"{secrets.token_hex(12)}.wav"
        subtype = "PCM_16" if stage == "ready" else "PCM_24"
        soundfile.write(folder / name, np.clip(clip.samples, -1, 1), clip.rate_hz, subtype=subtype)
        where = (test, clip.item, clip.condition, stage)
        try:
            with self._db.transaction():
                old = self._db.row(
                    "SELECT file FROM clip WHERE (test, item, condition, stage) = (?, ?, ?, ?)", *where
                )
                self._db.run(
                    "INSERT OR REPLACE INTO clip VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    *where, name, len(clip.samples), clip.rate_hz, clip.text,
                )  # fmt: skip
        except sqlite3.IntegrityError:
            shutil.rmtree(folder, ignore_errors=True)
            raise NotFound("listening.not_found") from None
        if old:
            (folder / old["file"]).unlink(missing_ok=True)

    def clips(self, test: str, stage: Stage) -> dict[tuple[str, str], Clip]:
        """By item and condition, items in their order."""
        rows = self._db.rows(
            "SELECT item, condition, file, samples, rate_hz, text FROM clip WHERE test = ? AND stage = ? ORDER BY item",
            test, stage,
        )  # fmt: skip
        return {(row["item"], row["condition"]): Clip(*row) for row in rows}

    def samples(self, test: str, clip: Clip) -> Float32:
        """float32 [n]. Only this room names files, so none leads outside the folder.

        Raises: NotFound for a clip that went meanwhile, as the arena's do with their trial.
        """
        try:
            with (self._files / test / clip.file).open("rb") as file:
                return soundfile.read(file, dtype="float32")[0]
        except FileNotFoundError:
            raise NotFound("listening.no_address") from None

    def drop_clips(self, test: str, condition: str) -> None:
        """What was given for a condition goes."""
        self._drop(test, "condition = ? AND stage = 'given'", condition)

    def drop_item(self, test: str, item: str) -> None:
        """What raters heard of a sentence goes."""
        self._drop(test, "item = ? AND stage = 'ready'", item)

    def _drop(self, test: str, which: str, value: str) -> None:
        for row in self._db.rows(f"SELECT file FROM clip WHERE test = ? AND {which}", test, value):
            (self._files / test / row["file"]).unlink(missing_ok=True)
        self._db.run(f"DELETE FROM clip WHERE test = ? AND {which}", test, value)

    def keep_measures(self, test: str, body: str) -> None:
        """What instruments said of the clips, as JSON, in place of what was said before."""
        self._db.run("INSERT OR REPLACE INTO measures VALUES (?, ?)", test, body)

    def measures(self, test: str) -> str:
        """That JSON; "" if nothing was measured."""
        row = self._db.row("SELECT body FROM measures WHERE test = ?", test)
        return row["body"] if row else ""

    def invite(self, test: str, name: str, expires_s: float) -> Invitation:
        made = Invitation(secrets.token_urlsafe(16), test, name, expires_s)
        self._db.run(
            "INSERT INTO invitation VALUES (?, ?, ?, ?, ?)", made.token, test, name, expires_s, self._now()
        )
        return made

    def invitations(self, test: str) -> list[Invitation]:
        rows = self._db.rows(
            "SELECT token, test, name, expires_s FROM invitation WHERE test = ? ORDER BY created_s, token",
            test,
        )
        return [Invitation(*row) for row in rows]

    def invitation(self, token: str, expired: bool = False) -> Invitation:
        """Raises NotFound for one that is unknown or, unless asked for, expired: to its holder both are the same."""
        row = self._db.row("SELECT token, test, name, expires_s FROM invitation WHERE token = ?", token)
        if row is None or (row["expires_s"] < self._now() and not expired):
            raise NotFound("listening.no_invitation")
        return Invitation(*row)

    def withdraw(self, test: str, token: str) -> None:
        self._db.run("DELETE FROM invitation WHERE test = ? AND token = ?", test, token)

    def delete(self, test: str) -> None:
        """Everything of it; whoever calls has kept an export."""
        self._db.run("DELETE FROM test WHERE id = ?", test)
        shutil.rmtree(self._files / test, ignore_errors=True)


def _test(row: object) -> Test:
    values = dict(row)  # type: ignore[call-overload]
    return Test(**(values | {"design": Design.from_dict(json.loads(values["design"]))}))
