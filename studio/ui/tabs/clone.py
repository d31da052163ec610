"""The clone panel: a clip is given, judged and mended, and what is said in it. Keeping the voice is `keep.py`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np

from studio.audio.check import best_part, usable_clip
from studio.audio.decode import decode_clip
from studio.errors import StudioError
from studio.messages import render
from studio.speech import Float32
from studio.ui.tabs.events import QUIET, error_place, language_of


@dataclass(frozen=True, slots=True)
class Clone:
    """The fields of the panel."""

    clip: gr.Audio
    verdict: gr.Markdown
    use_best: gr.Button
    transcript: gr.Textbox


def clone_panel(i18n: gr.I18n) -> Clone:
    clip = gr.Audio(
        sources=["upload", "microphone"],
        type="filepath",
        label=i18n("field.clip"),
        elem_id="clip",
        buttons=[],
    )
    verdict = gr.Markdown("", elem_id="verdict")
    use_best = gr.Button(i18n("button.best_part"), size="sm", visible=False, elem_id="use-best")
    error_place("clip")
    transcript = gr.Textbox(
        label=i18n("field.transcript"),
        placeholder=i18n("field.transcript_hint"),
        lines=2,
        elem_id="transcript",
    )
    error_place("transcript")
    return Clone(clip, verdict, use_best, transcript)


def wire_clone(clone: Clone) -> None:
    clone.clip.change(on_clip, clone.clip, [clone.verdict, clone.use_best], **QUIET)
    clone.clip.change(None, None, None, js="() => { window.studio.forgive('clip'); }")
    clone.use_best.click(on_best_part, clone.clip, clone.clip, **QUIET)


async def on_clip(path: str | None, request: gr.Request) -> tuple[str, Any]:
    """A sentence on the clip, and the way out if it is only too long."""
    if not path:
        return "", gr.Button(visible=False)
    language = language_of(request)
    try:
        found = await asyncio.to_thread(lambda: usable_clip(Path(path).read_bytes()))
    except StudioError as error:
        return f"⚠️ {error.message(language)}", gr.Button(visible=error.key == "clip.too_long")
    return "✅ " + render("page.clip_good", language, seconds=found.seconds), gr.Button(visible=False)


async def on_best_part(path: str | None) -> Any:
    if not path:
        return None
    part = await asyncio.to_thread(lambda: best_part(decode_clip(Path(path).read_bytes())))
    return as_sound(part.samples, part.sample_rate_hz)


def as_sound(samples: Float32, rate_hz: int) -> tuple[int, np.ndarray]:
    """As gr.Audio wants it; int16, since Gradio would stretch float samples to full scale."""
    return rate_hz, (np.clip(samples, -1, 1) * 32767).astype(np.int16)
