"""A rater's way through a test: join, headphone check, trial by trial, end. Every step is kept before it is confirmed.

What `view` gives is all that the rater's browser learns: places, addresses and scales, never a condition, an item,
a seed or a role (but for training, which the rater is told of).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import Any

from studio.errors import InvalidRequest, ListeningConflict, NotFound
from studio.listening import headphones
from studio.listening.answers import Answer, Kind, Role
from studio.listening.blinding import Addresses, Served, blind_wav
from studio.listening.design import Design
from studio.listening.leaderboard import Leaderboard, leaderboard
from studio.listening.orders import Trial, plan
from studio.listening.raters import Progress, Rater, RaterStore
from studio.listening.scoring import COMMENT_MAX_CHARS, Reply, answers
from studio.listening.store import Clip, Invitation, ListeningStore, Test

HEAR_MIN_S = 3.0
"""Of each clip when many stand side by side; elsewhere all of it must be heard."""
HEAR_SLACK = 0.9
TIMEOUT_GRACE_S = 10.0
OUTAGE_S = 300.0
"""So long after its time an answer still counts that the page says was given in time: its line may have been broken."""


@dataclass(frozen=True, slots=True)
class Session:
    """Who is asking, by which link, about which test."""

    test: Test
    invitation: Invitation
    rater: Rater


class Sessions:
    """Serves raters; knows no HTTP. Owner: the event loop, but for `sound`, `answer` and `leaderboard`, which
    take their time and may run in a thread."""

    def __init__(
        self,
        store: ListeningStore,
        raters: RaterStore,
        addresses: Addresses,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._store, self._raters, self._addresses, self._now = store, raters, addresses, now
        self._since_s = now()
        self._boards: dict[str, tuple[int, Leaderboard]] = {}  # by test, and the number of votes behind it

    def invited(self, token: str) -> tuple[Test, Invitation]:
        """Raises NotFound for a link that is unknown, expired or of a test that is not open yet."""
        return self._behind(self._store.invitation(token))

    def _behind(self, invitation: Invitation) -> tuple[Test, Invitation]:
        test = self._store.find(invitation.test)
        if test.state == "draft":
            raise NotFound("listening.no_invitation")
        return test, invitation

    def session(self, token: str, key: str) -> Session | None:
        """The session of whoever comes by this link with this key, expired or not; None for somebody new."""
        test, invitation = self._behind(self._store.invitation(token, expired=True))
        rater = self._raters.known(invitation, key)
        return Session(test, invitation, rater) if rater else None

    def join(self, token: str, consented: bool, key: str) -> Session:
        """A new rater, whom the key in the cookie proves from now on. Raises ListeningConflict once it is closed."""
        test, invitation = self.invited(token)
        if test.state != "open":
            raise ListeningConflict("listening.closed")
        if test.design.consent and not consented:
            raise InvalidRequest("listening.consent_missing", param="consent")
        items = sorted({item for item, _ in self._store.clips(test.id, "ready")})
        known = self._raters.known(invitation, "") if invitation.name else None
        if known:
            return Session(test, invitation, known)
        make = (
            (lambda _number: ()) if test.design.arena else (lambda number: plan(test.design, items, number))
        )
        return Session(test, invitation, self._raters.join(test, invitation, key, make))

    def view(self, session: Session) -> dict[str, Any]:
        """What the page shows now; hands out fresh addresses for the trial's clips."""
        test, rater = session.test, session.rater
        common = _common(test.design)
        if test.state != "open":
            return common | {"phase": "closed"}
        if test.design.headphones != "off" and rater.headphones is None:
            number = len(rater.tones) + 1
            return common | {"phase": "headphones", "rounds": headphones.ROUNDS, "number": number}
        if _lacks_headphones(session):
            return common | {"phase": "no_headphones"}
        position = self._reached(session)
        if position >= len(rater.plan):
            if test.design.arena:
                return common | {"phase": "text", **self._standing(session)}
            self._raters.finish(rater.id)
            return common | {"phase": "finished", "comment": rater.comment}
        return common | {"phase": "trial", "trial": self._trial(session, position)}

    def _standing(self, session: Session) -> dict[str, Any]:
        """What a visitor of the arena may see between two pairs."""
        voted, shown = self._raters.answered(session.rater.id), session.test.design.leaderboard
        return {"voted": voted, "leaderboard": shown == "always" or (shown == "voted" and voted > 0)}

    def leaderboard(self, session: Session) -> Leaderboard:
        """How the conditions stand. Raises ListeningConflict while a vote is due, NotFound where it is not shown."""
        test = session.test
        if not test.design.arena or not self._standing(session)["leaderboard"]:
            raise NotFound("listening.no_leaderboard")
        if self._reached(session) < len(session.rater.plan):
            raise ListeningConflict("listening.vote_due")
        votes, (known, board) = self._raters.counts(test.id)["answers"], self._boards.get(test.id, (-1, None))
        if board is None or known != votes:
            board = leaderboard(test, self._raters.of_test(test.id), self._raters.answers(test.id))
            self._boards[test.id] = (votes, board)
        return board

    def _reached(self, session: Session) -> int:
        """The trial that is due, from 0; one whose time is over is passed over."""
        position = self._raters.position(session.rater.id)
        progress = self._raters.progress(session.rater.id, position)
        if progress and self._is_late(session.test.design, progress):
            self._end(session, position, [])
            position += 1
        return position

    def _is_late(self, design: Design, progress: Progress, claimed_s: float = inf) -> bool:
        """Whether a trial's time is over. claimed_s: after so many seconds the page says it was answered.

        That is believed for a while, for a line that was broken, and for longer where the studio itself was away.
        """
        limit_s = design.timeout_s + TIMEOUT_GRACE_S
        spent_s = self._now() - progress.first_s
        if not design.timeout_s or spent_s <= limit_s:
            return False
        excused = spent_s <= limit_s + OUTAGE_S or progress.first_s < self._since_s
        return not excused or claimed_s > limit_s

    def _end(self, session: Session, position: int, rows: list[Answer]) -> None:
        """Keep a trial's answers, or that there were none in time. The sound of the arena goes with its trial."""
        self._raters.end(session.rater.id, position, rows)
        if session.test.design.arena:
            self._store.drop_item(session.test.id, session.rater.plan[position].item)

    def _trial(self, session: Session, position: int) -> dict[str, Any]:
        design, rater = session.test.design, session.rater
        trial = rater.plan[position]
        clips = self._clips_of(session.test, trial)
        self._raters.serve(rater.id, position)
        progress = self._raters.progress(rater.id, position)
        issued = self._addresses.issue(rater.id, position, clips)
        slots = len(trial.slots)
        first_s = progress.first_s if progress else self._now()
        return {
            "number": position + 1,
            "total": len(rater.plan),
            "training": trial.role is Role.TRAINING,
            "slots": issued[:slots],
            "reference": issued[slots] if trial.reference else None,
            "x": issued[slots] if trial.x is not None else None,
            "hear_s": self._hear_s(design, clips),
            "check": trial.wanted,
            "spent_s": round(max(0.0, self._now() - first_s), 1),
            "draft": progress.draft if progress else {},
        }

    def _clips_of(self, test: Test, trial: Trial) -> list[Clip]:
        """The clips of the slots, then that of the named reference or of X."""
        ready = self._store.clips(test.id, "ready")
        names = [*trial.slots, *([trial.reference] if trial.reference else [])]
        if trial.x is not None:
            names.append(trial.slots[trial.x])
        return [ready[trial.item, name] for name in names]

    def _hear_s(self, design: Design, clips: list[Clip]) -> float:
        if design.shape == "all":
            return round(min(HEAR_MIN_S, *(clip.seconds for clip in clips)), 3)
        return round(max(clip.seconds for clip in clips), 3)

    def take(self, session: Session, address: str) -> Served:
        """What an address stands for, once. Raises NotFound."""
        served = self._addresses.take(session.rater.id, address)
        if served is None:
            raise NotFound("listening.no_address")
        self._raters.fetch(session.rater.id, served.position, served.index)
        return served

    def sound(self, session: Session, served: Served) -> bytes:
        """The bytes of a clip."""
        return blind_wav(
            self._store.samples(session.test.id, served.clip), served.samples, served.clip.rate_hz
        )

    def keep_draft(self, session: Session, number: int, draft: Mapping[str, Any]) -> None:
        """What is set so far in a trial that has not been sent off."""
        self._raters.keep_draft(session.rater.id, number - 1, dict(draft))

    def answer(self, session: Session, number: int, reply: Reply | None) -> None:
        """Keep a trial's answer; None: the time is over. A second one for the same trial changes nothing.

        An answer that comes too late is none.
        Raises: InvalidRequest; ListeningConflict if not everything was heard, or the time is not over.
        """
        test, rater, position = session.test, session.rater, number - 1
        if test.state != "open":
            raise ListeningConflict("listening.closed")
        reached = self._raters.position(rater.id)
        if position < reached:
            return
        progress = self._raters.progress(rater.id, position)
        if position > reached or position >= len(rater.plan) or progress is None:
            raise ListeningConflict("listening.not_shown")
        spent_s = self._now() - progress.first_s
        limit_s = test.design.timeout_s
        if reply is None and not (limit_s and spent_s >= limit_s - 1):
            raise ListeningConflict("listening.time_left")
        if reply is None or self._is_late(test.design, progress, reply.seconds):
            self._end(session, position, [])
            return
        trial = rater.plan[position]
        clips = self._clips_of(test, trial)
        needed_s = HEAR_SLACK * self._hear_s(test.design, clips) * len(clips)
        if progress.fetched != (1 << len(clips)) - 1 or spent_s < needed_s:
            raise ListeningConflict("listening.not_heard")
        said = clips[0].text if test.design.kind is Kind.INTELLIGIBILITY else ""
        self._end(session, position, answers(test.design, trial, reply, said, self._head(session, position)))

    def _head(self, session: Session, position: int) -> Answer:
        """What a row says whatever the answer is."""
        trial = session.rater.plan[position]
        return Answer(
            test=session.test.id,
            rater=session.rater.id,
            trial=f"{session.rater.id}-{position + 1:03d}",
            position=position + 1,
            kind=session.test.design.kind,
            role=trial.role,
            item=trial.item,
            condition="",
            score=0.0,
            at=datetime.fromtimestamp(self._now(), UTC).isoformat(timespec="seconds"),
        )

    def headphone_sound(self, session: Session, number: int) -> bytes:
        """The tones of the round of the headphone check that is due. Which is which follows from the rater's id."""
        self._expect_round(session, number)
        return headphones.tones(session.rater.id, number)

    def choose_tone(self, session: Session, number: int, place: int) -> None:
        """Keep what was chosen in a round; the last of a try ends it. A second choice for a round changes nothing."""
        rater = session.rater
        if number <= len(rater.tones):
            return
        self._expect_round(session, number)
        chosen = [*rater.tones, place]
        over = len(chosen) % headphones.ROUNDS == 0
        self._raters.keep_tones(rater.id, chosen, headphones.right(rater.id, chosen) if over else None)

    def _expect_round(self, session: Session, number: int) -> None:
        """Raises ListeningConflict for any round but the one that is due."""
        rater, wanted = session.rater, session.test.design.headphones != "off"
        if not wanted or rater.headphones is not None or number != len(rater.tones) + 1:
            raise ListeningConflict("listening.not_shown")

    def check_headphones_again(self, session: Session) -> None:
        """Another try, with other tones, for who needs headphones and has not passed."""
        if _lacks_headphones(session):
            self._raters.keep_tones(session.rater.id, session.rater.tones, None)

    def say(self, session: Session, comment: str) -> None:
        """The rater's comment at the end."""
        if len(comment) > COMMENT_MAX_CHARS:
            raise InvalidRequest("listening.comment_long", param="comment", limit=COMMENT_MAX_CHARS)
        self._raters.say(session.rater.id, comment)


def _lacks_headphones(session: Session) -> bool:
    """Whether a test that needs headphones found none."""
    right = session.rater.headphones
    return session.test.design.headphones == "require" and right is not None and right < headphones.RIGHT_MIN


def _common(design: Design) -> dict[str, Any]:
    return {
        "kind": design.kind.value,
        "language": design.language,
        "instructions": design.instructions,
        "timeout_s": design.timeout_s,
        "comments": design.comments,
        "named_reference": design.kind in (Kind.MUSHRA, Kind.SIMILARITY),
        "arena": design.arena,
    }
