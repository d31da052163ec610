"""The clip doctor: what is good, doubtful or bad about a clip to clone, and what to do. Measures and mends nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from studio.audio.check import BEST_PART_S, judge_clip
from studio.audio.decode import ReferenceClip
from studio.audio.measure import Measures, measure
from studio.errors import UnusablePromptSpeech
from studio.messages import render

Severity = Literal["green", "amber", "red"]
ORDER: tuple[Severity, ...] = ("green", "amber", "red")
MENDED = ("speech", "level", "noise", "silence", "stereo")
"""Topics that `mend` can better. Clipped tops, lost frequencies and second speakers it cannot."""

SHORT_SPEECH_S = 3.0
QUIET_DB, FAINT_DB = -34.0, -44.0
CLIPPED_RATIO, OVERDRIVEN_RATIO = 0.0005, 0.005
NOISY_DB, DROWNED_DB = 22.0, 10.0
DULL_HZ, TELEPHONE_HZ = 6500.0, 4500.0
LONG_SILENCE_S = 1.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One topic of a clip. The sentence of the catalogue is doctor.TOPIC.SEVERITY, or `key` where that is given."""

    topic: str
    severity: Severity
    values: dict[str, object] = field(default_factory=dict)
    key: str = ""

    def message(self, language: str = "en") -> str:
        return render(self.key or f"doctor.{self.topic}.{self.severity}", language, **self.values)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings. usable: whether the clip can be cloned as it is."""

    findings: tuple[Finding, ...]
    usable: bool

    @property
    def severity(self) -> Severity:
        return max((f.severity for f in self.findings), key=ORDER.index)

    @property
    def mendable(self) -> bool:
        """Whether one click betters it: something that `mend` can, in a clip that has speech."""
        return any(
            f.topic in MENDED and f.severity != "green" and f.key in ("", "clip.too_long") for f in self.findings
        )


def diagnose(clip: ReferenceClip, speakers: int | None = None) -> Diagnosis:
    """Judge a decoded clip.

    Args:    speakers: how many were heard in it; None if nobody could tell, and then nothing is said.
    """
    found = measure(clip)
    try:
        judge_clip(clip)
        refused = None
    except UnusablePromptSpeech as error:
        refused = Finding("speech", "red", dict(error.values), error.key)
    if found is None or (refused and refused.key == "clip.low_rate"):
        assert refused is not None
        return Diagnosis((refused,), False)
    findings = [
        refused or _speech(found),
        _step("level", -found.level_db, -QUIET_DB, -FAINT_DB, level=found.level_db),
        _step("clipping", found.clipped_ratio, CLIPPED_RATIO, OVERDRIVEN_RATIO, percent=100 * found.clipped_ratio),
        _step("noise", -found.snr_db, -NOISY_DB, -DROWNED_DB, snr=found.snr_db),
        _silence(found),
    ]
    if found.snr_db >= NOISY_DB:  # noise covers the weak high frequencies
        band = {"khz": found.bandwidth_hz / 1000}
        findings.append(_step("bandwidth", -found.bandwidth_hz, -DULL_HZ, -TELEPHONE_HZ, **band))
    if found.antiphase:
        findings.append(Finding("stereo", "amber"))
    if speakers is not None and found.snr_db >= DROWNED_DB and found.bandwidth_hz >= TELEPHONE_HZ:
        # a voice that drowns, or comes through a telephone, sounds like others
        findings.append(Finding("speakers", "amber" if speakers > 1 else "green"))
    return Diagnosis(tuple(findings), refused is None)


def _step(topic: str, badness: float, amber: float, red: float, **values: object) -> Finding:
    return Finding(topic, "red" if badness > red else "amber" if badness > amber else "green", values)


def _speech(found: Measures) -> Finding:
    values: dict[str, object] = {"seconds": found.speech_s}
    if found.speech_s < SHORT_SPEECH_S:
        return Finding("speech", "amber", values, "doctor.speech.short")
    if found.span_s > BEST_PART_S:
        return Finding("speech", "amber", {"seconds": found.span_s})
    return Finding("speech", "green", values)


def _silence(found: Measures) -> Finding:
    longest_s = max(found.head_s, found.tail_s)
    severity: Severity = "amber" if longest_s > LONG_SILENCE_S else "green"
    return Finding("silence", severity, {"head": found.head_s, "tail": found.tail_s})
