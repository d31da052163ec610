"""A reference clip to a voice prompt, through the checkpoint's two ONNX models; decodes no files."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

from studio.checkpoint import VOICE_ENCODERS, VOICE_ENCODERS_3
from studio.errors import UnusablePromptSpeech
from studio.models.prompt import features
from studio.models.weights import WeightsError
from studio.speech import (
    MEL_FRAMES_PER_TOKEN,
    PROMPT_MAX_S,
    PROMPT_RATE_HZ,
    SAMPLE_RATE_HZ,
    SPEAKER_DIM,
    Float32,
    Int32,
    VoicePrompt,
)

SPEAKER_FILE, TOKENIZER_FILE = VOICE_ENCODERS
_, TOKENIZER_FILE_3 = VOICE_ENCODERS_3
# one reflection of the widest window, and a token's worth of sound beyond it
_LEAST_S = 0.08

Provider = str | tuple[str, dict[str, Any]]
CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"

logger = logging.getLogger(__name__)


def providers_for(device: str, available: Collection[str]) -> list[Provider]:
    """What onnxruntime is to run on, the best first: CUDA where the models do and its build has it, then the CPU.

    Args:    device: "cuda", "cuda:0" or "cpu"; available: what onnxruntime.get_available_providers() says.
    """
    if not device.startswith("cuda") or CUDA not in available:
        return [CPU]
    # Clips are of any length: trying out every convolution, as is its default, would cost seconds for each new one.
    return [(CUDA, {"cudnn_conv_algo_search": "HEURISTIC"}), CPU]


class OnnxPromptEncoder:
    """Speech tokenizer and speaker encoder of one checkpoint folder, on onnxruntime.

    Inputs are taken by position, as upstream does, for exported names differ: the speaker encoder reads
    filter banks [1, T, 80]; the tokenizer reads features [1, 128, T] and their length, int32 [1].
    """

    def __init__(self, folder: Path | str, *, threads: int = 1, device: str = "cpu") -> None:
        """Raises:  WeightsError if a file is missing, cannot be loaded, or has other inputs."""
        providers = providers_for(device, onnxruntime.get_available_providers())
        self._speaker = _Model(Path(folder) / SPEAKER_FILE, 1, threads, providers)
        is_third = not (Path(folder) / TOKENIZER_FILE).is_file() and (Path(folder) / TOKENIZER_FILE_3).is_file()
        self._top_hz = features.PROMPT_TOP_HZ_3 if is_third else features.PROMPT_TOP_HZ
        tokenizer_file = TOKENIZER_FILE_3 if is_third else TOKENIZER_FILE
        self._tokenizer = _Model(Path(folder) / tokenizer_file, 2, threads, providers)

    @property
    def provider(self) -> str:
        """What the larger model runs on; the CPU also where CUDA was asked for and could not be started."""
        return self._tokenizer.provider

    @torch.inference_mode()
    def encode(self, samples: Float32, sample_rate_hz: int, prompt_text: str) -> VoicePrompt:
        """Encode one clip; mel and tokens are cut to the same length, two frames a token.

        Args:    samples: float32 [n] mono, at most 30 s, at 16 kHz or more.
        Raises:  UnusablePromptSpeech if the clip is too short, too long, too slow or not finite;
                 WeightsError if a model answers with something else than ids and a [192] vector.
        """
        _check_clip(samples, sample_rate_hz)
        clip = torch.from_numpy(np.ascontiguousarray(samples, dtype=np.float32))
        at_16k = features.resample(clip, sample_rate_hz, PROMPT_RATE_HZ)
        at_24k = features.resample(clip, sample_rate_hz, SAMPLE_RATE_HZ)
        tokens, mel = self._speech_tokens(at_16k), features.prompt_mel(at_24k, self._top_hz).numpy()
        count = min(len(mel) // MEL_FRAMES_PER_TOKEN, len(tokens))
        tokens, mel = tokens[:count], np.ascontiguousarray(mel[:MEL_FRAMES_PER_TOKEN * count])
        embedding = self._speaker_embedding(at_16k)
        return VoicePrompt(_key(prompt_text, tokens, mel, embedding), prompt_text, tokens, mel, embedding)

    def _speech_tokens(self, at_16k: torch.Tensor) -> Int32:
        whisper = features.tokenizer_features(at_16k)[None].numpy()
        answer = self._tokenizer.run(whisper, np.array([whisper.shape[2]], np.int32))
        if not np.issubdtype(answer.dtype, np.integer) or answer.size == 0 or answer.min() < 0:
            found = f"{answer.dtype} {list(answer.shape)}"
            raise WeightsError(f"{self._tokenizer.file}: gave {found}, not speech tokens")
        return answer.reshape(-1).astype(np.int32)

    def _speaker_embedding(self, at_16k: torch.Tensor) -> Float32:
        answer = self._speaker.run(features.speaker_features(at_16k)[None].numpy())
        if answer.size != SPEAKER_DIM or not np.isfinite(answer).all():
            found = list(answer.shape)
            raise WeightsError(f"{self._speaker.file}: gave {found}, not {SPEAKER_DIM} finite values")
        return answer.reshape(-1).astype(np.float32)


class _Model:
    """One ONNX file, called by the position of its inputs; only its first output counts."""

    def __init__(self, path: Path, inputs: int, threads: int, providers: list[Provider]) -> None:
        if not path.is_file():
            raise WeightsError(f"{path}: no such checkpoint file")
        self.file = path.name
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        # waiting threads would otherwise spin on cores that the speech LM needs
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, providers=providers)
        except Exception as error:  # onnxruntime has no base class for what a damaged file raises
            raise WeightsError(f"{path}: cannot be loaded ({error})") from error
        self._names = [i.name for i in self._session.get_inputs()]
        if len(self._names) != inputs:
            raise WeightsError(f"{path}: has {len(self._names)} inputs, {inputs} expected")
        logger.debug("loaded %s", path.name)

    @property
    def provider(self) -> str:
        return str(self._session.get_providers()[0])

    def run(self, *arrays: np.ndarray) -> np.ndarray:
        return np.asarray(self._session.run(None, dict(zip(self._names, arrays, strict=True)))[0])


def _check_clip(samples: Float32, sample_rate_hz: int) -> None:
    if sample_rate_hz < PROMPT_RATE_HZ:
        raise UnusablePromptSpeech("clip.low_rate", rate_hz=sample_rate_hz, limit_hz=PROMPT_RATE_HZ)
    if not np.isfinite(samples).all():
        raise UnusablePromptSpeech("clip.not_finite")
    seconds = len(samples) / sample_rate_hz
    if seconds < _LEAST_S:
        raise UnusablePromptSpeech("clip.too_short", seconds=seconds, limit=1.0)
    if seconds > PROMPT_MAX_S:
        raise UnusablePromptSpeech(
            "clip.too_long", seconds=seconds, limit=PROMPT_MAX_S, start=0.0, end=PROMPT_MAX_S)


def _key(prompt_text: str, tokens: Int32, mel: Float32, embedding: Float32) -> str:
    digest = hashlib.sha256(prompt_text.encode())
    for part in (tokens, mel, embedding):
        digest.update(part.tobytes())
    return digest.hexdigest()[:32]
