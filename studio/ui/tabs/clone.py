"""The clone panel: a clip is given, judged and mended, and what is said in it. Keeping the voice is `keep.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from studio.audio.ffmpeg import ffmpeg_available
from studio.protocols import Ears
from studio.ui.clip_functions import clip_functions
from studio.ui.tabs.clone_events import CloneEvents
from studio.ui.tabs.events import QUIET, error_place


@dataclass(frozen=True, slots=True)
class Clone:
    """The fields of the panel. mended, heard: hidden, what the last mended clip was and what is heard in the clip."""

    clip: gr.Audio
    verdict: gr.Markdown
    findings: gr.HTML
    mend: gr.Button
    before: gr.Audio
    unmend: gr.Button
    mended: gr.Textbox
    transcript: gr.Textbox
    heard: gr.Textbox
    agreement: gr.HTML
    use_heard: gr.Button


def clone_panel(i18n: gr.I18n, hears_words: bool) -> Clone:
    clip = gr.Audio(
        sources=["upload", "microphone"],
        type="filepath",
        label=i18n("field.clip"),
        elem_id="clip",
        buttons=[],
    )
    if not ffmpeg_available():
        gr.Markdown(i18n("doctor.ffmpeg_missing"), elem_id="ffmpeg-note", elem_classes="note")
    verdict = gr.Markdown("", elem_id="verdict")
    findings = gr.HTML("", elem_id="findings", padding=False)
    mend = gr.Button(i18n("button.mend"), size="sm", visible=False, elem_id="mend")
    before = gr.Audio(
        type="filepath",
        interactive=False,
        visible=False,
        label=i18n("field.clip_before"),
        elem_id="clip-before",
        buttons=[],
    )
    unmend = gr.Button(i18n("button.unmend"), size="sm", visible=False, elem_id="unmend")
    error_place("clip")
    transcript = gr.Textbox(
        label=i18n("field.transcript"),
        placeholder=i18n("field.transcript_hint"),
        lines=2,
        elem_id="transcript",
    )
    error_place("transcript")
    if not hears_words:
        gr.Markdown(i18n("asr.missing"), elem_id="asr-note", elem_classes="note")
    agreement = gr.HTML("", elem_id="agreement", padding=False)
    use_heard = gr.Button(i18n("button.use_heard"), size="sm", visible=False, elem_id="use-heard")
    mended, heard = (gr.Textbox("", visible="hidden", elem_id=name) for name in ("mended", "heard"))
    return Clone(
        clip, verdict, findings, mend, before, unmend, mended, transcript, heard, agreement, use_heard
    )


def wire_clone(clone: Clone, ears: Ears) -> None:
    on = CloneEvents(ears)
    clip_functions(clone.clip, ears)
    latest: dict[str, Any] = {**QUIET, "trigger_mode": "always_last"}
    judged = [clone.verdict, clone.findings, clone.mend, clone.before, clone.unmend]
    clone.clip.change(None, None, None, js="() => { window.studio.forgive('clip'); }")
    given = clone.clip.change(on.clip, [clone.clip, clone.mended], judged, **latest)
    clone.mend.click(on.mend, clone.clip, [clone.clip, clone.before, clone.mended], **QUIET)
    clone.unmend.click(lambda before: before, clone.before, clone.clip, **QUIET)
    if ears.recogniser:
        told, compared = [clone.agreement, clone.use_heard], [clone.transcript, clone.heard]
        given.then(on.hear, clone.clip, [clone.heard, *told], **QUIET)
        # In the page, which alone knows what was typed while the recogniser was listening.
        fill = "(typed, heard) => window.studio.fillIn(typed, heard)"
        filled = clone.heard.change(None, compared, clone.transcript, js=fill)
        filled.then(on.typed, compared, told, **QUIET)
        clone.transcript.change(on.typed, compared, told, **latest)
        use = "(heard) => { window.studio.forgive('transcript'); return heard; }"
        clone.use_heard.click(None, clone.heard, clone.transcript, js=use)
