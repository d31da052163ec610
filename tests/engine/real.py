"""The real models on the embedded voice, started once for all tests of the protocols."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import soundfile
import yaml

from studio.engine.lm_client import SpeechLMClient
from studio.engine.token2wav_client import PromptEncoderClient, Token2WavClient
from studio.engine.worker import WorkerProcess
from studio.protocols import PromptEncoder, SpeechLM, Token2Wav
from studio.speech import VoicePrompt
from studio.text.frontend import TextFrontend

ROOT = Path(__file__).parents[2]
VOICE_FOLDER = ROOT / "assets" / "voice"
CLIP = ROOT / "tests" / "fixtures" / "signal_16k.wav"


@dataclass(frozen=True)
class Models:
    """One implementation of the protocols, and what to speak with it. workers: none for the fakes."""

    lm: SpeechLM
    token2wav: Token2Wav
    encoder: PromptEncoder
    frontend: TextFrontend | None
    voice: VoicePrompt
    text_ids: tuple[int, ...]
    workers: tuple[WorkerProcess, ...] = ()


@asynccontextmanager
async def real_models(cache: Path) -> AsyncIterator[Models]:
    """Both worker programs on the embedded voice, ready; a random clip of ours as the voice."""
    about = yaml.safe_load((VOICE_FOLDER / "cosyvoice2.yaml").read_text(encoding="utf-8"))["checkpoint"]
    frontend = TextFrontend.load(
        VOICE_FOLDER / "CosyVoice-BlankEN", about["text_frontend"], tuple(about["languages"]), 4096
    )
    settings = {
        "model_dir": str(VOICE_FOLDER), "cache_dir": str(cache), "device": "cpu", "max_num_seqs": 8,
        "max_model_len": 2048, "max_num_batched_tokens": 2048, "kv_cache_gib": 0.25,
    }  # fmt: skip
    workers = tuple(
        WorkerProcess([sys.executable, "-m", f"studio.backends.{module}"], name, settings)
        for module, name in (("vllm_lm", "speech LM"), ("torch_token2wav", "token2wav"))
    )
    lm_worker, token2wav_worker = workers
    try:
        for worker in workers:
            await worker.start()
        await asyncio.gather(*(worker.wait_ready() for worker in workers))
        encoder = PromptEncoderClient(token2wav_worker)
        samples, rate_hz = soundfile.read(CLIP, dtype="float32")
        voice = await encoder.encode(samples, rate_hz, "Hello there.")
        text_ids = frontend.segments("It is a fine day.")[0].token_ids
        yield Models(
            SpeechLMClient(lm_worker), Token2WavClient(token2wav_worker), encoder, frontend, voice, text_ids, workers
        )
    finally:
        await asyncio.gather(*(worker.close() for worker in workers))
