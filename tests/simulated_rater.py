"""People of listening tests, simulated over HTTP: an owner who designs, raters who hear and answer by their taste."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
import soundfile

RATE_HZ = 24_000


def tone(hertz: float, seconds: float = 0.6, level: float = 0.3, rate_hz: int = RATE_HZ) -> bytes:
    """A WAV file with a tone that swells and falls."""
    time = np.arange(int(seconds * rate_hz)) / rate_hz
    samples = level * np.sin(2 * np.pi * hertz * time) * np.sin(np.pi * time / seconds)
    buffer = io.BytesIO()
    soundfile.write(buffer, samples.astype(np.float32), rate_hz, format="WAV", subtype="PCM_16")
    return buffer.getvalue()


def pitch_of(wav: bytes) -> float:
    """The loudest frequency, by which a test knows the condition that a rater must not."""
    samples, rate_hz = soundfile.read(io.BytesIO(wav), dtype="float32")
    spectrum = np.abs(np.fft.rfft(samples, 1 << 16))
    return float(np.argmax(spectrum)) * rate_hz / (1 << 16)


class Owner:
    """A browser that makes tests; its cookie is its key."""

    def __init__(self, url: str, **how: Any) -> None:
        self.http = httpx.Client(base_url=url, timeout=60, **how)

    def create(self, **design: Any) -> dict[str, Any]:
        reply = self.http.post("/v1/listening/tests", json=design)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def upload(self, test: str, condition: str, files: Mapping[str, bytes]) -> httpx.Response:
        parts = [("files", (name, content)) for name, content in files.items()]
        return self.http.post(f"/v1/listening/tests/{test}/material", data={"condition": condition}, files=parts)

    def do(self, test: str, verb: str, **body: Any) -> httpx.Response:
        return self.http.post(f"/v1/listening/tests/{test}/{verb}", json=body)

    def show(self, test: str) -> dict[str, Any]:
        return self.http.get(f"/v1/listening/tests/{test}").json()

    def invite(self, test: str, **body: Any) -> list[str]:
        reply = self.do(test, "invitations", **body)
        assert reply.status_code == 200, reply.text
        return [one["token"] for one in reply.json()["data"]]

    def opened(self, pitches: Mapping[str, float], items: int = 3, **design: Any) -> tuple[str, str]:
        """A test whose conditions are tones, open; its id and a link's token."""
        conditions = [{"name": name} for name in pitches]
        design = {"title": "tones", "headphones": "off", "seed": 7, "conditions": conditions} | design
        test = self.create(**design)["id"]
        for place, (name, hertz) in enumerate(pitches.items()):
            files = {f"s{n:02d}.wav": tone(hertz, 0.5 + 0.05 * n + 0.01 * place) for n in range(1, items + 1)}
            assert self.upload(test, name, files).status_code == 200
        reply = self.do(test, "open")
        assert reply.status_code == 200, reply.text
        return test, self.invite(test)[0]


Taste = Callable[[str, dict[str, Any], list[bytes], bytes | None], dict[str, Any]]
"""Kind, trial, sounds of the slots, and of reference or X, to what is sent as the answer."""


@dataclass
class SimulatedRater:
    """Hears everything, lets the clips' time pass on the service's clock, answers by taste."""

    url: str
    token: str
    pass_time: Callable[[float], None]
    taste: Taste
    http: httpx.Client = field(init=False)
    traffic: list[httpx.Response] = field(default_factory=list)

    def __post_init__(self) -> None:
        hooks = {"response": [self.traffic.append]}
        self.http = httpx.Client(base_url=f"{self.url}/listen/{self.token}", timeout=60, event_hooks=hooks)

    def join(self) -> dict[str, Any]:
        self.http.get("")
        self.http.get("/state")
        reply = self.http.post("/join", json={"consent": True})
        assert reply.status_code == 200, reply.text
        return reply.json()

    def hear(self, trial: dict[str, Any]) -> tuple[list[bytes], bytes | None]:
        """Fetch every sound of a trial, as the page does, and take the time to hear them."""
        slots = [self.http.get(f"/clip/{address}").content for address in trial["slots"]]
        other = trial["reference"] or trial["x"]
        extra = self.http.get(f"/clip/{other}").content if other else None
        self.pass_time(trial["hear_s"] * (len(slots) + (extra is not None)))
        return slots, extra

    def answer(self, view: dict[str, Any]) -> dict[str, Any]:
        """One trial, from its sounds to the next view."""
        trial = view["trial"]
        slots, extra = self.hear(trial)
        body = {"number": trial["number"], "seconds": 2.0} | self.taste(view["kind"], trial, slots, extra)
        reply = self.http.post("/answer", json=body)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def finish(self, trials: int | None = None) -> dict[str, Any]:
        """Join and answer to the end, or so many trials."""
        view, answered = self.join(), 0
        while view["phase"] == "trial" and answered != trials:
            view = self.answer(view)
            answered += 1
        return view


def higher_is_better(kind: str, trial: dict[str, Any], slots: list[bytes], extra: bytes | None) -> dict[str, Any]:
    """A taste that tells tones by their pitch, and obeys traps."""
    pitches = [pitch_of(sound) for sound in slots]
    told = trial["check"]
    if kind == "intelligibility":
        return {"typed": f"{told:.0f}" if told is not None else "good morning"}
    if told is not None:
        return {"scores": [told] * (1 if kind in ("cmos", "ab", "abx") else len(slots))}
    if kind == "abx":
        assert extra is not None
        gaps = [abs(pitch - pitch_of(extra)) for pitch in pitches]
        return {"scores": [float(gaps[1] < gaps[0])]}
    if kind == "ab":
        return {"scores": [float(pitches[1] > pitches[0])]}
    if kind == "cmos":
        return {"scores": [2 if pitches[1] > pitches[0] else -2]}
    if kind in ("mushra", "mushra_nmr"):
        ranks = np.argsort(np.argsort(pitches))
        return {"scores": [float(20 + 10 * rank) for rank in ranks]}
    low = 4 if kind == "mos" else 3
    return {"scores": [low if pitch > 500 else 2 for pitch in pitches]}


def fingerprint(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
