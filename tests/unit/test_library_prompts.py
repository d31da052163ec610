"""A voice is encoded once for a checkpoint, whoever asks, and a damaged file heals itself."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from studio.errors import EngineNotReady, VoiceNotFound
from studio.library.prompts import VoicePrompts
from studio.library.store import VoiceStore
from studio.library.voice import Voice
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


class HeldEncoder(CountingEncoder):
    """Encodes once it is let go; knows how many it was asked for at once."""

    def __init__(self) -> None:
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        self.running = self.most = 0

    async def encode(self, samples: Float32, sample_rate_hz: int, prompt_text: str) -> VoicePrompt:
        self.running += 1
        self.most = max(self.most, self.running)
        self.begun.set()
        await self.go.wait()
        self.running -= 1
        return await super().encode(samples, sample_rate_hz, prompt_text)


def stored(folder: Path) -> list[str]:
    return sorted(p.name for p in (folder / "prompts").rglob("*") if p.is_file())


def test_voice_deleted_while_it_is_encoded_leaves_nothing_behind(
    voice: tuple[VoiceStore, Voice], tmp_path: Path
) -> None:
    store, ada = voice
    encoder = HeldEncoder()
    prompts = VoicePrompts(store, encoder, tmp_path / "prompts", "one")

    async def delete_meanwhile() -> VoicePrompt:
        asking = asyncio.create_task(prompts.of(ada))
        await encoder.begun.wait()
        prompts.forget(store.delete(ada.id))
        encoder.go.set()
        return await asking

    assert asyncio.run(delete_meanwhile()).key == prompts.key(ada)
    assert not stored(tmp_path) and not prompts._memory and not prompts._making


def test_deleted_voice_loses_its_prompts_of_every_checkpoint_and_of_its_drafts(
    voice: tuple[VoiceStore, Voice], tmp_path: Path
) -> None:
    store, ada = voice
    draft, other = store.add(CLIP, 24000, "helo"), store.add(CLIP * 0.5, 24000, "bye", name="Bob")
    both = [VoicePrompts(store, CountingEncoder(), tmp_path / "prompts", name) for name in ("one", "two")]
    for prompts in both:
        for wanted in (ada, draft, other):
            asyncio.run(prompts.of(wanted))
    assert len(stored(tmp_path)) == 6
    both[1].forget(store.delete(ada.id))
    assert len(stored(tmp_path)) == 2 and all(name.startswith(other.clip) for name in stored(tmp_path))
    assert len(both[1]._memory) == 1


def test_prompt_that_another_voice_uses_stays(voice: tuple[VoiceStore, Voice], tmp_path: Path) -> None:
    store, ada = voice
    store.add(CLIP, 24000, "hello", name="Twin")
    prompts = VoicePrompts(store, CountingEncoder(), tmp_path / "prompts", "one")
    asyncio.run(prompts.of(ada))
    prompts.forget(store.delete(ada.id))
    assert len(stored(tmp_path)) == 1 and len(prompts._memory) == 1


def test_clips_are_encoded_one_after_another(tmp_path: Path) -> None:
    store = VoiceStore(tmp_path)
    voices = [store.add(CLIP * (0.1 + n / 10), 24000, "hello") for n in range(3)]
    encoder = HeldEncoder()
    prompts = VoicePrompts(store, encoder, tmp_path / "prompts", "one")

    async def ask() -> None:
        asking = [asyncio.create_task(prompts.of(v)) for v in voices]
        await encoder.begun.wait()
        encoder.go.set()
        await asyncio.gather(*asking)

    asyncio.run(ask())
    assert (encoder.calls, encoder.most) == (3, 1)


def test_asker_who_leaves_does_not_end_the_encode_for_others(
    voice: tuple[VoiceStore, Voice], tmp_path: Path
) -> None:
    store, ada = voice
    encoder = HeldEncoder()
    prompts = VoicePrompts(store, encoder, tmp_path / "prompts", "one")

    async def leave() -> VoicePrompt:
        first, second = (asyncio.create_task(prompts.of(ada)) for _ in range(2))
        await encoder.begun.wait()
        first.cancel()
        encoder.go.set()
        return await second

    assert asyncio.run(leave()).prompt_text == "hello" and encoder.calls == 1


def test_failed_encode_is_tried_again_by_the_next_asker(
    voice: tuple[VoiceStore, Voice], tmp_path: Path
) -> None:
    store, ada = voice
    encoder = EncoderThatStarts()
    prompts = VoicePrompts(store, encoder, tmp_path / "prompts", "one")

    async def twice() -> None:
        with pytest.raises(EngineNotReady):
            await prompts.of(ada)
        assert not prompts._making
        encoder.ready = True
        await prompts.of(ada)

    asyncio.run(twice())
    assert encoder.calls == 1


def test_voice_deleted_while_its_clip_waits_in_line_is_told_as_unknown(tmp_path: Path) -> None:
    store = VoiceStore(tmp_path)
    first, second = (store.add(CLIP * level, 24000, "hello") for level in (0.5, 0.9))
    encoder = HeldEncoder()
    prompts = VoicePrompts(store, encoder, tmp_path / "prompts", "one")

    async def delete_the_second() -> None:
        encoded = asyncio.create_task(prompts.of(first))
        await encoder.begun.wait()  # asked together, either might be the one that waits
        waiting = asyncio.create_task(prompts.of(second))
        await asyncio.sleep(0)
        prompts.forget(store.delete(second.id))
        encoder.go.set()
        with pytest.raises(VoiceNotFound):
            await waiting
        await encoded

    asyncio.run(delete_the_second())
