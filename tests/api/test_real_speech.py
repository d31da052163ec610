"""The service on the real engine with the embedded voice, as OpenAI's client meets it."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import openai
import pytest
import soundfile

from tests.real_studio import ROOT, RealStudio

CLIP = ROOT / "tests" / "fixtures" / "prompts" / "am_onyx_en.flac"
TRANSCRIPT = "Every spring my neighbor plants sunflowers along the wooden fence behind her house."
SAMPLES_PER_TOKEN = 960


@pytest.fixture
def client(studio: RealStudio) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{studio.url}/v1", api_key="any", max_retries=0, timeout=240)


def speak(client: openai.OpenAI, text: str, voice: str = "Clara", seed: int = 1) -> np.ndarray:
    """Samples of a streamed reply, float32 at 24 kHz."""
    asked = client.audio.speech.with_streaming_response.create(
        model="any", voice=voice, input=text, response_format="pcm", extra_body={"seed": seed}
    )
    with asked as reply:
        data = b"".join(reply.iter_bytes())
    return np.frombuffer(data, "<i2").astype(np.float32) / 32768


def test_speech_is_whole_tokens_and_sounds(client: openai.OpenAI) -> None:
    samples = speak(client, "The weather is fine today.")
    assert len(samples) > 24000 and len(samples) % SAMPLES_PER_TOKEN == 0
    assert np.abs(samples).max() > 0.05 and np.isfinite(samples).all()


def test_wav_and_pcm_of_one_seed_are_the_same_sound(client: openai.OpenAI) -> None:
    text = "Once in each format."
    file = client.audio.speech.create(
        model="any", voice="Clara", input=text, response_format="wav", extra_body={"seed": 1}
    ).content
    samples, rate_hz = soundfile.read(io.BytesIO(file), dtype="float32")
    assert rate_hz == 24000
    np.testing.assert_allclose(samples, speak(client, text), atol=1e-3)


def test_posted_voice_speaks_by_name_and_by_id(client: openai.OpenAI, studio: RealStudio) -> None:
    form = {"name": "Oskar", "ref_text": TRANSCRIPT, "consent": "synthetic"}
    with CLIP.open("rb") as clip:
        made = httpx.post(
            f"{studio.url}/v1/audio/voices", data=form, files={"audio_sample": clip}, timeout=60
        ).json()
    try:
        named, by_id = (speak(client, "Good evening.", voice) for voice in ("Oskar", made["id"]))
        np.testing.assert_allclose(named, by_id, atol=1e-3)
    finally:
        httpx.delete(f"{studio.url}/v1/audio/voices/Oskar")


def test_requests_at_once_each_come_to_their_end(client: openai.OpenAI, studio: RealStudio) -> None:
    texts = ("Short.", "This one is somewhat longer than that.", "你好，世界。")
    with ThreadPoolExecutor(len(texts)) as pool:
        sounds = list(pool.map(lambda text: speak(client, text), texts))
    assert all(len(samples) and len(samples) % SAMPLES_PER_TOKEN == 0 for samples in sounds)
    assert len(sounds[1]) > len(sounds[0])
    studio.wait_idle()


def test_retake_reads_its_whole_prompt_but_the_last_block_from_the_prefix_cache(studio: RealStudio) -> None:
    """Every whole block of 32 tokens before the last token; another text shares the voice's transcript alone."""

    def share(text: str, seed: int) -> tuple[float, float]:
        before = [studio.metric(f"studio_prefix_cache_{name}_tokens_total") for name in ("hits", "queries")]
        body = {"input": text, "voice": "Clara", "response_format": "pcm", "seed": seed, "quality": "fast"}
        assert httpx.post(f"{studio.url}/v1/audio/speech", json=body, timeout=240).status_code == 200
        studio.wait_idle()
        after = [studio.metric(f"studio_prefix_cache_{name}_tokens_total") for name in ("hits", "queries")]
        return after[0] - before[0], after[1] - before[1]

    text = "The lamp in the old tower was lit before the evening came."
    hits, asked = share(text, 1)
    again, asked_again = share(text, 2)
    print(f"first {hits:.0f}, again {again:.0f} of {asked:.0f} prompt tokens")
    assert asked_again == asked and again == (asked - 1) // 32 * 32 and again / asked > 0.8
    assert hits < again


def test_embedded_voice_speaks_in_the_modes_that_it_names_and_refuses_the_others(studio: RealStudio) -> None:
    (model,) = httpx.get(f"{studio.url}/v1/models").json()["data"]
    assert (model["sound_tags"], model["interleaved_text"]) == ([], False)
    body = {"input": "你好，世界。", "voice": "Clara", "response_format": "pcm", "seed": 1}
    for mode in ("zero_shot", "cross_lingual"):
        assert mode in model["modes"]
        reply = httpx.post(f"{studio.url}/v1/audio/speech", json=body | {"mode": mode}, timeout=240)
        assert reply.status_code == 200 and len(reply.content) > 24000
    for refused in ({"instructions": "sadly"}, {"input": "Well [laughter] no."}, {"mode": "preset"}):
        reply = httpx.post(f"{studio.url}/v1/audio/speech", json=body | refused)
        assert reply.status_code == 400 and reply.json()["error"]["message"], refused


def test_clip_is_said_by_another_voice_in_the_clip_s_time(studio: RealStudio) -> None:
    form = {"voice": "Hugh", "response_format": "pcm"}
    with CLIP.open("rb") as clip:
        files = {"audio_sample": clip}
        reply = httpx.post(f"{studio.url}/v1/audio/conversions", data=form, files=files, timeout=240)
    samples = np.frombuffer(reply.content, "<i2").astype(np.float32) / 32768
    seconds = soundfile.info(CLIP).duration
    assert reply.status_code == 200 and 0.5 * seconds < len(samples) / 24000 <= seconds
    assert np.abs(samples).max() > 0.05
    studio.wait_idle()


def test_listener_who_leaves_gives_everything_back(client: openai.OpenAI, studio: RealStudio) -> None:
    long = "The old lighthouse keeper climbed the narrow stairs every evening. " * 8
    with client.audio.speech.with_streaming_response.create(
        model="any", voice="Clara", input=long, response_format="pcm"
    ) as reply:
        chunks = reply.iter_bytes()
        next(chunks)
        assert studio.metric("studio_requests_running") == 1
    studio.wait_idle()


def test_bad_requests_are_refused_before_any_work(client: openai.OpenAI, studio: RealStudio) -> None:
    before = studio.metric("studio_kv_cache_usage_ratio")
    with pytest.raises(openai.BadRequestError, match="no text to speak"):
        speak(client, " ")
    with pytest.raises(openai.NotFoundError, match="no voice named"):
        speak(client, "Hello.", "Nobody")
    assert studio.metric("studio_kv_cache_usage_ratio") == before == 0


def test_takes_of_the_real_voice_are_compared_and_are_like_their_clip(studio: RealStudio) -> None:
    """Without a recogniser here: likeness is by the real ears, and words are said to be unchecked."""
    body = {"voice": "Clara", "input": "The weather is fine today.", "takes": 2, "seed": 1}
    found = httpx.post(f"{studio.url}/v1/audio/speech/best", json=body, timeout=240).json()
    assert found["best"] == max(found["takes"], key=lambda take: take["likeness"])["id"]
    for take in found["takes"]:
        assert take["likeness"] > 0.5 and take["word_error_ratio"] is None and take["marks"] == []
        assert "no recogniser" in take["summary"] and take["reasons"] == ["Nothing wrong was found."]
