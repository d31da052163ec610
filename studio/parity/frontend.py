"""Features of a reference clip: fixture 01."""

from __future__ import annotations

from collections.abc import Iterator

import soundfile
from torch import Tensor

from studio.models.prompt import features
from studio.parity.compare import Line, compare
from studio.parity.fixtures import Fixtures
from studio.speech import PROMPT_RATE_HZ, SAMPLE_RATE_HZ


def run_frontend(fixtures: Fixtures, name: str) -> Iterator[Line]:
    """01: the features that mel, speech tokenizer and speaker encoder see, and the resampling before them."""
    at_24k, at_16k = (_signal(fixtures, rate_hz) for rate_hz in (SAMPLE_RATE_HZ, PROMPT_RATE_HZ))
    got = {
        "out_mel_24k": features.prompt_mel(at_24k),
        "out_whisper_16k": features.tokenizer_features(at_16k),
        "out_fbank_raw_16k": features.kaldi_fbank(at_16k),
        "out_fbank_16k": features.speaker_features(at_16k),
        "out_resampled_24k_to_16k": features.resample(at_24k, SAMPLE_RATE_HZ, PROMPT_RATE_HZ),
    }
    return compare(fixtures, name, got)


def _signal(fixtures: Fixtures, rate_hz: int) -> Tensor:
    samples, _ = soundfile.read(fixtures.file(f"signal_{rate_hz // 1000}k.wav"), dtype="float32")
    return fixtures.tensor(samples)
