"""The worker program of the ears: `python -m studio.backends.ears --channel-fd N`. Voices by ONNX, words by whisper.

No torch, so it is up within a second. Voices are always judged by the embedded checkpoint's encoder, whatever
checkpoint speaks, since what counts as alike was measured with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from studio.audio.filter_bank import speaker_features
from studio.backends.serve import Report, Service, run_worker
from studio.backends.whisper import WhisperRecogniser
from studio.errors import AsrUnavailable, CheckpointError, StudioError
from studio.protocols import Transcript
from studio.speech import Float32

ENCODER = Path(__file__).resolve().parents[2] / "assets" / "voice" / "campplus.onnx"


class SpeakerEars:
    """Speaker embeddings by the embedded encoder. Owner: one thread."""

    def __init__(self) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(str(ENCODER), options, providers=["CPUExecutionProvider"])
        self._input = self._session.get_inputs()[0].name

    def embed(self, sounds: Sequence[Float32]) -> Float32:
        """Sounds at 16 kHz -> unit vectors [n, 192]."""
        found = [self._session.run(None, {self._input: speaker_features(s)[None]})[0].reshape(-1) for s in sounds]
        return np.stack([e / np.linalg.norm(e) for e in found]).astype(np.float32)


async def _setup(settings: dict[str, Any], report: Report) -> Service:
    """settings: rows of the settings table, of which others are passed over."""
    report("stage.weights", 0.5)
    try:
        speaker = SpeakerEars()
    except Exception as error:  # onnxruntime has no base class for what a damaged file raises
        raise CheckpointError(
            "checkpoint.unreadable", file=ENCODER.name, folder=ENCODER.parent, reason=str(error)
        ) from error
    folder = Path(settings["cache_dir"]) / "whisper"
    recogniser = WhisperRecogniser(settings["asr_model"], folder, settings.get("asr_threads", 0))
    loop = asyncio.get_running_loop()
    # apart, so that a clip's speakers need not wait for somebody's words
    voices, words = ThreadPoolExecutor(1, "voices"), ThreadPoolExecutor(1, "words")

    async def embed(sounds: Sequence[Float32]) -> Float32:
        return await loop.run_in_executor(voices, speaker.embed, sounds)

    async def transcribe(samples: Float32) -> Transcript:
        return await loop.run_in_executor(words, recogniser.transcribe, samples)

    return Service({"embed": embed, "transcribe": transcribe})


def _wrap_error(error: Exception) -> StudioError:
    return AsrUnavailable("asr.failed", reason=str(error)[:200])


if __name__ == "__main__":
    run_worker(_setup, _wrap_error)
