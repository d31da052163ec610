"""Raters, their plans, what they have set and what they answered, each kept as soon as it is known."""

from __future__ import annotations

import json
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from studio.errors import ListeningConflict
from studio.listening.answers import Answer, Kind, Role, Study
from studio.listening.database import Database
from studio.listening.design import ANCHORS, Design
from studio.listening.orders import Trial
from studio.listening.store import Invitation, Test, hashed


@dataclass(frozen=True, slots=True)
class Rater:
    """Somebody who joined. number: the place in the balanced orders.

    headphones: right answers of six, once all were asked; tones: what was chosen, in all rounds of all tries.
    """

    id: str
    test: str
    number: int
    name: str
    plan: tuple[Trial, ...]
    headphones: int | None
    finished_s: float | None
    comment: str
    tones: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a trial stands. first_s: when it was first shown, in Unix time; fetched: bit n for clip n.

    draft: what was set and not sent off yet.
    """

    position: int
    first_s: float
    fetched: int
    draft: dict[str, Any]
    ended: str


class RaterStore:
    """The raters' tables; shares the database with the store of tests."""

    def __init__(self, database: Database, now: Callable[[], float] = time.time) -> None:
        self._db = database
        self._now = now

    def join(
        self, test: Test, invitation: Invitation, key: str, plan: Callable[[int], Sequence[Trial]]
    ) -> Rater:
        """A new rater with the next number. key: proves who it is; only its hash is kept."""
        rater = secrets.token_hex(6)
        with self._db.transaction():
            last = self._db.row("SELECT max(number) AS last FROM rater WHERE test = ?", test.id)
            number = 0 if last is None or last["last"] is None else last["last"] + 1
            self._db.run(
                "INSERT INTO rater (id, test, invitation, number, secret, name, plan, joined_s)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                rater, test.id, invitation.token, number, hashed(key), invitation.name,
                _to_json(plan(number)), self._now(),
            )  # fmt: skip
        return self.find(rater)

    def find(self, rater: str) -> Rater:
        row = self._db.row("SELECT * FROM rater WHERE id = ?", rater)
        assert row is not None
        return _rater(row)

    def known(self, invitation: Invitation, key: str) -> Rater | None:
        """Who comes by this link: by the key in the cookie; a link made for one name is that rater anywhere."""
        by_name = "name <> ''" if invitation.name else "secret = ?2"
        row = self._db.row(
            f"SELECT * FROM rater WHERE invitation = ?1 AND {by_name} AND ?2 IS NOT NULL",
            invitation.token, hashed(key),
        )  # fmt: skip
        return _rater(row) if row else None

    def of_test(self, test: str) -> list[Rater]:
        return [
            _rater(row) for row in self._db.rows("SELECT * FROM rater WHERE test = ? ORDER BY number", test)
        ]

    def append(self, rater: Rater, trial: Trial) -> None:
        """One more trial at the end of a plan; the arena's come one by one."""
        self._db.run("UPDATE rater SET plan = ? WHERE id = ?", _to_json([*rater.plan, trial]), rater.id)

    def keep_tones(self, rater: str, chosen: Sequence[int], right: int | None) -> None:
        """What was chosen in the headphone check so far, and how many were right once a try is over."""
        self._db.run(
            "UPDATE rater SET tones = ?, headphones = ? WHERE id = ?", json.dumps(chosen), right, rater
        )

    def finish(self, rater: str) -> None:
        self._db.run("UPDATE rater SET finished_s = coalesce(finished_s, ?) WHERE id = ?", self._now(), rater)

    def say(self, rater: str, comment: str) -> None:
        self._db.run("UPDATE rater SET comment = ? WHERE id = ?", comment, rater)

    def position(self, rater: str) -> int:
        """The first trial that has not ended, from 0."""
        row = self._db.row("SELECT count(*) AS ended FROM progress WHERE rater = ? AND ended <> ''", rater)
        return int(row["ended"]) if row else 0

    def answered(self, rater: str) -> int:
        """How many trials ended with an answer, and not by their time."""
        row = self._db.row(
            "SELECT count(*) AS answered FROM progress WHERE rater = ? AND ended = 'answered'", rater
        )
        return int(row["answered"]) if row else 0

    def progress(self, rater: str, position: int) -> Progress | None:
        row = self._db.row("SELECT * FROM progress WHERE rater = ? AND position = ?", rater, position)
        if row is None:
            return None
        return Progress(
            row["position"],
            row["first_s"],
            row["fetched"],
            json.loads(row["draft"]),
            row["ended"],
        )

    def serve(self, rater: str, position: int) -> None:
        """The trial is shown; its time runs from the first time on."""
        self._db.run(
            "INSERT INTO progress (rater, position, first_s) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            rater, position, self._now(),
        )  # fmt: skip

    def fetch(self, rater: str, position: int, clip: int) -> None:
        self._db.run(
            "UPDATE progress SET fetched = fetched | ? WHERE rater = ? AND position = ?",
            1 << clip,
            rater,
            position,
        )

    def keep_draft(self, rater: str, position: int, draft: dict[str, Any]) -> None:
        """What is set so far; nothing once the trial has ended."""
        self._db.run(
            "UPDATE progress SET draft = ? WHERE rater = ? AND position = ? AND ended = ''",
            json.dumps(draft), rater, position,
        )  # fmt: skip

    def end(self, rater: str, position: int, rows: Iterable[Answer]) -> None:
        """The answers to a trial, or that there were none in time; once only, all or nothing.

        Raises: ListeningConflict for answers to a test that is closed: its export may be written already.
        """
        rows = list(rows)
        with self._db.transaction():
            state = self._db.row(
                "SELECT state FROM test JOIN rater ON rater.test = test.id WHERE rater.id = ?", rater
            )
            if rows and (state is None or state["state"] != "open"):
                raise ListeningConflict("listening.closed")
            if not self._db.run(
                "UPDATE progress SET ended = ?, draft = '{}' WHERE rater = ? AND position = ? AND ended = ''",
                "answered" if rows else "timeout", rater, position,
            ):  # fmt: skip
                return  # it came twice; the first counts
            for row in rows:
                self._db.run(
                    "INSERT INTO answer VALUES (?, ?, ?, ?, ?)",
                    row.test, rater, position, row.condition, json.dumps(asdict(row)),
                )  # fmt: skip

    def answers(self, test: str) -> tuple[Answer, ...]:
        rows = self._db.rows(
            "SELECT body FROM answer JOIN rater ON rater.id = answer.rater WHERE answer.test = ?"
            " ORDER BY rater.number, position, answer.rowid",
            test,
        )
        return tuple(_answer(json.loads(row["body"])) for row in rows)

    def counts(self, test: str) -> dict[str, int]:
        """How many joined, finished, answered and ran out of time."""
        row = self._db.row(
            "SELECT (SELECT count(*) FROM rater WHERE test = ?1) AS joined,"
            " (SELECT count(*) FROM rater WHERE test = ?1 AND finished_s IS NOT NULL) AS finished,"
            " (SELECT count(*) FROM answer WHERE test = ?1) AS answers,"
            " (SELECT count(*) FROM progress JOIN rater ON rater.id = rater WHERE test = ?1 AND ended = 'timeout')"
            " AS timeouts",
            test,
        )
        return dict(row) if row else {}

    def unanswered(self, before_s: float) -> list[tuple[Rater, int]]:
        """Trials, by rater and position, that were first shown before a time and have not ended."""
        rows = self._db.rows(
            "SELECT position, rater.* FROM progress JOIN rater ON rater.id = progress.rater"
            " WHERE ended = '' AND first_s < ?",
            before_s,
        )
        return [(_rater(row), row["position"]) for row in rows]


def study(test: Test) -> Study:
    """What the analysis must know of a test."""
    design: Design = test.design
    names = {c.id: c.name for c in design.conditions if c.id in design.compared}
    made = {name: name for name in ANCHORS if name in design.rated}
    return Study(
        test.id,
        design.title,
        design.kind,
        names | made,
        reference=design.reference if design.kind is Kind.MUSHRA else "",
        anchors=tuple(made),
        material={f"{n + 1}": text for n, text in enumerate(design.texts)},
    )


def _to_json(plan: Iterable[Trial]) -> str:
    return json.dumps([asdict(trial) for trial in plan])


def _rater(row: sqlite3.Row) -> Rater:
    values = dict(row)
    plan = tuple(Trial.from_dict(trial) for trial in json.loads(values["plan"]))
    kept = ("id", "test", "number", "name", "headphones", "finished_s", "comment")
    return Rater(**{name: values[name] for name in kept}, plan=plan, tones=tuple(json.loads(values["tones"])))


def _answer(body: dict[str, Any]) -> Answer:
    return Answer(**(body | {"kind": Kind(body["kind"]), "role": Role(body["role"])}))
