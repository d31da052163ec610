"""A voice is encoded once for a checkpoint, whoever asks, and a damaged file heals itself."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from studio.errors import EngineNotReady
from studio.library.prompts import VoicePrompts
from studio.library.store import Voice, VoiceStore
from studio.speech import Float32, VoicePrompt

CLIP = np.sin(np.arange(24000, dtype=np.float32) / 20).astype(np.float32) * 0.5


class CountingEncoder:
    calls = 0

    async def encode(self, samples: Float32, sample_rate_hz: int, prompt_text: str) -> VoicePrompt:
        self.calls += 1
        await asyncio.sleep(0)
        n = len(samples) // 960
        return VoicePrompt(
            "",
            prompt_text,
            np.arange(n, dtype=np.int32),
            np.ones((2 * n, 80), np.float32),
            np.ones(192, np.float32),
        )


@pytest.fixture
def voice(tmp_path: Path) -> tuple[VoiceStore, Voice]:
    store = VoiceStore(tmp_path)
    return store, store.add(CLIP, 24000, "hello", name="Ada")


def test_many_askers_at_once_encode_once(voice: tuple[VoiceStore, Voice], tmp_path: Path) -> None:
    store, ada = voice
    encoder = CountingEncoder()
    prompts = VoicePrompts(store, encoder, tmp_path / "prompts", "one")

    async def ask() -> list[VoicePrompt]:
        return await asyncio.gather(*(prompts.of(ada) for _ in range(5)))

    found = asyncio.run(ask())
    assert encoder.calls == 1 and len({p.key for p in found}) == 1


def test_prompt_is_read_from_its_file_after_a_restart(
    voice: tuple[VoiceStore, Voice], tmp_path: Path
) -> None:
    store, ada = voice
    asyncio.run(VoicePrompts(store, CountingEncoder(), tmp_path / "prompts", "one").of(ada))
    encoder = CountingEncoder()
    again = asyncio.run(VoicePrompts(store, encoder, tmp_path / "prompts", "one").of(ada))
    assert encoder.calls == 0 and again.prompt_text == "hello"


def test_another_checkpoint_encodes_anew(voice: tuple[VoiceStore, Voice], tmp_path: Path) -> None:
    store, ada = voice
    encoder = CountingEncoder()
    for name in ("one", "two"):
        asyncio.run(VoicePrompts(store, encoder, tmp_path / "prompts", name).of(ada))
    assert encoder.calls == 2


def test_damaged_prompt_file_is_made_again(voice: tuple[VoiceStore, Voice], tmp_path: Path) -> None:
    store, ada = voice
    encoder = CountingEncoder()
    asyncio.run(VoicePrompts(store, encoder, tmp_path / "prompts", "one").of(ada))
    for file in (tmp_path / "prompts").rglob("*.safetensors"):
        file.write_bytes(b"broken")
    asyncio.run(VoicePrompts(store, encoder, tmp_path / "prompts", "one").of(ada))
    assert encoder.calls == 2


def test_memory_keeps_the_latest_voices_only(tmp_path: Path) -> None:
    store = VoiceStore(tmp_path)
    voices = [store.add(CLIP * (0.1 + i / 10), 24000, "hello", name=str(i)) for i in range(3)]
    prompts = VoicePrompts(store, CountingEncoder(), tmp_path / "prompts", "one", memory_voices=2)
    for voice in voices:
        asyncio.run(prompts.of(voice))
    assert len(prompts._memory) == 2


class Preparing:
    """Remembers the prompts it was told to prepare."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    async def __call__(self, prompt: VoicePrompt) -> None:
        self.keys.append(prompt.key)


class EncoderThatStarts(CountingEncoder):
    ready = False

    async def encode(self, samples: Float32, sample_rate_hz: int, prompt_text: str) -> VoicePrompt:
        if not self.ready:
            raise EngineNotReady("engine.failed", reason="starting")
        return await super().encode(samples, sample_rate_hz, prompt_text)


async def idle(prompts: VoicePrompts) -> None:
    await asyncio.gather(*prompts._preparing)


def test_expected_voice_is_encoded_and_prepared_while_nobody_waits(
    voice: tuple[VoiceStore, Voice], tmp_path: Path
) -> None:
    store, ada = voice
    encoder, preparing = CountingEncoder(), Preparing()
    prompts = VoicePrompts(store, encoder, tmp_path / "prompts", "one", prepare=preparing)

    async def listen() -> VoicePrompt:
        prompts.expect(ada)
        prompt = await prompts.of(ada)
        await idle(prompts)
        return prompt

    prompt = asyncio.run(listen())
    assert encoder.calls == 1 and preparing.keys == [prompt.key]


def test_voice_expected_before_the_models_are_up_is_prepared_then_and_after_a_restart(
    voice: tuple[VoiceStore, Voice], tmp_path: Path
) -> None:
    store, ada = voice
    encoder, preparing = EncoderThatStarts(), Preparing()
    prompts = VoicePrompts(store, encoder, tmp_path / "prompts", "one", prepare=preparing)

    async def start_twice() -> None:
        prompts.expect(ada)
        await idle(prompts)
        assert not preparing.keys
        encoder.ready = True
        for _ in range(2):
            prompts.prepare_expected()
            await idle(prompts)

    asyncio.run(start_twice())
    assert preparing.keys == 2 * [prompts.key(ada)] and encoder.calls == 1


def test_deleted_voice_is_expected_no_more(voice: tuple[VoiceStore, Voice], tmp_path: Path) -> None:
    store, ada = voice
    preparing = Preparing()
    prompts = VoicePrompts(store, CountingEncoder(), tmp_path / "prompts", "one", prepare=preparing)

    async def delete() -> None:
        prompts.expect(ada)
        await idle(prompts)
        prompts.forget(store.delete(ada.id))
        prompts.prepare_expected()
        await idle(prompts)

    asyncio.run(delete())
    assert len(preparing.keys) == 1
