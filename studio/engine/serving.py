"""The requests that have not ended: how each begins, is counted when it ends, and is ended before its time."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from studio.engine.admission import Admission, Ticket
from studio.engine.lm_ledger import LmLedger
from studio.engine.outlook import GUESSED_TEXT_IDS, Outlook
from studio.engine.rates import Rates, first_chunk_s
from studio.engine.sources import ToSpeak
from studio.engine.stats import InFlight, Recorder, RequestSummary
from studio.engine.stream import SpeechStream
from studio.engine.utterance import EngineParts, Utterance
from studio.errors import StudioError
from studio.speech import SynthesisRequest, VoicingRequest

logger = logging.getLogger(__name__)


class Serving:
    """Utterances by request, the oldest first. Owner: the engine's event loop."""

    def __init__(self, parts: EngineParts, admission: Admission, rates: Rates, recorder: Recorder) -> None:
        self._parts = parts
        self._admission = admission
        self._rates = rates
        self._recorder = recorder
        self._utterances: dict[str, Utterance] = {}
        self.outlook = Outlook(admission, rates, self._utterances)

    def begin(
        self, request: SynthesisRequest | VoicingRequest, to_speak: ToSpeak, ticket: Ticket
    ) -> SpeechStream:
        """Serve a request from now on."""
        utterance = Utterance(self._parts, request, to_speak, ticket)
        running = self._admission.running
        if to_speak.choice.holds:
            expected = GUESSED_TEXT_IDS if to_speak.text_ids is None else to_speak.text_ids
            utterance.stream.hold = partial(self._hold, expected, request.speed)
        utterance.on_end(partial(self._ended, running))
        self._utterances[ticket.request_id] = utterance
        utterance.times.promised_s = self.outlook.eta_s(utterance)
        return utterance.stream

    def _hold(self, text_ids: int, speed: float, chunk_s: float | None) -> float:
        if chunk_s is None:
            chunk_s = first_chunk_s(self._parts.voicing.first_sound_tokens, speed)
        return self._rates.prebuffer_s(text_ids, self._admission.running, speed, chunk_s)

    def _ended(self, running_before: int, summary: RequestSummary) -> None:
        # How many were voiced meanwhile, on average; those who only wait take nothing from a stream.
        running = (running_before + max(1, self._admission.running)) / 2
        utterance = self._utterances.pop(summary.request_id)
        self._recorder.request_ended(summary)
        self._rates.request_ended(summary, utterance.text_ids, running)
        if summary.reason == "stop":
            self._admission.measured((summary.rtf or 0.0) * summary.audio_s)
        logger.info(
            "request %s ended: voice=%s characters=%d tokens=%d audio_s=%.2f ttfa_s=%s rtf=%s reason=%s",
            summary.request_id, summary.voice_key[:12], summary.characters, summary.tokens, summary.audio_s,
            _rounded(summary.ttfa_s), _rounded(summary.rtf), summary.reason,
        )  # fmt: skip

    def in_flight(self, lm: LmLedger) -> tuple[InFlight, ...]:
        """Where each stands, with what it holds of the LM."""
        return tuple(u.times.in_flight(lm.held(u.request_id)) for u in self._utterances.values())

    def fail(self, request_id: str, error: StudioError) -> bool:
        """End a request and tell its listener this error; whether there was one."""
        if (utterance := self._utterances.get(request_id)) is None:
            return False
        utterance.fail(error)
        return True

    def fail_running(self, error: StudioError) -> None:
        """End those that have a place."""
        for utterance in list(self._utterances.values()):
            if utterance.ticket.granted.is_set():
                utterance.fail(error)

    def fail_all(self, error: StudioError) -> None:
        for utterance in list(self._utterances.values()):
            utterance.fail(error)

    async def ended(self, timeout_s: float | None = None) -> None:
        """Wait until those that are served now have ended, or the time is over."""
        if waits := [asyncio.create_task(u.ended()) for u in self._utterances.values()]:
            await asyncio.wait(waits, timeout=timeout_s)


def _rounded(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
