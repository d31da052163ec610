"""A blend lies between its voices, a moved clip sounds as it should, and both survive what their parts do not."""

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from studio.errors import InvalidRequest
from studio.library.blend import blend
from studio.library.design import design
from studio.library.prompts import VoicePrompts
from studio.library.store import VoiceStore
from studio.library.voice import Voice
from studio.speech import Float32, VoicePrompt

RATE_HZ = 24000


def tone(hertz: float, seconds: float = 2.0, rate_hz: int = RATE_HZ) -> Float32:
    """Five harmonics, so that it has a pitch as a voice has."""
    time = np.arange(int(seconds * rate_hz)) / rate_hz
    return sum(0.3 / n * np.sin(2 * np.pi * n * hertz * time) for n in range(1, 6)).astype(np.float32)


def pitch_of(samples: Float32, rate_hz: int) -> float:
    """Hertz by autocorrelation of the middle second."""
    middle = samples[len(samples) // 4 : -len(samples) // 4].astype(np.float64)
    spectrum = np.fft.rfft(middle, 2 * len(middle))
    likeness = np.fft.irfft(np.abs(spectrum) ** 2)[: len(middle)]
    low, high = rate_hz // 500, rate_hz // 60
    return rate_hz / (low + int(np.argmax(likeness[low:high])))


def cosine(a: Float32, b: Float32) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def unit(seed: int, length: float = 1.0) -> Float32:
    vector = np.random.default_rng(seed).standard_normal(192)
    return (length * vector / np.linalg.norm(vector)).astype(np.float32)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.8])
def test_blend_of_two_divides_the_arc_between_them(share: float) -> None:
    a, b = unit(1), unit(2)
    mixed = blend([a, b], [1 - share, share])
    whole, part = np.arccos(cosine(a, b)), np.arccos(cosine(a, mixed))
    assert part == pytest.approx(share * whole, abs=1e-3)
    assert np.arccos(cosine(b, mixed)) == pytest.approx((1 - share) * whole, abs=1e-3)


def test_blend_of_four_is_nearer_to_each_than_they_are_to_one_another() -> None:
    voices = [unit(seed) for seed in range(4)]
    mixed = blend(voices, [1, 1, 1, 1])
    nearest = max(cosine(a, b) for i, a in enumerate(voices) for b in voices[:i])
    assert min(cosine(mixed, v) for v in voices) > nearest


def test_blend_keeps_the_length_of_embeddings() -> None:
    assert np.linalg.norm(blend([unit(1, 10.0), unit(2, 14.0)], [1, 3])) == pytest.approx(13.0, abs=1e-3)


def test_blend_with_all_the_weight_on_one_is_that_one_and_opposites_do_not_break_it() -> None:
    np.testing.assert_allclose(blend([unit(1), unit(2)], [0, 1]), unit(2), atol=1e-6)
    assert np.isfinite(blend([unit(1), -unit(1)], [1, 1])).all()


class PitchEncoder:
    """The embedding points to where the clip's pitch is: equal pitches, equal voices."""

    async def encode(self, samples: Float32, sample_rate_hz: int, prompt_text: str) -> VoicePrompt:
        angle = pitch_of(samples, sample_rate_hz) / 400
        embedding = np.zeros(192, np.float32)
        embedding[:2] = np.cos(angle), np.sin(angle)
        n = len(samples) * 25 // sample_rate_hz
        return VoicePrompt(
            "", prompt_text, np.zeros(n, np.int32), np.zeros((2 * n, 80), np.float32), embedding
        )


@pytest.fixture
def store(tmp_path: Path) -> VoiceStore:
    store = VoiceStore(tmp_path)
    for name, hertz in (("Ada", 220.0), ("Bob", 110.0), ("Cy", 150.0)):
        store.add(tone(hertz), RATE_HZ, f"{name} speaks", name=name, language="en")
    return store


def prompt_of(store: VoiceStore, tmp_path: Path, voice: Voice) -> VoicePrompt:
    return asyncio.run(VoicePrompts(store, PitchEncoder(), tmp_path / "prompts", "one").of(voice))


def of_pitch(prompt: VoicePrompt) -> float:
    return float(400 * np.arctan2(prompt.speaker_embedding[1], prompt.speaker_embedding[0]))


def test_blend_speaks_with_the_prompt_of_one_and_an_embedding_between_all(
    store: VoiceStore, tmp_path: Path
) -> None:
    ada, bob = store.find("Ada"), store.find("Bob")
    made = store.insert(replace(design([(ada, 1), (bob, 3)], ada, {}), name="Mix"))
    prompt = prompt_of(store, tmp_path, made)
    assert prompt.prompt_text == "Ada speaks" and of_pitch(prompt) == pytest.approx(110 + 110 / 4, abs=2)
    assert prompt.key not in {prompt_of(store, tmp_path, v).key for v in (ada, bob)}


def test_saved_blend_survives_a_restart_and_the_deletion_of_its_parts(
    store: VoiceStore, tmp_path: Path
) -> None:
    ada, bob = store.find("Ada"), store.find("Bob")
    store.insert(replace(design([(ada, 1), (bob, 1)], ada, {}), name="Mix"))
    assert [v.name for v in store.blends_of(bob)] == ["Mix"]
    prompts = VoicePrompts(store, PitchEncoder(), tmp_path / "prompts", "one")
    for part in (ada, bob):
        prompts.forget(store.delete(part.id))
    store.close()
    again = VoiceStore(tmp_path)
    assert of_pitch(prompt_of(again, tmp_path, again.find("Mix"))) == pytest.approx(165, abs=2)
    again.delete("Mix")
    assert len(list((tmp_path / "clips").iterdir())) == 1


def test_design_begins_with_the_defaults_of_its_prompt(store: VoiceStore) -> None:
    ada = store.edit("Ada", defaults={"speed": 1.1, "pitch": -1.0})
    assert design([(ada, 1)], ada, {"pitch": 2, "speed": None}).defaults == {"pitch": 2.0}
    assert design([(ada, 1)], ada, {}).defaults == {"speed": 1.1, "pitch": -1.0}


def test_blend_of_blends_is_made_of_the_voices_themselves(store: VoiceStore) -> None:
    ada, bob, cy = (store.find(name) for name in ("Ada", "Bob", "Cy"))
    first = store.insert(design([(ada, 1), (bob, 1)], ada, {}))
    second = design([(first, 1), (ada, 1), (cy, 2)], ada, {})
    assert [(p.name, p.weight) for p in second.parts] == [("Ada", 0.375), ("Bob", 0.125), ("Cy", 0.5)]


def test_voice_alone_and_unmoved_is_no_blend(store: VoiceStore) -> None:
    ada = store.find("Ada")
    assert design([(ada, 1), (store.find("Bob"), 0)], ada, {}).parts == ()


@pytest.mark.parametrize(
    ("shares", "prompt", "pitch"),
    [
        ([], "Ada", 0),
        ([("Ada", 1), ("Ada", 1)], "Ada", 0),
        ([("Ada", -1), ("Bob", 2)], "Ada", 0),
        ([("Ada", float("nan"))], "Ada", 0),
        ([("Ada", float("inf"))], "Ada", 0),
        ([("Ada", 0)], "Ada", 0),
        ([("Ada", 1)], "Bob", 0),
        ([("Ada", 1)], "Ada", 6.5),
        ([("Ada", 1)], "Ada", float("nan")),
    ],
)
def test_impossible_design_is_refused(store: VoiceStore, shares: list, prompt: str, pitch: float) -> None:
    with pytest.raises(InvalidRequest):
        design([(store.find(name), w) for name, w in shares], store.find(prompt), {"pitch": pitch})
