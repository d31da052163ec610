"""A blended voice on the real engine: what is heard lies between the voices that it is made of."""

from __future__ import annotations

import httpx
import numpy as np

from studio.models.prompt.encoder import OnnxPromptEncoder
from studio.speech import Float32
from tests.real_studio import ROOT, RealStudio

TEXT = "On Friday at seven we meet at the old lighthouse near the harbor."
VOICES = ("Clara", "Owen")


def heard(studio: RealStudio, share: float) -> Float32:
    """The voice blended with this share of Owen, saying the text with Clara's prompt."""
    weights = [{"voice": name, "weight": w} for name, w in zip(VOICES, (1 - share, share), strict=True)]
    design = httpx.post(
        f"{studio.url}/v1/audio/voice-designs", json={"voices": weights, "prompt": VOICES[0]}, timeout=60
    )
    spoken = {"input": TEXT, "voice": design.json()["id"], "response_format": "pcm", "seed": 1}
    reply = httpx.post(f"{studio.url}/v1/audio/speech", json=spoken, timeout=240)
    assert reply.status_code == 200, reply.text
    return np.frombuffer(reply.content, "<i2").astype(np.float32) / 32768


def test_speech_of_a_blend_lies_between_that_of_its_voices(studio: RealStudio) -> None:
    encoder = OnnxPromptEncoder(ROOT / "assets" / "voice", threads=1)

    def embedding(share: float) -> Float32:
        found = encoder.encode(heard(studio, share), 24_000, TEXT).speaker_embedding
        return found / np.linalg.norm(found)

    clara, blend, owen = (embedding(share) for share in (0.0, 0.5, 1.0))
    assert clara @ owen < clara @ blend < 1
    assert clara @ owen < blend @ owen < 1
