"""Stand-ins for the models, scripted by tests: answers, delays, failures and a clock. Never served to listeners.

ManualClock stands still until told to advance; ScriptedSpeechLM says what was enqueued; SineToken2Wav gives exact
sample counts, each voice its own pitch. They keep the protocols' contracts, which the conformance suite checks.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from collections.abc import AsyncIterator, Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from studio.errors import AsrUnavailable, EngineDead, SpeechLMError
from studio.protocols import (
    HeardWord,
    LmPrompt,
    LmStats,
    LmTurn,
    RowStep,
    Rung,
    StepResult,
    Token2WavStats,
    TokenDelta,
    Transcript,
)
from studio.speech import (
    BLOCK_TOKENS,
    LOOKAHEAD_TOKENS,
    MEL_BINS,
    PROMPT_RATE_HZ,
    SAMPLE_RATE_HZ,
    SAMPLES_PER_TOKEN,
    SPEAKER_DIM,
    TOKEN_RATE_HZ,
    Float32,
    Sampling,
    Segment,
    SynthesisRequest,
    VoicePrompt,
)

HELD_BACK_SAMPLES = 1920
"""Kept until a row's last step, as a vocoder with look-ahead does."""


class ManualClock:
    """A clock that tests advance; `sleep` returns when its time has come."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._sleepers: list[tuple[float, asyncio.Event]] = []

    def __call__(self) -> float:
        return self.now_s

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
        for until_s, event in self._sleepers:
            if until_s <= self.now_s:
                event.set()

    async def sleep(self, seconds: float) -> None:
        entry = (self.now_s + seconds, asyncio.Event())
        self._sleepers.append(entry)
        try:
            await entry[1].wait()
        finally:
            self._sleepers.remove(entry)


@dataclass(frozen=True, slots=True)
class Say:
    """So many speech tokens, in deltas of `delta_tokens`."""

    tokens: int
    delta_tokens: int = 1


@dataclass(frozen=True, slots=True)
class WaitFor:
    """Go on when the test sets this."""

    event: asyncio.Event


@dataclass(frozen=True, slots=True)
class Finish:
    """The last, empty delta with this finish reason; None: the stream just ends, which no LM may do."""

    reason: str | None = "stop"


@dataclass(frozen=True, slots=True)
class Raise:
    """Fail with this error."""

    error: Exception


Script = Sequence[Say | WaitFor | Finish | Raise]


class ScriptedSpeechLM:
    """Answers each request with the next script, or with 5 tokens for each text id when none is left."""

    def __init__(self) -> None:
        self.prompts: list[LmPrompt | LmTurn] = []
        self.samplings: list[Sampling] = []
        self.ended: dict[str, str] = {}
        self.closed = self.asleep = False
        self.resets = 0
        self._scripts: deque[Script] = deque()
        self._running: dict[str, asyncio.Event] = {}
        self._generated = 0

    def enqueue(self, *script: Say | WaitFor | Finish | Raise) -> None:
        """What the next request that has no script yet is answered with."""
        self._scripts.append(script)

    async def generate(
        self, prompt: LmPrompt | LmTurn, sampling: Sampling, request_id: str
    ) -> AsyncIterator[TokenDelta]:
        self.prompts.append(prompt)
        self.samplings.append(sampling)
        tokens = prompt.most if isinstance(prompt, LmTurn) else 5 * len(prompt.text_ids)
        ends: Script = (Finish("length" if isinstance(prompt, LmTurn) and not prompt.whole else "stop"),)
        default: Script = (Say(tokens), *ends)
        script = self._scripts.popleft() if self._scripts else default
        self._running[request_id] = asyncio.Event()
        self.ended[request_id] = "cancelled"
        try:
            async for delta in self._perform(script, self._running[request_id]):
                self.ended[request_id] = delta.finish_reason or "cancelled"
                yield delta
        finally:
            del self._running[request_id]

    async def _perform(self, script: Script, aborted: asyncio.Event) -> AsyncIterator[TokenDelta]:
        said = 0
        for step in script:
            if aborted.is_set():
                raise SpeechLMError("speech.lm_failed", reason="aborted")
            if isinstance(step, Say):
                for start in range(0, step.tokens, step.delta_tokens):
                    count = min(step.delta_tokens, step.tokens - start)
                    yield TokenDelta(tuple(t % 6561 for t in range(said, said + count)))
                    said += count
                    self._generated += count
            elif isinstance(step, WaitFor):
                await step.event.wait()
            elif isinstance(step, Raise):
                raise step.error
            elif step.reason is not None:
                yield TokenDelta((), step.reason)

    async def abort(self, request_id: str) -> None:
        if event := self._running.get(request_id):
            event.set()

    async def stats(self) -> LmStats:
        running = len(self._running)
        return LmStats(
            kv_cache_usage_ratio=min(1.0, running / 16), kv_cache_blocks=16, block_size_tokens=32, running=running,
            generated_tokens=self._generated,
        )  # fmt: skip

    async def metrics(self) -> str:
        """As an engine exports them: two gauges and a counter."""
        waiting = "# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting 0\n"
        running = f"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running {len(self._running)}\n"
        generated = f"# TYPE vllm:generation_tokens counter\nvllm:generation_tokens_total {self._generated}\n"
        return waiting + running + generated

    async def reset_prefix_cache(self) -> bool:
        self.resets += not self._running
        return not self._running

    async def sleep(self) -> None:
        self.asleep = True

    async def wake(self) -> None:
        self.asleep = False

    async def close(self) -> None:
        self.closed = True


class SineToken2Wav:
    """A sine for every row, its pitch by the voice, its phase carried from step to step.

    `gate` holds steps back while it is cleared; `fail` scripts the end of a row or of the whole worker.
    """

    sample_rate_hz = SAMPLE_RATE_HZ
    lookahead_tokens = LOOKAHEAD_TOKENS
    block_tokens = BLOCK_TOKENS
    samples_per_token = SAMPLES_PER_TOKEN

    def __init__(self, first_block_tokens: int = BLOCK_TOKENS) -> None:
        self.steps: list[list[RowStep]] = []
        self.closed = False
        self.gate = asyncio.Event()
        self.gate.set()
        self._first_block_tokens = first_block_tokens
        self._rows: dict[str, tuple[float, int, int]] = {}  # row id -> hertz, tokens voiced, samples given
        self._failures: deque[str | Exception | None] = deque()
        self.guidances: dict[str, float | None] = {}
        """Of every row that was opened, by its id."""
        self.given_up: tuple[Rung, ...] = ()
        """What the next step says that it gave up."""
        self.flow_s = self.vocoder_s = 0.0
        """What each step says that these took of it."""

    def fail(self, *outcomes: str | Exception | None) -> None:
        """Of the next steps: None goes well, a string ends the first row of it, an exception is raised."""
        self._failures.extend(outcomes)

    async def open(
        self, row_id: str, voice: VoicePrompt, seed: int, guidance: float | None = None
    ) -> int:
        self._rows[row_id] = (pitch_hz(voice), 0, 0)
        self.guidances[row_id] = guidance
        return self._first_block_tokens

    async def prepare(self, voice: VoicePrompt, guidance: float | None = None) -> None:
        return None  # there is nothing to prepare

    async def step(self, rows: Sequence[RowStep]) -> list[StepResult]:
        self.steps.append(list(rows))
        await self.gate.wait()
        failure = self._failures.popleft() if self._failures else None
        if isinstance(failure, Exception):
            if isinstance(failure, EngineDead):
                self._rows.clear()
            raise failure
        results = [self._advance(row) for row in rows]
        if failure is not None:
            self._rows.pop(rows[0].row_id, None)
            results[0] = StepResult(rows[0].row_id, None, failure)
        results[0] = replace(
            results[0], given_up=self.given_up, flow_s=self.flow_s, vocoder_s=self.vocoder_s
        )
        self.given_up = ()
        return results

    def _advance(self, row: RowStep) -> StepResult:
        if row.row_id not in self._rows:
            return StepResult(row.row_id, None, "no such row")
        hertz, tokens, given = self._rows[row.row_id]
        tokens += len(row.tokens)
        held_back = 0 if row.final else HELD_BACK_SAMPLES
        until = max(given, tokens * SAMPLES_PER_TOKEN - held_back)
        samples = sine(hertz, given, until)
        if row.final:
            del self._rows[row.row_id]
        else:
            self._rows[row.row_id] = (hertz, tokens, until)
        return StepResult(row.row_id, samples)

    async def drop(self, row_id: str) -> None:
        self._rows.pop(row_id, None)

    async def stats(self) -> Token2WavStats:
        return Token2WavStats(
            rows_open=len(self._rows), steps=len(self.steps), rows_stepped=sum(map(len, self.steps))
        )

    async def close(self) -> None:
        self.closed = True


class WordFrontend:
    """Every sentence is a segment, every word an id, in each language another; refuses nothing."""

    _language = ""

    def reading(self, language: str) -> WordFrontend:
        other = copy(self)
        other._language = language
        return other

    def check(self, text: str) -> None:
        return None

    def segments(self, text: str) -> tuple[Segment, ...]:
        sentences = [sentence.strip() for sentence in text.split(".") if sentence.strip()]
        return tuple(Segment(sentence, self.word_ids(sentence)) for sentence in sentences)

    def prompt_ids(self, request: SynthesisRequest) -> tuple[int, ...]:
        texts = {"zero_shot": request.voice.prompt_text, "instruct": request.instructions}
        return word_ids(texts.get(request.mode, ""))

    def lead(self, prompt_ids: Sequence[int]) -> int:
        return 0

    def word_ids(self, words: str) -> tuple[int, ...]:
        return word_ids(words, self._language)

    def warm(self) -> None:
        return None


def word_ids(text: str, language: str = "") -> tuple[int, ...]:
    return tuple(zlib.crc32(f"{language}{word}".encode()) % 1000 for word in text.split())


class FakePromptEncoder:
    """A voice prompt of the right shape; equal clips and transcripts give equal keys. preset: by name.

    `gate` holds clips back while it is cleared; `encoded` counts them.
    """

    def __init__(self) -> None:
        self.encoded = 0
        self.preset: dict[str, VoicePrompt] = {}
        self.gate = asyncio.Event()
        self.gate.set()

    async def presets(self) -> dict[str, VoicePrompt]:
        return self.preset

    async def read_voices(self, data: bytes) -> dict[str, VoicePrompt]:
        """One voice, so that its way can be tested without torch; what the file says is not looked at."""
        return {"Saved upstream": voice_prompt("saved", prompt_text="")}

    async def encode(self, samples: Float32, sample_rate_hz: int, prompt_text: str) -> VoicePrompt:
        self.encoded += 1
        await self.gate.wait()
        tokens = max(1, int(len(samples) / sample_rate_hz * TOKEN_RATE_HZ))
        key = f"{zlib.crc32(samples.tobytes()):08x}{zlib.crc32(prompt_text.encode()):08x}"
        return voice_prompt(key, tokens, prompt_text)


def voice_prompt(key: str, tokens: int = 75, prompt_text: str = "hello there") -> VoicePrompt:
    """A voice that only fakes can speak with; its embedding is drawn by its key."""
    embedding = np.random.default_rng(zlib.crc32(key.encode())).standard_normal(SPEAKER_DIM)
    return VoicePrompt(
        key, prompt_text, np.zeros(tokens, np.int32), np.zeros((2 * tokens, MEL_BINS), np.float32),
        embedding.astype(np.float32),
    )  # fmt: skip


def pitch_hz(voice: VoicePrompt) -> float:
    """The pitch that SineToken2Wav gives a voice: 100 to 400 Hz by its key."""
    return 100.0 + zlib.crc32(voice.key.encode()) % 300


def sine(hertz: float, start: int, end: int) -> Float32:
    """Samples start to end of the sine that began at sample 0."""
    phase = 2 * np.pi * hertz / SAMPLE_RATE_HZ * np.arange(start, end, dtype=np.float64)
    return (0.5 * np.sin(phase)).astype(np.float32)


class ScriptedEars:
    """Hears the words that were enqueued, else none, and one voice in everything, but for `voices` if that is set.

    recogniser: "" to be without one.
    """

    def __init__(self) -> None:
        self._texts: deque[str] = deque()
        self.forget()

    def forget(self) -> None:
        """As at the start."""
        self.recogniser = "scripted"
        self.voices: Float32 | None = None  # [n, 192]: what the next sounds embed to, over and over
        self._texts.clear()

    def enqueue(self, *texts: str) -> None:
        """What is heard in the next sounds, its words spread over the length of each."""
        self._texts.extend(texts)

    async def start(self) -> None:
        return None

    async def embed(self, sounds: Sequence[Float32]) -> Float32:
        voices = np.eye(1, SPEAKER_DIM, dtype=np.float32) if self.voices is None else self.voices
        return np.resize(voices, (len(sounds), SPEAKER_DIM))

    async def transcribe(self, samples: Float32) -> Transcript:
        if not self.recogniser:
            raise AsrUnavailable("asr.missing")
        words = self._texts.popleft().split() if self._texts else []
        word_s = len(samples) / PROMPT_RATE_HZ / max(1, len(words))
        heard = [HeardWord(f" {word}", n * word_s, (n + 1) * word_s, 1.0) for n, word in enumerate(words)]
        return Transcript(tuple(heard), "en")

    async def close(self) -> None:
        return None
