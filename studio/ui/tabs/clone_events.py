"""What the clone panel does on the server: judge a clip, mend it, hear its words, compare them with what is typed."""

from __future__ import annotations

import asyncio
import hashlib
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np

from studio.audio.check import usable_clip
from studio.audio.decode import decode_clip
from studio.audio.doctor import Diagnosis
from studio.audio.mend import mend
from studio.audio.threads import in_clip_thread
from studio.checks.clip import as_heard, examine_clip
from studio.checks.words import DIFFERS_BELOW, agreement
from studio.errors import StudioError
from studio.messages import render
from studio.protocols import Ears
from studio.speech import Float32
from studio.ui.tabs.events import language_of


class CloneEvents:
    """The handlers; each gives the values of the fields that it was wired to."""

    def __init__(self, ears: Ears) -> None:
        self._ears = ears

    async def clip(self, path: str | None, mended: str, request: gr.Request) -> tuple[Any, ...]:
        """A sentence, the findings, and the ways on: to mend, or to undo if this is the clip that was mended."""
        nothing = gr.Button(visible=False), gr.Audio(visible=False), gr.Button(visible=False)
        if not path:
            return "", "", *nothing
        language = language_of(request)
        try:
            found = await examine_clip(await in_clip_thread(Path(path).read_bytes), self._ears)
        except StudioError as error:
            return f"⚠️ {error.message(language)}", "", *nothing
        is_mended = bool(mended) and mended == digest(found.clip.samples)
        return (
            verdict(found.diagnosis, found.clip.seconds, language),
            findings_list(found.diagnosis, language),
            gr.Button(visible=found.diagnosis.mendable and not is_mended),
            gr.Audio(visible=is_mended),
            gr.Button(visible=is_mended),
        )

    async def mend(self, path: str | None, request: gr.Request) -> tuple[Any, ...]:
        """The mended clip, the one before, and what the mended one is known by."""
        if not path:
            return gr.skip(), gr.skip(), gr.skip()
        try:
            mended = await in_clip_thread(lambda: mend(decode_clip(Path(path).read_bytes())))
        except StudioError as error:
            gr.Warning(error.message(language_of(request)))
            return gr.skip(), gr.skip(), gr.skip()
        sound = as_sound(mended.samples, mended.sample_rate_hz)
        return sound, path, digest((sound[1] / 32768).astype(np.float32))

    async def hear(self, path: str | None, request: gr.Request) -> tuple[Any, ...]:
        """What is heard in the clip, or a note on why nothing is."""
        if not path:
            return "", "", gr.Button(visible=False)
        try:
            clip = await in_clip_thread(lambda: usable_clip(Path(path).read_bytes()))
            heard = await self._ears.transcribe(as_heard(clip.samples, clip.sample_rate_hz))
        except StudioError as error:
            # what is wrong with the clip is told by the verdict on it
            told = error.message(language_of(request)) if error.http_status >= 500 else ""
            return "", note("none", told), gr.Button(visible=False)
        return heard.text, gr.skip(), gr.skip()

    async def typed(self, typed: str, heard: str, request: gr.Request) -> tuple[Any, Any]:
        """A note on what was heard beside what is typed, and whether to offer it instead."""
        language = language_of(request)
        if not heard.strip():
            return gr.skip(), gr.Button(visible=False)
        if not typed.strip():
            return "", gr.Button(visible=True)
        if typed == heard:
            return note("same", render("asr.filled_in", language)), gr.Button(visible=False)
        agreed = await asyncio.to_thread(agreement, typed, heard)
        differs = agreed < DIFFERS_BELOW
        told = render("asr.differs" if differs else "asr.agrees", language, percent=100 * agreed, heard=heard)
        return note("differs" if differs else "agrees", told), gr.Button(visible=agreed < 1)


def digest(samples: Float32) -> str:
    """What a clip is known by, as its 16-bit samples."""
    return hashlib.sha256(np.rint(samples * 32768).astype("<i4").tobytes()).hexdigest()


def as_sound(samples: Float32, rate_hz: int) -> tuple[int, np.ndarray]:
    """As gr.Audio wants it; int16, since Gradio would stretch float samples to full scale."""
    return rate_hz, (np.clip(samples, -1, 1) * 32767).astype(np.int16)


def note(state: str, sentence: str) -> str:
    return f"<p class='note' data-state='{state}' role='status'>{escape(sentence)}</p>" if sentence else ""


def verdict(diagnosis: Diagnosis, seconds: float, language: str) -> str:
    """One sentence: ready, could be better, or why it cannot be cloned."""
    if not diagnosis.usable:
        refusal = next(finding for finding in diagnosis.findings if finding.key)
        return f"⚠️ {refusal.message(language)}"
    key = "page.clip_good" if diagnosis.severity == "green" else "page.clip_fair"
    return "✅ " + render(key, language, seconds=seconds)


def findings_list(diagnosis: Diagnosis, language: str) -> str:
    """A list, worst first; what is good shares one line. A refusal is in the verdict."""
    lines: list[tuple[str, str]] = []
    for severity in ("red", "amber"):
        for finding in diagnosis.findings:
            if finding.severity == severity and not (severity == "red" and finding.key):
                lines.append((severity, finding.message(language)))
    good = " ".join(finding.message(language) for finding in diagnosis.findings if finding.severity == "green")
    if good:
        lines.append(("green", good))
    items = "".join(
        f"<li data-severity='{severity}'><span class='severity'>{render(f'doctor.{severity}', language)}</span>"
        f" {escape(sentence)}</li>"
        for severity, sentence in lines
    )
    return f"<ul class='findings'>{items}</ul>" if items else ""
