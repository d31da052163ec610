"""The seams between the engine and the models, as Protocols and the messages that cross them. Nothing concrete."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from studio.speech import Float32, Int32, Sampling, SpokenRow, VoicePrompt

Clock = Callable[[], float]
"""Seconds from a monotonic clock; injected, never read globally."""


@dataclass(frozen=True, slots=True, eq=False)
class LmPrompt:
    """What the speech LM continues: [sos] prompt text, text, [task] prompt speech.

    prompt_text_ids, text_ids: ids of the checkpoint's own tokenizer; speech_tokens: int32 [N] of the prompt speech.
    The number of tokens allowed follows from len(text_ids): at least 2, at most 20 for each.
    """

    prompt_text_ids: tuple[int, ...]
    text_ids: tuple[int, ...]
    speech_tokens: Int32


FILL = -1
"""In `LmTurn.drawn`: the fill, by which the LM asks for more text."""


@dataclass(frozen=True, slots=True)
class LmTurn:
    """What the speech LM continues while its text still arrives: [sos], parts, and [task] once the text is whole.

    parts: ("text", ids) and ("speech", tokens) in the order fed. whole: any end id ends the speech; else only the fill
    may come, and the turn ends with it or after `most` tokens. drawn: all that the LM drew before, for its repetition
    rule.
    """

    parts: tuple[tuple[str, tuple[int, ...]], ...]
    whole: bool
    most: int
    drawn: tuple[int, ...] = ()


class TokenDelta(NamedTuple):
    """New speech tokens of one request; the last delta carries a finish reason and may be empty.

    finish_reason: None, "stop" (an end id came, or the fill that ends a turn), "length" (no end id within the allowed
    number).
    """

    tokens: tuple[int, ...]
    finish_reason: str | None = None


@dataclass(frozen=True, slots=True)
class LmStats:
    """A snapshot of the LM engine. kv_cache_usage_ratio counts running requests only, 0..1."""

    kv_cache_usage_ratio: float = 0.0
    kv_cache_blocks: int = 0
    block_size_tokens: int = 0
    running: int = 0
    waiting: int = 0
    preemptions: int = 0
    prefix_cache_queries_tokens: int = 0
    prefix_cache_hits_tokens: int = 0
    generated_tokens: int = 0


class SpeechLM(Protocol):
    """Text and prompt speech to speech tokens; many requests at once."""

    def generate(self, prompt: LmPrompt | LmTurn, sampling: Sampling, request_id: str) -> AsyncIterator[TokenDelta]:
        """Yield deltas until one carries a finish reason. Closing the iterator aborts the request and frees its blocks.

        Raises: SpeechLMError for this request only; EngineDead when the engine behind it is gone.
        """
        ...

    async def abort(self, request_id: str) -> None:
        """Stop a request and free its KV blocks; unknown ids are ignored."""
        ...

    async def stats(self) -> LmStats: ...

    async def metrics(self) -> str:
        """What the engine behind it counts under its own names, in Prometheus' text form, free of paths and texts."""
        ...

    async def reset_prefix_cache(self) -> bool:
        """Forget cached prompts; whether they could be, which blocks that running requests hold prevent."""
        ...

    async def sleep(self) -> None:
        """Give the memory back until `wake`; no request may run. Raises SpeechLMError where it cannot."""
        ...

    async def wake(self) -> None: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, eq=False)
class RowStep:
    """One row's share of a batch: new speech tokens, int32 [n], after those already given.

    Not final: the row needs whole blocks, and `lookahead` holds the next 3 tokens (int32 [3], not consumed).
    Final: all remaining tokens (n may be 0), lookahead empty; the row is closed by it.
    """

    row_id: str
    tokens: Int32
    lookahead: Int32
    final: bool


Rung = Literal["refused", "smaller_batch", "forget_voices", "recompute", "smaller_hop", "restart"]
"""What is given up under overload or where memory is full, the least first: newcomers are turned away, fewer rows at
once, voices that nobody uses are forgotten, caches are computed again, shorter hops; at last the worker starts
again."""


@dataclass(frozen=True, slots=True, eq=False)
class StepResult:
    """What a row's step gave: float32 [n] at 24 kHz, or the error that ended this row alone.

    given_up: what the worker gave up since the last step for want of memory; flow_s, vocoder_s: what the whole batch
    took of each, by the device's clock where it has one; worker_s: of all in the worker. One row of the batch tells.
    """

    row_id: str
    samples: Float32 | None
    error: str | None = None
    given_up: tuple[Rung, ...] = ()
    flow_s: float = 0.0
    vocoder_s: float = 0.0
    worker_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Token2WavStats:
    """A snapshot of the token2wav worker since its start."""

    rows_open: int = 0
    steps: int = 0
    rows_stepped: int = 0
    step_seconds_total: float = 0.0
    audio_seconds_total: float = 0.0
    state_bytes: int = 0
    voices_cached: int = 0
    rows_uncached: int = 0
    """Rows that are computed from their first token at each step, since memory was full."""
    flow_pages: int = 0
    """Pages of the flow's pool, of a second of a prompt or of speech each; 0 where the flow keeps no pages."""
    flow_pages_free: int = 0
    flow_pages_shared: int = 0
    """Pages that more than one holds: a voice and its rows, or rows of one voice."""
    flow_page_bytes: int = 0


class Token2Wav(Protocol):
    """Speech tokens to sound, batched over rows; the state of a row lives behind the seam."""

    sample_rate_hz: int
    lookahead_tokens: int
    block_tokens: int
    samples_per_token: int

    async def open(
        self, row_id: str, voice: VoicePrompt, seed: int, guidance: float | None = None
    ) -> int:
        """Begin a row; gives the tokens that the first block needs (25, or more for a very short prompt).

        guidance: of the flow's solve, for this row to its end; None for what the worker was started with.
        """
        ...

    async def prepare(self, voice: VoicePrompt, guidance: float | None = None) -> None:
        """Begin what the first row of a voice would wait for; returns at once, and `open` does the rest."""
        ...

    async def step(self, rows: Sequence[RowStep]) -> list[StepResult]:
        """Voice every row's tokens in one batch; over a whole row the samples add up to 960 a token.

        Raises: EngineDead when the worker is gone; a failing row is told in its StepResult.
        """
        ...

    async def drop(self, row_id: str) -> None:
        """Forget a row that will not finish; unknown ids are ignored."""
        ...

    async def stats(self) -> Token2WavStats: ...

    async def close(self) -> None: ...


class PromptEncoder(Protocol):
    """A clip to a voice prompt; runs when a voice is saved, never in a request."""

    async def encode(self, samples: Float32, sample_rate_hz: int, prompt_text: str) -> VoicePrompt:
        """samples: float32 [n] mono, 1 to 30 s at 16 kHz or more. Raises UnusablePromptSpeech, EngineDead."""
        ...

    async def presets(self) -> dict[str, VoicePrompt]:
        """The voices that the checkpoint brings along, by name. Raises EngineNotReady, EngineDead."""
        ...

    async def read_voices(self, data: bytes) -> dict[str, VoicePrompt]:
        """The voices of a spk2info.pt from anybody, read with weights only. Raises CheckpointError, as `presets`."""
        ...


@dataclass(frozen=True, slots=True)
class HeardWord:
    """A word that a recogniser heard, with its marks; ratio: how sure it is, 0..1."""

    text: str
    start_s: float
    end_s: float
    ratio: float


@dataclass(frozen=True, slots=True)
class Transcript:
    """What was heard in a sound, in order. language: a code such as "en", or "" if nobody told."""

    words: tuple[HeardWord, ...]
    language: str = ""

    @property
    def text(self) -> str:
        return "".join(word.text for word in self.words).strip()


class Ears(Protocol):
    """What is heard in a sound: whose voice it is, and which words, if a recogniser is set up."""

    recogniser: str
    """Name of the model for words; "" if none is set up."""

    async def start(self) -> None:
        """Begin to start; returns at once. Calls wait until it is up."""
        ...

    async def embed(self, sounds: Sequence[Float32]) -> Float32:
        """Speaker embeddings of length 1 of sounds at 16 kHz, 25 ms at least: [n, 192]. Their products are likeness.

        Raises: EngineNotReady, EngineDead.
        """
        ...

    async def transcribe(self, samples: Float32) -> Transcript:
        """The words of a sound, float32 [n] at 16 kHz. Raises AsrUnavailable, QueueFull, EngineNotReady, EngineDead."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class BackendProgress:
    """Where a worker stands while it starts. stage: a catalogue key; fraction: 0..1."""

    stage: str
    fraction: float
    detail: dict[str, str] = field(default_factory=dict)


class Token2WavScheduler(Protocol):
    """Which rows step next. Pure: no torch, no clock of its own, no I/O."""

    def admit(self, row_id: str, first_block_tokens: int, arrived_s: float) -> None: ...

    def offer(self, row_id: str, tokens: Sequence[int], final: bool) -> None: ...

    def next_batch(self, now_s: float) -> list[RowStep]: ...

    def drop(self, row_id: str) -> None: ...


class KeepsSound(Protocol):
    """What a recorder of takes needs of a stream of speech: `engine.stream.SpeechStream`."""

    request_id: str
    spoken: list[SpokenRow]

    def when_read(self, observer: Callable[[Float32], Awaitable[None]]) -> None:
        """Hand all of the sound to the observer once it was read, before the stream ends."""
        ...
