"""Voice prompts of library voices, encoded once for each checkpoint and kept as safetensors. Runs no models itself."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from studio.errors import StudioError, UnusablePromptSpeech, VoiceNotFound
from studio.library.blend import blend
from studio.library.prompt_files import file_name, foreign_prompt, read_prompt, write_prompt
from studio.library.store import VoiceStore
from studio.library.voice import Source, Voice
from studio.protocols import PromptEncoder
from studio.speech import Float32, Int32, VoicePrompt

EXPECTED_VOICES = 4
MAX_ENCODES = 1
"""Clips encoded at once; each takes all threads of the worker, and speech waits meanwhile."""


class VoicePrompts:
    """Gives the VoicePrompt of a voice: from memory, from its file, or by encoding the clip now.

    fingerprint names the models that made a prompt; others get prompts of their own, in a folder of their own. prepare
    begins what the first row of a voice would wait for, and returns at once. model: whose presets these are.
    """

    def __init__(
        self,
        store: VoiceStore,
        encoder: PromptEncoder,
        folder: Path,
        fingerprint: str,
        memory_voices: int = 64,
        prepare: Callable[[VoicePrompt], Awaitable[None]] | None = None,
        model: str = "",
    ) -> None:
        self._store = store
        self._model = model
        self._encoder = encoder
        self._fingerprint = fingerprint
        self._all_folders = folder
        self._folder = folder / hashlib.sha256(fingerprint.encode()).hexdigest()[:16]
        self._folder.mkdir(parents=True, exist_ok=True)
        self._memory: dict[str, VoicePrompt] = {}  # by the name of its file, the latest used last
        self._memory_voices = memory_voices
        self._making: dict[str, asyncio.Task[VoicePrompt]] = {}
        self._encodes = asyncio.Semaphore(MAX_ENCODES)
        self._prepare = prepare
        self._expected: list[Voice] = []
        self._preparing: set[asyncio.Task[None]] = set()
        self._presets: dict[str, VoicePrompt] = {}  # by the voice's id

    def key(self, voice: Voice) -> str:
        """Equal for equal clips, transcripts, shares and models."""
        mixed = [f"{self._key(part.source)} {part.weight}" for part in voice.parts]
        return _digest(self._key(voice.source), *mixed) if mixed else self._key(voice.source)

    def _key(self, source: Source) -> str:
        return _digest(self._fingerprint, source.clip, source.transcript)

    async def of(self, voice: Voice) -> VoicePrompt:
        """The voice's prompt. Raises UnusablePromptSpeech, EngineNotReady or EngineDead if it cannot be encoded."""
        if voice.origin == "preset":
            if voice.id not in self._presets:
                raise UnusablePromptSpeech("voice.other_models_preset", param="voice", name=voice.name)
            return self._presets[voice.id]
        prompt = await self._of_source(voice.source)
        if not voice.parts:
            return prompt
        parts = [await self._of_source(part.source) for part in voice.parts]
        mixed = blend([p.speaker_embedding for p in parts], [p.weight for p in voice.parts])
        return replace(prompt, key=self.key(voice), speaker_embedding=mixed)

    def show_presets(self) -> None:
        """The models are up, perhaps once more: put the voices that the checkpoint brings along into the library."""
        task = asyncio.create_task(self._take_presets())
        self._preparing.add(task)
        task.add_done_callback(self._preparing.discard)

    async def _take_presets(self) -> None:
        # Not every worker that is ready can tell them; the one that can will be ready too.
        with contextlib.suppress(StudioError):
            prompts = await self._encoder.presets()
            voices = self._store.show_presets(prompts, self._model)
            self._presets = {voice.id: prompts[name] for name, voice in voices.items()}

    def hide_presets(self) -> None:
        """The models are gone for good, and their presets with them."""
        self._store.show_presets((), self._model)

    async def read_voices(self, data: bytes) -> dict[str, VoicePrompt]:
        """The voices of an upstream spk2info.pt by name, read where torch is. Raises CheckpointError, or as `of`."""
        return await self._encoder.read_voices(data)

    def keep_given(self, prompt: VoicePrompt) -> Source:
        """Keep a prompt that has no clip, for the present models only; gives the source that stands for it."""
        clip = hashlib.sha256(prompt.speaker_embedding.tobytes() + prompt.mel.tobytes()).hexdigest()[:32]
        source = Source(clip, prompt.prompt_text)
        write_prompt(self._folder / file_name(source), prompt)
        return source

    async def speech_tokens_of(self, samples: Float32, sample_rate_hz: int) -> Int32:
        """What a clip says as speech tokens, int32 [N]; nothing is kept of it. Raises as `of`."""
        async with self._encodes:
            return (await self._encoder.encode(samples, sample_rate_hz, "")).speech_tokens

    async def _of_source(self, source: Source) -> VoicePrompt:
        name = file_name(source)
        if (prompt := self._memory.get(name)) is not None:
            self._remember(name, prompt)
            return prompt
        making = self._making.get(name)
        if making is None:
            making = asyncio.create_task(self._make(name, source))
            self._making[name] = making
            making.add_done_callback(partial(self._made, name))
        # Whoever leaves does not end it for the others.
        return await asyncio.shield(making)

    async def _make(self, name: str, source: Source) -> VoicePrompt:
        file = self._folder / name
        prompt = await asyncio.to_thread(read_prompt, file, self._key(source), source.transcript)
        if prompt is None:
            async with self._encodes:
                if not self._is_used(source):  # deleted while it waited, and its clip with it
                    raise VoiceNotFound("voice.gone", param="voice")
                if not self._store.clips.file(source.clip).exists():
                    raise UnusablePromptSpeech("voice.other_models", param="voice")
                samples, rate_hz = await asyncio.to_thread(self._store.clips.samples, source.clip)
                made = await self._encoder.encode(samples, rate_hz, source.transcript)
            prompt = replace(made, key=self._key(source), prompt_text=source.transcript)
            await asyncio.to_thread(write_prompt, file, prompt)
            if not self._is_used(source):  # deleted meanwhile; who asked still gets it
                file.unlink(missing_ok=True)
                return prompt
        if self._is_used(source):
            self._remember(name, prompt)
        return prompt

    def _made(self, name: str, task: asyncio.Task[VoicePrompt]) -> None:
        del self._making[name]
        if not task.cancelled():
            task.exception()  # seen by whoever waits; if nobody does, asyncio need not complain

    def _is_used(self, source: Source) -> bool:
        return source in self._store.sources_of(source.clip)

    def _remember(self, name: str, prompt: VoicePrompt) -> None:
        self._memory.pop(name, None)
        self._memory[name] = prompt
        while len(self._memory) > self._memory_voices:
            self._memory.pop(next(iter(self._memory)))

    def expect(self, voice: Voice) -> None:
        """A listener may speak with this voice soon: encode it and prepare it for speech, while nobody waits.

        While the models are not up it is only remembered, for `prepare_expected`.
        """
        self._expected = [*(v for v in self._expected if v.id != voice.id), voice][-EXPECTED_VOICES:]
        self._begin(voice)

    def prepare_expected(self) -> None:
        """Models are up, perhaps once more: get those voices ready that were expected last."""
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
        """Drop every stored prompt of a deleted voice's clips, of all models, but for what other voices use."""
        self._expected = [v for v in self._expected if v.id != voice.id]
        for clip in {source.clip for source in voice.sources}:
            used = {file_name(source) for source in self._store.sources_of(clip)}
            for name in [n for n in self._memory if n.startswith(clip) and n not in used]:
                del self._memory[name]
            for file in self._all_folders.glob(f"*/{clip}-*.safetensors"):
                if file.name not in used:
                    file.unlink(missing_ok=True)

    def files_of(self, voice: Voice) -> list[Path]:
        """Where what was encoded for a voice lies, as far as it was; all of it by the present models."""
        files = [self._folder / file_name(source) for source in voice.sources]
        return [file for file in files if file.exists()]

    def take(self, voice: Voice, read: Callable[[str], bytes | None]) -> None:
        """Keep prompts that were encoded elsewhere by the same models, so that clips need not be encoded again.

        read gives the bytes of FOLDER/NAME as `files_of` has it, or None. What does not fit is left out.
        """
        for source in voice.sources:
            file = self._folder / file_name(source)
            data = None if file.exists() else read(f"{self._folder.name}/{file.name}")
            if data and (prompt := foreign_prompt(data, self._key(source), source.transcript)):
                write_prompt(file, prompt)


def _digest(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:32]
