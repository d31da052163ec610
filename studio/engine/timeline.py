"""When things happened to one request, and what that says of how it goes and went. It drives nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

from studio.engine.lm_ledger import KvHeld
from studio.engine.rates import least_prebuffer_s
from studio.engine.scheduler import Playback
from studio.engine.stats import FirstStep, InFlight, RequestSummary, Stage
from studio.protocols import Clock
from studio.speech import SAMPLE_RATE_HZ, SynthesisRequest, VoicingRequest

ARRIVAL_JITTER_S = 0.1
"""How much later than it was handed over a chunk may reach a player: the socket and the page's own turn."""


@dataclass(slots=True)
class Timeline:
    """A request's times, as seconds of the engine's clock, and its counts. Owner: the request's utterance."""

    clock: Clock
    request_id: str
    request: SynthesisRequest | VoicingRequest
    playback: Playback = field(default_factory=Playback)
    promised_s: float = 0.0
    """Seconds to the first sound that it was promised when it came."""
    characters: int = 0
    tokens: int = 0
    held_up: bool = False
    """Whether it ever waited for its listener."""
    arrived_s: float = field(init=False)
    began_s: float | None = None
    first_token_s: float | None = None
    early_tokens: list[tuple[float, int]] = field(default_factory=list)
    """When so many tokens were there, until the first step of token2wav was made."""
    first_audio_s: float = 0.0
    """Seconds of sound in the first chunk."""
    last_chunk_s: float | None = None
    handed: list[tuple[float, float]] = field(default_factory=list)
    """Time and seconds of sound of each chunk."""

    def __post_init__(self) -> None:
        self.arrived_s = self.clock()

    def begin(self) -> None:
        """It has its place."""
        self.began_s = self.clock()

    def add_tokens(self, count: int) -> None:
        self.tokens += count
        if count and self.playback.first_step is None:
            self.early_tokens.append((self.clock(), self.tokens))
            if self.first_token_s is None:
                self.first_token_s = self.early_tokens[0][0]

    def add_sound(self, samples: int) -> None:
        """So much was handed to the listener."""
        now_s, audio_s = self.clock(), samples / SAMPLE_RATE_HZ
        if self.playback.first_chunk_s is None:
            self.playback.first_chunk_s = now_s
            self.first_audio_s = audio_s
        self.last_chunk_s = now_s
        self.handed.append((now_s, audio_s))
        self.playback.audio_s += audio_s

    @property
    def has_sound(self) -> bool:
        return self.playback.first_chunk_s is not None

    def in_flight(self, kv: KvHeld) -> InFlight:
        """Where it stands now, for whoever looks after the engine."""
        now_s = self.clock()
        stage: Stage = "waiting"
        if self.has_sound:
            stage = "speaking"
        elif self.began_s is not None:
            stage = "reading" if self.first_token_s is None else "first sound"
        return InFlight(
            self.request_id, self.request.client, self.request.voice.key, stage, now_s - self.arrived_s,
            self.tokens, kv.tokens, kv.prefix_tokens, max(0.0, self.playback.slack_s(now_s)),
        )  # fmt: skip

    def summary(self, reason: str, segments: int) -> RequestSummary:
        """How it went, at its end."""
        now_s = self.clock()
        began_s, first_s, last_s = self.began_s, self.playback.first_chunk_s, self.last_chunk_s
        audio_s = self.playback.audio_s
        return RequestSummary(
            request_id=self.request_id,
            voice_key=self.request.voice.key,
            client=self.request.client,
            characters=self.characters,
            segments=segments,
            tokens=self.tokens,
            audio_s=audio_s,
            queue_s=(now_s if began_s is None else began_s) - self.arrived_s,
            ttfa_s=None if first_s is None else first_s - self.arrived_s,
            rtf=None if began_s is None or last_s is None or not audio_s else (last_s - began_s) / audio_s,
            rate=self._rate(),
            ended_s=now_s,
            reason=reason,
            needed_s=0.0 if self.held_up else least_prebuffer_s(self.handed, ARRIVAL_JITTER_S),
            promised_s=self.promised_s,
            first_token_s=None if self.first_token_s is None else self.first_token_s - self.arrived_s,
            whole_s=now_s - self.arrived_s,
            speed=self.request.speed,
            first_step=self._first_step(),
        )

    def _first_step(self) -> FirstStep | None:
        if (step := self.playback.first_step) is None:
            return None
        ready_s = next((at_s for at_s, tokens in self.early_tokens if tokens >= step.tokens), step.began_s)
        return FirstStep(
            ready_s - self.arrived_s, step.began_s - self.arrived_s, step.ended_s - self.arrived_s, step.rows,
            step.flow_s, step.vocoder_s, step.worker_s,
        )  # fmt: skip

    def _rate(self) -> float | None:
        first_s, last_s = self.playback.first_chunk_s, self.last_chunk_s
        if first_s is None or last_s is None or last_s <= first_s or self.held_up:
            return None
        return (self.playback.audio_s - self.first_audio_s) / (last_s - first_s)
