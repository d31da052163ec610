"""`python -m studio.bench.modes [flags of app.py]`: starts the API without a page, and speaks in every mode it honours.

A line a mode: seconds of sound, level, time. Exit status 1 where one gave no sound. It does not judge how it sounds.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import httpx
import numpy as np

from studio.bench.figures import table
from studio.bench.load import ANSWER_TIMEOUT_S
from studio.bench.service import started
from studio.speech import SAMPLE_RATE_HZ, SAMPLES_PER_TOKEN

TEXT = "Hi."
SPOKEN: dict[str, dict[str, str]] = {
    "zero_shot": {"mode": "zero_shot"},
    "cross_lingual": {"mode": "cross_lingual", "input": "你好。"},
    "instruct": {"instructions": "Speak slowly."},
    "preset": {"mode": "preset"},
}


@dataclass(frozen=True, slots=True, eq=False)
class Spoken:
    """What a mode gave: int16 [n] at 24 kHz, empty where it was refused. error: the refusal."""

    mode: str
    samples: np.ndarray
    wall_s: float
    error: str = ""

    @property
    def is_sound(self) -> bool:
        """Whole tokens, and not silent."""
        return bool(len(self.samples) and not len(self.samples) % SAMPLES_PER_TOKEN and self.peak > 100)

    @property
    def peak(self) -> float:
        return float(np.abs(self.samples.astype(np.float64)).max(initial=0))

    def row(self) -> dict[str, object]:
        return {
            "mode": self.mode, "sound": "yes" if self.is_sound else "NO", "audio_s": len(self.samples) / SAMPLE_RATE_HZ,
            "peak": round(self.peak / 32768, 3), "wall_s": round(self.wall_s, 2), "error": self.error,
        }  # fmt: skip


async def every_mode(client: httpx.AsyncClient) -> AsyncIterator[Spoken]:
    """Each mode that the loaded model honours, over the API; a preset's only where the checkpoint has presets."""
    (model,) = (await client.get("/v1/models")).raise_for_status().json()["data"]
    voices = (await client.get("/v1/audio/voices")).raise_for_status().json()["data"]
    cloned = next(voice["id"] for voice in voices if voice["origin"] != "preset")
    presets = [voice["id"] for voice in voices if voice["origin"] == "preset"]
    for mode in model["modes"]:
        if mode == "conversion":
            form = {"voice": cloned, "response_format": "pcm"}
            clip = (await client.get(f"/v1/audio/voices/{cloned}/clip")).raise_for_status().content
            sent = client.post("/v1/audio/conversions", data=form, files={"audio_sample": clip})
        elif mode != "preset" or presets:
            body = {"input": TEXT, "voice": presets[0] if mode == "preset" else cloned, **SPOKEN[mode]}
            sent = client.post("/v1/audio/speech", json=body | {"seed": 1, "response_format": "pcm"})
        else:
            continue
        began_s = time.monotonic()
        reply = await sent
        samples = np.frombuffer(b"" if reply.is_error else reply.content, "<i2")
        yield Spoken(mode, samples, time.monotonic() - began_s, reply.text[:200] if reply.is_error else "")


async def run(flags: Sequence[str]) -> list[Spoken]:
    async with (
        started([*flags, "--page", "false"]) as service,
        httpx.AsyncClient(base_url=service.url, timeout=ANSWER_TIMEOUT_S) as client,
    ):
        print(f"ready after {service.ready_s:.1f} s")
        return [spoken async for spoken in every_mode(client)]


def main(flags: Sequence[str]) -> int:
    found = asyncio.run(run(flags))
    print(table([spoken.row() for spoken in found]))
    return 0 if found and all(spoken.is_sound for spoken in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
