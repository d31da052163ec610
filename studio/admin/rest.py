"""What may be asked of the running LM besides settings: to forget cached prompts, to sleep, to wake."""

from __future__ import annotations

from typing import Protocol

from studio.admin.tuning import Tuning
from studio.errors import AdminBusy, InvalidRequest


class RestingLm(Protocol):
    """What is asked of the LM: `protocols.SpeechLM`."""

    async def reset_prefix_cache(self) -> bool: ...

    async def sleep(self) -> None: ...

    async def wake(self) -> None: ...


class Rest:
    """While the LM sleeps, new requests wait in line. Owner: the event loop."""

    def __init__(self, lm: RestingLm, tuning: Tuning) -> None:
        self._lm = lm
        self._tuning = tuning

    async def forget_prompts(self) -> None:
        """Raises: AdminBusy while requests hold blocks of the cache."""
        if not await self._lm.reset_prefix_cache():
            raise AdminBusy("admin.cache_in_use")

    def sleep(self, who: str) -> None:
        """Begin to: those who speak are waited for; `tuning.phase` tells when it sleeps.

        Raises: InvalidRequest on a CPU or where sleep was not set up; AdminBusy while settings change.
        """
        if self._tuning.place.device == "cpu":
            raise InvalidRequest("admin.sleep_needs_gpu", param="sleep")
        if not self._tuning.settings.enable_sleep_mode:
            raise InvalidRequest("admin.sleep_is_off", param="enable_sleep_mode")
        self._tuning.begin_rest(self._lm.sleep, who)

    async def wake(self, who: str) -> None:
        """Raises: InvalidRequest if it does not sleep."""
        await self._tuning.end_rest(self._lm.wake, who)
