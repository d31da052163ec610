"""The shared nouns of speech synthesis and the constants of the model family. Imports nothing from studio."""

from __future__ import annotations

from dataclasses import dataclass, field

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
PROMPT_MIN_S = 1.0
PROMPT_MAX_S = 30.0
PROMPT_RATE_HZ = 16_000
"""What the speech tokenizer and the speaker encoder read; a slower clip is refused."""

Float32 = NDArray[np.float32]
Int32 = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class VoicePrompt:
    """What cloning needs of a clip, computed once when the voice is saved.

    speech_tokens: int32 [N]; mel: float32 [2 N, 80] (natural log); speaker_embedding: float32 [192].
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


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the speech LM draws tokens: repetition-aware sampling over a nucleus."""

    seed: int = 0
    temperature: float = 1.0
    top_p: float = 0.8
    top_k: int = 25
    window: int = 10
    """Spoken tokens that count as recent; a candidate among them is drawn again from the rest."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What clients see of the loaded checkpoint: its name, and the sampling of requests that name none."""

    name: str
    sampling: Sampling = field(default_factory=Sampling)


@dataclass(frozen=True, slots=True)
class SynthesisRequest:
    """One text in one voice, validated at the edge; nothing after the edge rejects it for its content."""

    text: str
    voice: VoicePrompt
    sampling: Sampling = field(default_factory=Sampling)
    client: str = "local"
    """Whose turn it is in the fair queue: a session, an API key or an address."""
    spoken: tuple[tuple[int, ...], ...] = ()
    """Speech tokens of an earlier take, segment by segment: they are voiced again, and the LM is not asked."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a text that is one LM generation: as normalised, and the ids that the LM reads."""

    text: str
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class AudioChunk:
    """A piece of a request's sound: float32 [n] in [-1, 1] at 24 kHz; chunks join without a seam."""

    samples: Float32
    index: int
