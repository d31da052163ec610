"""The arena: visitors type a text, hear it blind in two conditions and vote. Its votes are answers of kind AB."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from itertools import combinations
from random import Random

from studio.errors import CapacityError, InvalidRequest, ListeningConflict, QueueFull, StudioError
from studio.listening.answers import Answer, Role
from studio.listening.design import Design
from studio.listening.generation import Speak, Utterance
from studio.listening.material import ready
from studio.listening.orders import Trial
from studio.listening.raters import RaterStore
from studio.listening.sessions import Session
from studio.listening.store import GivenClip, ListeningStore
from studio.speech import SAMPLE_RATE_HZ, Float32

TEXT_MAX_CHARS = 300
PAIRS_PER_HOUR = 30
"""For one address; a new cookie does not make a new visitor."""
VOTE_LIFE_S = 3600.0
"""A pair without a vote is given up after so long, and its sound goes."""
Check = Callable[[str], None]
"""Raises InvalidRequest for a text that nobody could speak, whatever the condition."""
logger = logging.getLogger(__name__)


class Arena:
    """Makes a visitor's pair; its sound goes with the vote, see `sessions`. Owner: the event loop."""

    def __init__(
        self,
        store: ListeningStore,
        raters: RaterStore,
        speak: Speak,
        check: Check,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._store, self._raters, self._speak, self._check, self._now = store, raters, speak, check, now
        self._lately: dict[str, deque[float]] = {}
        self._making: set[str] = set()

    async def ask(self, session: Session, text: str, address: str) -> None:
        """Make two clips of a text and put them to the rater as the next trial.

        Raises: InvalidRequest for the text, ListeningConflict while a vote is due, QueueFull for too many in an hour.
        """
        test, rater = session.test, session.rater
        text = " ".join(text.split())
        if not text or len(text) > TEXT_MAX_CHARS:
            raise InvalidRequest("listening.arena_text", param="text", limit=TEXT_MAX_CHARS)
        self._check(text)
        if test.state != "open" or not test.design.arena:
            raise ListeningConflict("listening.closed")
        self._give_up_old()
        if self._raters.position(rater.id) < len(rater.plan) or rater.id in self._making:
            raise ListeningConflict("listening.vote_due")
        self._count(address)
        self._making.add(rater.id)
        try:
            await self._make(session, text)
        except CapacityError:
            self._lately[address].pop()
            raise
        except StudioError as error:  # its sentence may name the condition that could not be spoken
            logger.warning("arena %s: a pair could not be made: %s", test.id, error.key)
            raise ListeningConflict("listening.arena_failed") from None
        finally:
            self._making.discard(rater.id)

    def _count(self, address: str) -> None:
        """One more pair for an address, if its hour allows."""
        now = self._now()
        times = self._lately.setdefault(address, deque())
        while times and times[0] < now - 3600:
            times.popleft()
        if len(times) >= PAIRS_PER_HOUR:
            wait_s = times[0] + 3600 - now
            raise QueueFull(
                "listening.arena_rate", limit=PAIRS_PER_HOUR, seconds=wait_s, retry_after_s=wait_s
            )
        times.append(now)
        for other in [a for a, seen in self._lately.items() if not seen or seen[-1] < now - 3600]:
            del self._lately[other]

    def _give_up_old(self) -> None:
        """End the trials that nobody voted on, in whatever arena."""
        for rater, position in self._raters.unanswered(self._now() - VOTE_LIFE_S):
            test = self._store.find(rater.test)
            if test.design.arena:
                self._raters.end(rater.id, position, [])
                self._store.drop_item(test.id, rater.plan[position].item)

    async def _make(self, session: Session, text: str) -> None:
        design = session.test.design
        pair = next_pair(design, self._raters.answers(session.test.id))
        sources = {condition.id: condition.source for condition in design.conditions}
        seed = secrets.randbelow(2**32)
        wanted = [Utterance(text, sources[c].voice, seed, sources[c].settings) for c in pair]
        made = await self._spoken(wanted)
        item = f"{session.rater.id}-{len(session.rater.plan) + 1:03d}"
        given = {(item, c): (samples, SAMPLE_RATE_HZ) for c, samples in zip(pair, made, strict=True)}
        clips, rate_hz = await asyncio.to_thread(ready, design, given)
        for (_, condition), samples in clips.items():
            self._store.put_clip(session.test.id, "ready", GivenClip(item, condition, samples, rate_hz, text))
        slots = tuple(Random(secrets.token_bytes(8)).sample(pair, 2))
        self._raters.append(session.rater, Trial(Role.TEST, item, slots))
        self._raters.serve(session.rater.id, len(session.rater.plan))  # its time runs, whoever comes back for it

    async def _spoken(self, pair: list[Utterance]) -> list[Float32]:
        """Both clips. If one fails the other is waited for, so that no time tells which."""
        made = []
        for one in await asyncio.gather(*map(self._speak, pair), return_exceptions=True):
            if isinstance(one, BaseException):
                raise one
            made.append(one)
        return made


def next_pair(design: Design, votes: Iterable[Answer]) -> tuple[str, str]:
    """The pair with the fewest votes; of equals, one by chance."""
    counts = Counter(frozenset((vote.condition, vote.against)) for vote in votes)
    pairs = list(combinations(design.compared, 2))
    Random(secrets.token_bytes(8)).shuffle(pairs)
    return min(pairs, key=lambda pair: counts[frozenset(pair)])
