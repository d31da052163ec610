"""Voice prompts of library voices, encoded once for each checkpoint and kept as safetensors. Runs no models itself."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from studio.errors import StudioError
from studio.library.store import Voice, VoiceStore
from studio.protocols import PromptEncoder
from studio.speech import VoicePrompt

EXPECTED_VOICES = 4


class VoicePrompts:
    """Gives the VoicePrompt of a voice: from memory, from its file, or by encoding the clip now.

    checkpoint_id names the models that made a prompt; another checkpoint gets prompts of its own. prepare begins what
    the first row of a voice would wait for, and returns at once.
    """

    def __init__(
        self,
        store: VoiceStore,
        encoder: PromptEncoder,
        folder: Path,
        checkpoint_id: str,
        memory_voices: int = 64,
        prepare: Callable[[VoicePrompt], Awaitable[None]] | None = None,
    ) -> None:
        self._store = store
        self._encoder = encoder
        self._checkpoint_id = checkpoint_id
        self._folder = folder / hashlib.sha256(checkpoint_id.encode()).hexdigest()[:16]
        self._folder.mkdir(parents=True, exist_ok=True)
        self._memory: dict[str, VoicePrompt] = {}
        self._memory_voices = memory_voices
        self._locks: dict[str, asyncio.Lock] = {}
        self._prepare = prepare
        self._expected: list[Voice] = []
        self._preparing: set[asyncio.Task[None]] = set()

    def key(self, voice: Voice) -> str:
        """Equal for equal clip, transcript and checkpoint."""
        return hashlib.sha256(
            "\0".join((self._checkpoint_id, voice.clip, voice.transcript)).encode()
        ).hexdigest()[:32]

    async def of(self, voice: Voice) -> VoicePrompt:
        """The voice's prompt. Raises UnusablePromptSpeech, EngineNotReady or EngineDead if it cannot be encoded."""
        key = self.key(voice)
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            prompt = self._memory.pop(key, None) or self._read(key, voice.transcript)
            if prompt is None:
                samples, rate_hz = self._store.clip_samples(voice)
                made = await self._encoder.encode(samples, rate_hz, voice.transcript)
                prompt = VoicePrompt(
                    key, voice.transcript, made.speech_tokens, made.mel, made.speaker_embedding
                )
                self._write(prompt)
            self._memory[key] = prompt
            while len(self._memory) > self._memory_voices:
                self._memory.pop(next(iter(self._memory)))
        self._locks.pop(key, None)
        return prompt

    def expect(self, voice: Voice) -> None:
        """A listener may speak with this voice soon: encode it and prepare it for speech, while nobody waits.

        While the models are not up it is only remembered, for `prepare_expected`.
        """
        self._expected = [*(v for v in self._expected if v.id != voice.id), voice][-EXPECTED_VOICES:]
        self._begin(voice)

    def prepare_expected(self) -> None:
        """The models are up, perhaps once more: get those voices ready that were expected last."""
        for voice in self._expected:
            self._begin(voice)

    def _begin(self, voice: Voice) -> None:
        task = asyncio.create_task(self._get_ready(voice))
        self._preparing.add(task)
        task.add_done_callback(self._preparing.discard)

    async def _get_ready(self, voice: Voice) -> None:
        # Who asks for the voice meets the same error, and is the one to be told.
        with contextlib.suppress(StudioError):
            prompt = await self.of(voice)
            if self._prepare is not None:
                await self._prepare(prompt)

    def forget(self, voice: Voice) -> None:
        """Drop the stored prompt of a voice that was deleted."""
        key = self.key(voice)
        self._expected = [v for v in self._expected if v.id != voice.id]
        self._memory.pop(key, None)
        self._file(key).unlink(missing_ok=True)

    def _file(self, key: str) -> Path:
        return self._folder / f"{key}.safetensors"

    def _read(self, key: str, transcript: str) -> VoicePrompt | None:
        try:
            tensors = load_file(self._file(key))
            return VoicePrompt(
                key, transcript, tensors["speech_tokens"], tensors["mel"], tensors["speaker_embedding"]
            )
        except FileNotFoundError:
            return None
        except (SafetensorError, KeyError, ValueError):
            # A prompt can always be made again from its clip, so a damaged file is no error.
            self._file(key).unlink(missing_ok=True)
            return None

    def _write(self, prompt: VoicePrompt) -> None:
        partial = self._file(f"{prompt.key}.{uuid.uuid4().hex}")
        tensors = {
            "speech_tokens": prompt.speech_tokens,
            "mel": prompt.mel,
            "speaker_embedding": prompt.speaker_embedding,
        }
        save_file(tensors, partial)
        os.replace(partial, self._file(prompt.key))
