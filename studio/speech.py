"""The shared nouns of speech synthesis and the constants of the model family. Imports nothing from studio."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE_HZ = 24_000
TOKEN_RATE_HZ = 25
MEL_BINS = 80
MEL_HOP_SAMPLES = 480
MEL_FRAMES_PER_TOKEN = 2
SAMPLES_PER_TOKEN = MEL_HOP_SAMPLES * MEL_FRAMES_PER_TOKEN
SPEAKER_DIM = 192
BLOCK_TOKENS = 25
"""Tokens in one block of the flow's chunk-causal mask; 50 mel frames, one second."""
LOOKAHEAD_TOKENS = 3
FIRST_BLOCK_TOKENS = BLOCK_TOKENS - LOOKAHEAD_TOKENS
"""Spoken tokens of a row's first block where nothing else is set, and the most: with fewer of the prompt's tokens than
the look-ahead in it, the block before it would wait for spoken tokens and be computed again in every row."""
PROMPT_MIN_S = 1.0
PROMPT_MAX_S = 30.0
PROMPT_RATE_HZ = 16_000
"""What the speech tokenizer and the speaker encoder read; a slower clip is refused."""

Mode = Literal["zero_shot", "cross_lingual", "instruct", "preset", "conversion"]
"""What the speech LM is given beside the text. zero_shot: transcript and speech of the prompt; cross_lingual: neither,
so that a voice may speak another language than its clip; instruct: an instruction; preset: nothing, for a voice that is
only an embedding. conversion asks no LM: the speech tokens come from another clip."""
MODES: tuple[Mode, ...] = get_args(Mode)
SOUND_TAGS = (
    "[breath]", "<strong>", "</strong>", "[noise]", "[laughter]", "[cough]", "[clucking]", "[accent]",
    "[quick_breath]", "<laughter>", "</laughter>", "[hissing]", "[sigh]", "[vocalized-noise]", "[lipsmack]", "[mn]",
)  # fmt: skip
"""What CosyVoice2's tokenizer knows as sounds, in the order of their ids."""
SeedHolds = Literal["beside_others", "alone"]
"""When a seed gives the same speech tokens again: whatever else is spoken at the time, or only while nothing is."""
Quality = Literal["fast", "balanced", "best"]
"""What is spent on a request; studio/engine/quality.py says what each stands for."""

Float32 = NDArray[np.float32]
Int32 = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class VoicePrompt:
    """What cloning needs of a clip, computed once when the voice is saved.

    speech_tokens: int32 [N]; mel: float32 [2 N, 80] (natural log); speaker_embedding: float32 [192].
    A preset voice is an embedding alone: N is 0 and there is no prompt text.
    key: content hash of the clip, transcript and checkpoint; equal keys mean equal prompts.
    """

    key: str
    prompt_text: str
    speech_tokens: Int32
    mel: Float32
    speaker_embedding: Float32

    def __post_init__(self) -> None:
        if self.mel.shape != (MEL_FRAMES_PER_TOKEN * len(self.speech_tokens), MEL_BINS):
            raise ValueError(
                f"prompt mel {self.mel.shape} is not twice the {len(self.speech_tokens)} prompt tokens"
            )
        if self.speaker_embedding.shape != (SPEAKER_DIM,):
            raise ValueError(
                f"speaker embedding has shape {self.speaker_embedding.shape}, expected ({SPEAKER_DIM},)"
            )

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The modes that it holds enough for, the one to take unasked first."""
        if not len(self.speech_tokens):
            return ("preset", "instruct", "conversion")
        with_clip: tuple[Mode, ...] = ("cross_lingual", "instruct", "conversion")
        return ("zero_shot", *with_clip) if self.prompt_text.strip() else with_clip


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the speech LM draws tokens: repetition-aware sampling over a nucleus."""

    seed: int = 0
    temperature: float = 1.0
    top_p: float = 0.8
    top_k: int = 25
    window: int = 10
    """Spoken tokens that count as recent; a candidate among them is drawn again from the rest."""


@dataclass(slots=True)
class ServedModel:
    """What clients see of the loaded checkpoint: its name, and what it honours; all else is refused with the reason.

    sampling: of requests that name none; the one thing that changes while it is served. interleaved: whether its LM can
    begin before the text is whole.
    """

    name: str
    sampling: Sampling = field(default_factory=Sampling)
    modes: tuple[Mode, ...] = MODES
    sound_tags: tuple[str, ...] = SOUND_TAGS
    languages: tuple[str, ...] = ("en", "zh", "ja", "ko")
    interleaved: bool = True


@dataclass(frozen=True, slots=True)
class SynthesisRequest:
    """One text in one voice, validated at the edge; nothing after the edge rejects it for its content."""

    text: str
    voice: VoicePrompt
    sampling: Sampling = field(default_factory=Sampling)
    client: str = "local"
    """Whose turn it is in the fair queue: a session, an API key or an address."""
    mode: Mode = "zero_shot"
    instructions: str = ""
    """What mode instruct follows, as typed; the end-of-prompt mark is ours to append."""
    speed: float = 1.0
    """How much faster than the voice speaks, at its own pitch; pauses that the text asks for stay as long."""
    pitch: float = 0.0
    """Semitones by which the sound is moved, at its own pace."""
    read_as: str = ""
    """What is read in place of the text, where words of it are respelled."""
    quality: Quality | None = "balanced"
    """None: by load and length of the text."""
    language: str = ""
    """By whose rules numbers, dates and signs of the text are read; "": each sentence by those of its script."""
    interleaved: bool = False
    """For text that arrives while it is spoken: the LM begins before the first sentence is whole."""

    @property
    def seed(self) -> int:
        return self.sampling.seed


@dataclass(slots=True)
class SpokenRow:
    """Speech tokens that are voiced in one go, with the silence before and after their sound."""

    tokens: list[int]
    pause_s: float = 0.0
    pause_after_s: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class VoicingRequest:
    """Speech tokens that are there already, of another clip or of an earlier take, in a voice; no LM is asked."""

    rows: tuple[SpokenRow, ...]
    voice: VoicePrompt
    seed: int = 0
    client: str = "local"
    speed: float = 1.0
    pitch: float = 0.0


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a text that is one LM generation: as normalised, and the ids that the LM reads.

    pause_s: silence that the text asks for before it; None: what is usual between segments. pause_after_s: silence
    after it, where the text ends with a pause.
    """

    text: str
    token_ids: tuple[int, ...]
    pause_s: float | None = None
    pause_after_s: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class AudioChunk:
    """A piece of a request's sound: float32 [n] in [-1, 1] at 24 kHz; chunks join without a seam."""

    samples: Float32
    index: int
