"""Other settings for a while: one set after the other is put to work, then those of before come back.

Nobody else is served meanwhile: who comes waits in line until the end, and never hears settings that are only tried.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from studio.admin.knobs import tunable, worker_of
from studio.admin.tuning import Preview, Tuning, told
from studio.errors import StudioError
from studio.settings import Settings

logger = logging.getLogger(__name__)

Work = Callable[[int], Awaitable[bool]]
"""What is done under the settings of that number, from 0; whether to go on with the next ones."""


@dataclass(slots=True)
class Lending:
    """Lends the engine of a tuning. Owner: the event loop."""

    tuning: Tuning
    _own: Settings | None = None

    @property
    def settings(self) -> Settings:
        """Those that the studio has, or comes back to."""
        return self._own or self.tuning.settings

    @property
    def phase(self) -> str:
        return self.tuning.phase

    def check(self, changes: Mapping[str, object]) -> None:
        """Raises: InvalidRequest for settings that cannot be lent, naming the bound that they break."""
        self.tuning.preview(changes)

    def lend(self, sets: Sequence[Mapping[str, object]], work: Work, who: str) -> Awaitable[str]:
        """Have work done under each of these changes to the present settings, then put the present ones back.

        Each set is tried before it is worked with. Whatever goes wrong, the work's own errors too, ends all of it.

        Returns: why not all was done, "" if nothing went wrong; cancelled where the server ends meanwhile, whose next
                 start has its own settings anyway.
        Raises:  InvalidRequest for a set that cannot be; AdminBusy. Nothing was begun.
        """
        wanted = [self.tuning.possible(changes) for changes in sets]
        return self.tuning.occupy(self._lend(wanted, work, who))

    async def _lend(self, wanted: Sequence[Preview], work: Work, who: str) -> str:
        tuning = self.tuning
        own = self._own = tuning.settings
        tuning.reason = ""
        astray: tuple[str, ...] = ()  # workers that have, or may have, other settings than their own
        try:
            try:
                tuning.phase = "holding"
                await tuning.hold(abort=False)
                for number, preview in enumerate(wanted):
                    astray = _workers_between(own, tuning.settings, preview.settings)
                    await self._take_on(preview, who)
                    astray = _workers_between(own, preview.settings)
                    tuning.phase = "lent"
                    if not await work(number):
                        break
            except Exception as error:  # whatever it is, the settings of before must come back
                if not isinstance(error, StudioError):
                    logger.exception("work under other settings broke")
                tuning.reason = told(error)
            await self._return(own, astray, who)
        finally:
            self._own = None
            tuning.engine.release()
        return tuning.reason

    async def _take_on(self, preview: Preview, who: str) -> None:
        tuning, before, after = self.tuning, self.tuning.settings, preview.settings
        if workers := _workers_between(before, after):
            try:
                await tuning.restart(workers, after)
            except Exception as error:
                self._note(who, before, after, "rolled back", preview, told(error))
                raise
        tuning.apply(after)
        tuning.settings = after
        self._note(who, before, after, "applied", preview)

    async def _return(self, own: Settings, astray: tuple[str, ...], who: str) -> None:
        tuning, before, failure = self.tuning, self.tuning.settings, ""
        tuning.apply(own)
        tuning.settings = own
        if astray:
            tuning.phase = "returning"
            try:
                await tuning.start(astray, own)
            except Exception as error:
                failure = told(error)
                tuning.reason = " / ".join(filter(None, (tuning.reason, failure)))
        tuning.phase = "failed" if failure else "idle"
        self._note(who, before, own, "failed" if failure else "applied", tuning.preview({}), failure)

    def _note(
        self, who: str, before: Settings, after: Settings, outcome: str, preview: Preview, reason: str = ""
    ) -> None:
        """Log a change, if it is one, or if it went wrong."""
        old, new = ({name: getattr(s, name) for name in _differing(before, after)} for s in (before, after))
        if new or reason:
            logger.warning("settings lent, %s by %s: %s %s", outcome, who, new, reason)
            self.tuning.log.add(who, old, new, outcome, reason, asdict(preview.after), self.tuning.found())


def _differing(one: Settings, other: Settings) -> list[str]:
    return [name for name in tunable() if getattr(one, name) != getattr(other, name)]


def _workers_between(first: Settings, *others: Settings) -> tuple[str, ...]:
    """The workers that read a setting at their start which is not the same in all."""
    found = {worker_of(name) for other in others for name in _differing(first, other)}
    return tuple(sorted(worker for worker in found if worker))
