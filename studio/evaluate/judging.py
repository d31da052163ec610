"""Turns one utterance into one row: hears it, compares it with its prompt, rates it. Asks no service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import soundfile
import soxr

from studio.evaluate.asr import ASR_RATE_HZ, Listener, count_errors
from studio.evaluate.client import SAMPLE_RATE_HZ, Utterance
from studio.evaluate.dnsmos import QualityJudge
from studio.evaluate.results import Row, pack_similarities
from studio.evaluate.scoring import best_match, has_gone_wrong
from studio.evaluate.similarity import VoiceJudge, median_pitch_hz
from studio.evaluate.texts import Item, Prompt, expected_seconds


@dataclass(frozen=True, slots=True)
class HeardPrompt:
    """What the judges say of a prompt itself."""

    embedding: np.ndarray  # float32 [256], unit
    pitch_hz: float | None


def read_clip(path: str) -> np.ndarray:
    """A clip as float32 [N] at 16 kHz, mono."""
    samples, rate_hz = soundfile.read(path, dtype="float32", always_2d=True)
    return soxr.resample(samples.mean(axis=1), rate_hz, ASR_RATE_HZ)


class Jury:
    """All judges and what they know of the prompts."""

    def __init__(self, prompts: list[Prompt]) -> None:
        self._listener, self._voices, self._quality = Listener(), VoiceJudge(), QualityJudge()
        self._prompts: dict[str, HeardPrompt] = {}
        for prompt in prompts:
            samples = read_clip(str(prompt.path))
            self._prompts[prompt.id] = HeardPrompt(self._voices.embed(samples), median_pitch_hz(samples))
        # Ten unseen speakers and the real people, one English clip each: among them an output must stand out.
        self._line_up = {
            p.speaker: self._prompts[p.id].embedding
            for p in prompts
            if p.group != "seen" and p.language == "en"
        }
        self._unseen = {p.speaker for p in prompts if p.group == "unseen_synthetic"}

    def judge(self, item: Item, utterance: Utterance, timed: bool = True) -> Row:
        """Measure one item; `timed` is false for clips that come from a folder."""
        heard_at = soxr.resample(utterance.samples, SAMPLE_RATE_HZ, ASR_RATE_HZ)
        hearing = count_errors(item.text, self._listener.transcribe(heard_at, item.language), item.language)
        expected_s = expected_seconds(item.text, item.language)
        prompt = self._prompts[item.prompt.id]
        embedding = self._voices.embed(heard_at)
        line_up = {name: float(embedding @ other) for name, other in self._line_up.items()}
        among = {
            name: value
            for name, value in line_up.items()
            if name in self._unseen or name == item.prompt.speaker
        }
        quality = self._quality.judge(heard_at)
        return Row(
            **_about(item),
            transcript=hearing.transcript,
            errors=hearing.errors,
            length=hearing.length,
            character_errors=hearing.character_errors,
            characters=hearing.characters,
            audio_s=utterance.audio_s,
            expected_s=expected_s,
            wrong=has_gone_wrong(hearing.errors, hearing.length, utterance.audio_s, expected_s),
            similarity=float(embedding @ prompt.embedding),
            best_match=best_match(among),
            similarities=pack_similarities(line_up),
            pitch_hz=median_pitch_hz(heard_at),
            prompt_pitch_hz=prompt.pitch_hz,
            **quality._asdict(),
            ttfa_s=utterance.ttfa_s if timed else None,
            wall_s=utterance.wall_s if timed else None,
            failure="",
        )


def _about(item: Item) -> dict[str, Any]:
    prompt = item.prompt
    return {
        "id": item.id,
        "set": item.set,
        "language": item.language,
        "prompt": prompt.id,
        "speaker": prompt.speaker,
        "group": prompt.group,
        "text": item.text,
    }


def failed_row(item: Item, failure: str) -> Row:
    """The row of an item that gave no sound: every word is missing and it counts as gone wrong."""
    silence = count_errors(item.text, "", item.language)
    nothing: dict[str, Any] = dict.fromkeys(
        (
            "similarity",
            "pitch_hz",
            "prompt_pitch_hz",
            "overall",
            "signal",
            "background",
            "p808",
            "ttfa_s",
            "wall_s",
        )
    )
    return Row(
        **_about(item),
        transcript="",
        errors=silence.errors,
        length=silence.length,
        character_errors=silence.character_errors,
        characters=silence.characters,
        audio_s=0.0,
        expected_s=expected_seconds(item.text, item.language),
        wrong=True,
        best_match="",
        similarities="",
        failure=failure,
        **nothing,
    )
