"""Talks to a running service over HTTP: makes voices and times streamed speech. Never retries."""

from __future__ import annotations

import time
from dataclasses import dataclass

import httpx
import numpy as np

from studio.evaluate.texts import Prompt

SAMPLE_RATE_HZ = 24000
# The slowest item on the slowest machine we care about; beyond it the item counts as failed.
ANSWER_TIMEOUT_S = 300.0
VOICE_NAME_PREFIX = "evaluation "
CONSENT = "Evaluation clip of the repository; see tests/fixtures/prompts/NOTICE."


@dataclass(frozen=True, slots=True)
class Utterance:
    """The sound of one request and when it came, counted from sending the request."""

    samples: np.ndarray  # float32 [N] at 24 kHz
    ttfa_s: float
    wall_s: float

    @property
    def audio_s(self) -> float:
        return len(self.samples) / SAMPLE_RATE_HZ


class ServiceClient:
    """One service under test, asked for one thing at a time."""

    def __init__(self, url: str, api_key: str = "", transport: httpx.BaseTransport | None = None) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._http = httpx.Client(
            base_url=url, headers=headers, timeout=ANSWER_TIMEOUT_S, transport=transport
        )

    def close(self) -> None:
        self._http.close()

    def model_id(self) -> str:
        """Id of the first served model."""
        return self._http.get("/v1/models").raise_for_status().json()["data"][0]["id"]

    def voice_for(self, prompt: Prompt) -> str:
        """Id of the library's voice for a prompt, made now unless an earlier run has left it.

        Raises:  httpx.HTTPStatusError if the service refuses the clip.
        """
        name = VOICE_NAME_PREFIX + prompt.id
        for voice in self._http.get("/v1/audio/voices").raise_for_status().json()["data"]:
            if voice["name"] == name and voice["ref_text"] == prompt.transcript:
                return voice["id"]
        answer = self._http.post(
            "/v1/audio/voices",
            data={
                "name": name,
                "ref_text": prompt.transcript,
                "language": prompt.language,
                "consent": CONSENT,
            },
            files={"audio_sample": (prompt.path.name, prompt.path.read_bytes(), "audio/flac")},
        )
        return answer.raise_for_status().json()["id"]

    def speak(self, text: str, voice: str, seed: int, settings: dict[str, float] | None = None) -> Utterance:
        """Stream one utterance.

        Raises:  httpx.HTTPError if the service refuses, breaks off or says nothing.
        """
        body = {"input": text, "voice": voice, "seed": seed, "response_format": "pcm", **(settings or {})}
        chunks, ttfa_s = [], None
        start = time.monotonic()
        with self._http.stream("POST", "/v1/audio/speech", json=body) as answer:
            if answer.is_error:
                answer.read()
                raise httpx.HTTPStatusError(
                    f"{answer.status_code}: {answer.text[:300]}", request=answer.request, response=answer
                )
            for chunk in answer.iter_bytes():
                if chunk and ttfa_s is None:
                    ttfa_s = time.monotonic() - start
                chunks.append(chunk)
        wall_s = time.monotonic() - start
        pcm = b"".join(chunks)
        if ttfa_s is None or len(pcm) % 2:
            raise httpx.RemoteProtocolError(f"{len(pcm)} bytes of 16-bit sound")
        return Utterance(np.frombuffer(pcm, "<i2").astype(np.float32) / 32768, ttfa_s, wall_s)
