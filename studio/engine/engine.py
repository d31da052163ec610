"""The engine's front: takes requests, keeps them apart, tells how it does. Models are behind the protocols.

A request's life: `submit` takes a ticket (`admission.py`) and has its text read (`reading.py`); its utterance
(`utterance.py`) drives the LM and one row at a time; `voicing.py` steps the rows of all requests in batches; sound
comes out of its `SpeechStream`, whose closing ends all of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from studio.engine.admission import Admission, Ticket
from studio.engine.crew import Crew, SupervisedWorker
from studio.engine.lm_ledger import LmLedger
from studio.engine.outlook import Progress
from studio.engine.quality import Choice
from studio.engine.rates import Rates
from studio.engine.reading import Reading
from studio.engine.scheduler import RowScheduler
from studio.engine.serving import Serving
from studio.engine.sources import TextFrontend, ToSpeak, of_rows
from studio.engine.stats import EngineState, EngineStats, InFlight, Recorder
from studio.engine.step_cost import Costs, LmMeter, StepCost
from studio.engine.stream import SpeechStream
from studio.engine.token_hop import USUAL_HOPS, HopSchedule
from studio.engine.utterance import EngineParts, Utterance
from studio.engine.voicing import Voicing
from studio.errors import (
    EngineDraining,
    RequestAborted,
    StudioError,
    SynthesisError,
)
from studio.protocols import Clock, RowStep, Rung, SpeechLM, Token2Wav
from studio.speech import FIRST_BLOCK_TOKENS, Segment, SynthesisRequest, VoicePrompt, VoicingRequest

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """How much at once, and how long to wait for a listener."""

    max_running: int = 8
    queue_size: int = 32
    max_per_client: int = 8
    max_batch_rows: int = 8
    max_ahead_s: float = 30.0
    listener_timeout_s: float = 120.0
    batch_wait_s: float = 0.0
    hops: HopSchedule = USUAL_HOPS
    first_block_tokens: int = FIRST_BLOCK_TOKENS
    """What token2wav says of a row after a prompt of a second or more; for who asks before there is one."""
    guidance: float | None = None


class Engine:
    """One engine for all listeners. Owner: one event loop; every method is called in it."""

    def __init__(
        self,
        lm: SpeechLM,
        token2wav: Token2Wav,
        text_frontend: TextFrontend,
        limits: EngineLimits | None = None,
        *,
        workers: Sequence[SupervisedWorker] = (),
        silent_tokens: frozenset[int] = frozenset(),
        clock: Clock = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        limits = limits or EngineLimits()
        self._lm_cost, self._token2wav_cost = StepCost(), StepCost()
        self.lm = LmLedger(lm, LmMeter(self._lm_cost, clock))
        """For whoever looks after it; requests go through `submit`."""
        self._token2wav = token2wav
        self._recorder = Recorder()
        self._rates = Rates()
        self._admission = Admission(limits.max_running, limits.queue_size, limits.max_per_client)
        self._encoding = Admission(1, limits.queue_size, limits.max_per_client)
        self._voicing = Voicing(
            token2wav, RowScheduler(limits.max_batch_rows, limits.hops), clock, self._stepped, self._gave_up, sleep
        )
        self._voicing.batch_wait_s, self._voicing.guidance = limits.batch_wait_s, limits.guidance
        self._voicing.first_block_tokens = limits.first_block_tokens
        self._parts = EngineParts(
            self._voicing, clock, sleep, limits.max_ahead_s, limits.listener_timeout_s, silent_tokens
        )
        self._serving = Serving(self._parts, self._admission, self._rates, self._recorder)
        self._outlook = self._serving.outlook
        self._reading = Reading(text_frontend, self.lm, self._outlook, self._rates.is_plausible)
        self._crew = Crew(workers, self._serving.fail_all)
        self._crew.on_ready(self._worker_ready)

    async def start(self) -> None:
        """Start the loop and the workers; returns before they are ready."""
        self._voicing.start(lambda: self._serving.fail_all(SynthesisError("internal")))
        await self._crew.start()

    def on_ready(self, observer: Callable[[], None]) -> None:
        """Call an observer whenever a worker has become ready, so also after a restart; in the event loop."""
        self._crew.on_ready(observer)

    def on_warm(self, observer: Callable[[], Awaitable[None]]) -> None:
        """Call an observer once, when all that texts need is loaded: while the last worker starts."""
        self._reading.on_warm(observer)

    async def submit(self, request: SynthesisRequest) -> SpeechStream:
        """Begin to speak; the caller must close the stream.

        Raises: InvalidRequest for the text, EngineNotReady, EngineDraining, QueueFull; nothing was started.
        """
        self.refuse_unless_ready()
        text = request.read_as or request.text
        self._reading.check(text)
        with self._entered(request.client, urgent=request.quality == "fast") as ticket:
            return self._serving.begin(request, await self._reading.whole(request, text), ticket)

    async def submit_arriving(self, request: SynthesisRequest, pieces: AsyncIterator[str]) -> SpeechStream:
        """Begin to speak a text that is still being written; `request.text` is not read.

        pieces: of the text, cut anywhere. Each sentence is spoken once it is whole; with `request.interleaved` the LM
        begins before that. Raises as submit; what is wrong with the text is told by the stream.
        """
        self.refuse_unless_ready()
        with self._entered(request.client, urgent=request.quality == "fast") as ticket:
            return self._serving.begin(request, await self._reading.arriving(request, pieces), ticket)

    async def voice(self, request: VoicingRequest) -> SpeechStream:
        """Begin to voice speech tokens that are there already. Raises EngineNotReady, EngineDraining, QueueFull."""
        self.refuse_unless_ready()
        with self._entered(request.client) as ticket:
            to_speak = ToSpeak(of_rows(request.rows), Choice("balanced", "quality.usual"), 0)
            return self._serving.begin(request, to_speak, ticket)

    @contextlib.contextmanager
    def _entered(self, client: str, urgent: bool = False) -> Iterator[Ticket]:
        """A ticket that is given back if the request cannot begin."""
        ticket = self._admission.enter(uuid.uuid4().hex[:16], client, urgent=urgent)
        try:
            yield ticket
        except BaseException:
            ticket.leave()
            raise

    async def prepare(self, voice: VoicePrompt) -> None:
        """Begin what the first request of a voice would wait for; returns at once."""
        await self._token2wav.prepare(voice, self._voicing.guidance)

    def costs(self, shared: float) -> Costs:
        """What a step of each stage cost since its worker's start. shared: see `StepCost.line`."""
        return Costs(self._lm_cost.line(shared), self._token2wav_cost.line(shared))

    async def try_out(self, request: SynthesisRequest) -> SpeechStream:
        """Begin to speak past the line, also while places are held; the caller must close the stream."""
        ticket = Ticket(self._admission, uuid.uuid4().hex[:16], request.client)
        ticket.granted.set()
        to_speak = await self._reading.whole(request, request.read_as or request.text)
        return Utterance(self._parts, request, to_speak, ticket).stream

    def check(self, text: str) -> None:
        """Refuse what submit would refuse at once, but for a full line; for an edge with work to do before it.

        Raises: InvalidRequest for the text, EngineNotReady, EngineDraining.
        """
        self._reading.check(text)
        self.refuse_unless_ready()

    async def preview(self, text: str, speed: float, language: str = "") -> tuple[Sequence[Segment], float]:
        """The text as it would be spoken, and for how many seconds; needs no model. Raises InvalidRequest text.*.

        language: as of a SynthesisRequest.
        """
        self._reading.check(text)
        segments = await self._reading.segments(text, language)
        return segments, self._outlook.lasts_s(segments, speed)

    def refuse_if_full(self, client: str) -> None:
        """Refuse a client that submit would refuse now for want of a place. Raises QueueFull, EngineDraining."""
        self._admission.refuse_if_full(client)

    @contextlib.asynccontextmanager
    async def encoder_turn(self, client: str) -> AsyncIterator[None]:
        """A client's turn to encode a clip that is kept nowhere; the line is bounded as that of requests.

        Raises: QueueFull, EngineDraining.
        """
        ticket = self._encoding.enter(uuid.uuid4().hex[:16], client)
        try:
            await ticket.turn()
            began_s = self._parts.clock()
            yield
            self._encoding.measured(self._parts.clock() - began_s)
        finally:
            ticket.leave()

    def progress(self, request_id: str) -> Progress | None:
        """Where a request stands that has made no sound yet; None once it has, or has ended."""
        return self._outlook.progress(request_id)

    @property
    def first_chunk_tokens(self) -> int:
        """Speech tokens, look-ahead included, that a request's first sound waits for now."""
        return self._voicing.first_sound_tokens

    def measured_rate(self) -> float | None:
        """Audio seconds per wall second that each request now gets; None before any was measured."""
        return self._rates.measured_rate(max(1, self._admission.running))

    def in_flight(self) -> tuple[InFlight, ...]:
        """Every request that has not ended, the oldest first."""
        return self._serving.in_flight(self.lm)

    def abort(self, request_id: str) -> bool:
        """End a request and tell its listener; whether there was one."""
        return self._serving.fail(request_id, RequestAborted("speech.ended_by_admin"))

    def limit(self, limits: EngineLimits) -> None:
        """Other limits from now on, but for a listener's and the guidance, which hold from a request's begin."""
        self._admission.limit(limits.max_running, limits.queue_size, limits.max_per_client)
        self._encoding.limit(1, limits.queue_size, limits.max_per_client)
        self._voicing.scheduler.max_batch_rows = limits.max_batch_rows
        self._voicing.scheduler.hops = limits.hops
        self._voicing.first_block_tokens = limits.first_block_tokens
        self._voicing.batch_wait_s, self._voicing.guidance = limits.batch_wait_s, limits.guidance

    async def hold(self, *, abort: bool) -> None:
        """Let new requests wait in line, and end or wait for those that run; until `release` workers may go."""
        self._crew.held = True
        for line in (self._admission, self._encoding):
            line.hold()
        if abort:
            self._serving.fail_running(EngineDraining("engine.tuned", retry_after_s=1.0))
        else:
            await self._encoding.emptied()
        await self._admission.emptied()

    def release(self) -> None:
        """Give places again; who waited runs."""
        self._crew.held = False
        for line in (self._admission, self._encoding):
            line.release()

    def report_underruns(self, count: int) -> None:
        """A player ran dry so many times."""
        self._recorder.underruns += count

    def state(self) -> EngineState:
        """What the page shows."""
        return self._crew.state(self._admission.running, self._admission.waiting)

    async def stats(self) -> EngineStats:
        """All that was measured, with the models' own figures where they answer."""
        lm, token2wav = await asyncio.gather(
            self.lm.stats(), self._token2wav.stats(), return_exceptions=True
        )
        return self._recorder.stats(
            self.state(),
            measured_rate=self.measured_rate(),
            rows_open=self._voicing.rows_open,
            refused=self._admission.refused,
            places=self._admission.places,
            lm=_unless_down(lm),
            token2wav=_unless_down(token2wav),
        )

    async def lm_metrics(self) -> str:
        """The LM engine's own metrics in Prometheus' text form; empty while it is down."""
        answer = (await asyncio.gather(self.lm.metrics(), return_exceptions=True))[0]
        return _unless_down(answer) or ""

    async def drain(self, timeout_s: float) -> None:
        """Refuse new requests and let the present ones end; those that take longer are ended with an error."""
        self._let_nobody_in()
        await self._serving.ended(timeout_s)

    async def close(self, told: StudioError | None = None) -> None:
        """End everything: requests are told, workers stop. told: why; None: the server shuts down."""
        self._let_nobody_in()
        self._serving.fail_all(told or EngineDraining("engine.draining"))
        await self._serving.ended()
        await self._voicing.close()
        await asyncio.gather(self.lm.close(), self._token2wav.close())

    def _let_nobody_in(self) -> None:
        self._crew.draining = True
        self._admission.drain()
        self._encoding.drain()
        self._encoding.release()  # who waits there goes on, and is told where a place is asked for

    def refuse_unless_ready(self) -> None:
        """Refuse while the models are not up. Raises EngineNotReady, EngineDraining."""
        self._crew.refuse_unless_ready()

    def _gave_up(self, rung: Rung) -> None:
        """Token2wav found memory full; where a row's cache had to go, newcomers wait until others have ended."""
        self._recorder.given_up[rung] += 1
        if rung not in ("smaller_batch", "forget_voices"):
            self._admission.narrow()

    def _stepped(self, steps: Sequence[RowStep], seconds: float, flow_s: float, vocoder_s: float) -> None:
        self._recorder.stepped(len(steps), seconds, flow_s, vocoder_s)
        if tokens := sum(len(step.tokens) for step in steps):
            self._token2wav_cost.add(tokens, seconds)

    def _worker_ready(self) -> None:
        self._rates.worker_started()
        self._lm_cost.forget()
        self._token2wav_cost.forget()
        # Not before: until then the page is being loaded, and the first worker leaves a core free.
        self._reading.begin_warming()


def _unless_down(answer: T | BaseException) -> T | None:
    """A model's figures; None when it is down, which is no error of whoever asks."""
    if isinstance(answer, StudioError):
        return None
    if isinstance(answer, BaseException):
        raise answer
    return answer
