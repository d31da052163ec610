"""What the engine measured, as frozen snapshots. It formats nothing and exports nothing."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from studio.engine.worker import WorkerState
from studio.protocols import LmStats, Rung, Token2WavStats
from studio.speech import SeedHolds

SECONDS_BOUNDS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 60.0)
RATIO_BOUNDS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 2.0, 4.0)
STEP_BOUNDS = (0.002, 0.005, 0.01, 0.02, *SECONDS_BOUNDS)
"""A GPU's steps are shorter than what a listener notices."""
ROWS_BOUNDS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
LAST_REQUESTS = 200
Stage = Literal["waiting", "reading", "first sound", "speaking"]
"""In line; the LM reads the prompt; tokens come, no sound yet; sound was handed out."""


@dataclass(frozen=True, slots=True)
class HistogramSnapshot:
    """Observations by upper bound (not cumulative; the last count is above all bounds), their sum and number."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float
    count: int


@dataclass(frozen=True, slots=True)
class FirstStep:
    """The token2wav step that made a request's first sound. Times are seconds since the request came.

    ready_s: all of its tokens were there. began_s, ended_s: of the step as the engine saw it. flow_s, vocoder_s: what
    each took in the worker, for all rows of the step; worker_s: all of the step there, 0 if it was not told.
    """

    ready_s: float
    began_s: float
    ended_s: float
    rows: int
    flow_s: float
    vocoder_s: float
    worker_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RequestSummary:
    """How one request went. reason: "stop", "aborted", or the error's code. None: it never came so far."""

    request_id: str
    voice_key: str
    client: str
    characters: int
    segments: int
    tokens: int
    audio_s: float
    queue_s: float
    ttfa_s: float | None
    rtf: float | None
    rate: float | None
    """Audio seconds per wall second between the first and the last chunk, unless the listener held it up."""
    ended_s: float
    """Clock time of the end, for ages only."""
    reason: str
    needed_s: float = 0.0
    """Sound that its player had to hold before it started, so as not to run dry; 0 if the listener held it up."""
    promised_s: float = 0.0
    """Seconds to the first sound that it was promised when it came."""
    first_token_s: float | None = None
    """Seconds from its coming to its first speech token."""
    whole_s: float = 0.0
    """Seconds from its coming to its end."""
    speed: float = 1.0
    """How much faster than the voice speaks its sound was handed out; rate counts what was handed out."""
    first_step: FirstStep | None = None


@dataclass(frozen=True, slots=True)
class InFlight:
    """Where a request stands that has not ended. kv_tokens: positions that its LM request holds now, else 0."""

    request_id: str
    client: str
    voice_key: str
    stage: Stage
    age_s: float
    tokens: int
    kv_tokens: int
    prefix_tokens: int
    """Of those the leading ones that every text of its voice and mode begins with."""
    ahead_s: float
    """Sound handed out that its listener has not played yet."""


@dataclass(frozen=True, slots=True)
class EngineState:
    """What a page shows: ready or not, and what each worker does. stage: catalogue key."""

    ready: bool
    failed: bool
    draining: bool
    stage: str
    fraction: float
    expected_ready_s: float
    workers: tuple[WorkerState, ...]
    running: int
    waiting: int

    @property
    def seed_holds(self) -> SeedHolds | None:
        """What the speech LM says of its seeds; None until it was ready once."""
        return next((worker.facts["seed_holds"] for worker in self.workers if "seed_holds" in worker.facts), None)


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Everything that exporters, the admin tab and bench read. lm and token2wav are None while they are down.

    flow_s, vocoder_s: what each took of a token2wav step, of the steps that told it.
    """

    state: EngineState
    finished: Mapping[str, int]
    queue_s: HistogramSnapshot
    ttfa_s: HistogramSnapshot
    rtf: HistogramSnapshot
    step_s: HistogramSnapshot
    flow_s: HistogramSnapshot
    vocoder_s: HistogramSnapshot
    batch_rows: HistogramSnapshot
    audio_s_total: float
    underruns: int
    measured_rate: float | None
    last_requests: tuple[RequestSummary, ...]
    rows_open: int
    lm: LmStats | None = None
    token2wav: Token2WavStats | None = None
    refused: int = 0
    places: int = 0
    """Requests that may run at once now: fewer than are allowed after memory was full."""
    given_up: Mapping[Rung, int] = field(default_factory=dict)
    """How often each rung of the ladder of overload was taken."""


class Histogram:
    """Counts observations in fixed bins."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def snapshot(self) -> HistogramSnapshot:
        return HistogramSnapshot(self._bounds, tuple(self._counts), self._total, sum(self._counts))


@dataclass(slots=True)
class Recorder:
    """The engine's own counts since its start. Owner: the engine's event loop."""

    finished: Counter[str] = field(default_factory=Counter)
    queue_s: Histogram = field(default_factory=lambda: Histogram(SECONDS_BOUNDS))
    ttfa_s: Histogram = field(default_factory=lambda: Histogram(SECONDS_BOUNDS))
    rtf: Histogram = field(default_factory=lambda: Histogram(RATIO_BOUNDS))
    step_s: Histogram = field(default_factory=lambda: Histogram(STEP_BOUNDS))
    flow_s: Histogram = field(default_factory=lambda: Histogram(STEP_BOUNDS))
    vocoder_s: Histogram = field(default_factory=lambda: Histogram(STEP_BOUNDS))
    batch_rows: Histogram = field(default_factory=lambda: Histogram(ROWS_BOUNDS))
    audio_s_total: float = 0.0
    underruns: int = 0
    given_up: Counter[Rung] = field(default_factory=Counter)
    last_requests: deque[RequestSummary] = field(default_factory=lambda: deque(maxlen=LAST_REQUESTS))

    def request_ended(self, summary: RequestSummary) -> None:
        self.finished[summary.reason] += 1
        self.queue_s.observe(summary.queue_s)
        if summary.ttfa_s is not None:
            self.ttfa_s.observe(summary.ttfa_s)
        if summary.rtf is not None and summary.reason == "stop":
            self.rtf.observe(summary.rtf)
        self.audio_s_total += summary.audio_s
        self.last_requests.append(summary)

    def stepped(self, rows: int, step_s: float, flow_s: float, vocoder_s: float) -> None:
        """flow_s, vocoder_s: 0 where they were not told."""
        self.batch_rows.observe(rows)
        self.step_s.observe(step_s)
        if flow_s:
            self.flow_s.observe(flow_s)
        if vocoder_s:
            self.vocoder_s.observe(vocoder_s)

    def stats(self, state: EngineState, refused: int, **others: Any) -> EngineStats:
        """Everything at this moment; others: the fields of EngineStats that are not counted here."""
        return EngineStats(
            state=state,
            finished=dict(self.finished),
            queue_s=self.queue_s.snapshot(),
            ttfa_s=self.ttfa_s.snapshot(),
            rtf=self.rtf.snapshot(),
            step_s=self.step_s.snapshot(),
            flow_s=self.flow_s.snapshot(),
            vocoder_s=self.vocoder_s.snapshot(),
            batch_rows=self.batch_rows.snapshot(),
            audio_s_total=self.audio_s_total,
            underruns=self.underruns,
            last_requests=tuple(self.last_requests),
            refused=refused,
            given_up={rung: self.given_up[rung] for rung in get_args(Rung)} | {"refused": refused},
            **others,
        )
