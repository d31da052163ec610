"""The Studio tab: pick or clone a voice, type, hear. Speaking itself is assets/web/studio.js on the /v1 routes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np

from studio.audio.check import best_part, usable_clip
from studio.audio.decode import decode_clip
from studio.errors import InvalidRequest, StudioError
from studio.library.prompts import VoicePrompts
from studio.library.store import Voice, VoiceStore, check_transcript
from studio.messages import best_language, render
from studio.settings import Settings
from studio.ui.scripts import mount_script

PLAYER_TEMPLATE = (
    "<div class='player' data-state='loading'>"
    "<canvas data-part='wave' role='img' aria-label='waveform'></canvas>"
    "<p class='player-line'><span data-part='status' role='status' aria-live='polite'></span>"
    " <span data-part='figures' class='player-figures'></span></p>"
    "<div class='player-buttons'><button type='button' data-part='replay' hidden>"
    "▶ <span data-say='player.replay'></span></button>"
    "<a data-part='download' download='speech.wav' hidden>⬇ <span>WAV</span></a></div></div>"
)
ERROR_TEMPLATE = "<p class='field-error' data-part='error' role='alert' hidden></p>"


def error_place(field: str) -> gr.HTML:
    """Where the sentence about a field appears, right under it."""
    return gr.HTML(html_template=ERROR_TEMPLATE, elem_id=f"error-{field}", elem_classes="field-error-place")


def language_of(request: gr.Request | None) -> str:
    return best_language(request.headers.get("accept-language") if request else None)


def voice_choices(store: VoiceStore) -> list[tuple[str, str]]:
    return [(f"{v.name} · {v.language}" if v.language else str(v.name), v.id) for v in store.all()]


def describe(voice: Voice, language: str) -> str:
    """Transcript, and source and licence where the voice has them."""
    lines = [f"“{voice.transcript}”"]
    if voice.details:
        lines.append(f"<small>{voice.details}</small>")
    lines.append(f"<small>{render('page.clip_seconds', language, seconds=voice.clip_s)}</small>")
    return "\n\n".join(lines)


def as_sound(samples: np.ndarray, rate_hz: int) -> tuple[int, np.ndarray]:
    return rate_hz, (np.clip(samples, -1, 1) * 32767).astype(np.int16)


def studio_tab(i18n: gr.I18n, store: VoiceStore, prompts: VoicePrompts, settings: Settings) -> None:
    """Lay the tab out, then wire it."""
    first = store.all()[0] if store.all() else None
    with gr.Row(equal_height=False):
        with gr.Column(scale=2, min_width=320), gr.Tabs(elem_id="source"):
            with gr.Tab(i18n("tab.pick"), id="pick") as pick_tab:
                voice = gr.Dropdown(
                    voice_choices(store),
                    value=first.id if first else None,
                    label=i18n("field.voice"),
                    elem_id="voice",
                    filterable=True,
                )
                error_place("voice")
                details = gr.Markdown(describe(first, "en") if first else "", elem_id="voice-details")
                sample = gr.Audio(
                    label=i18n("field.sample"), interactive=False, elem_id="voice-sample", buttons=[]
                )
                delete = gr.Button(
                    i18n("button.delete"), size="sm", variant="secondary", elem_id="delete-voice"
                )
            with gr.Tab(i18n("tab.clone"), id="clone") as clone_tab:
                clip = gr.Audio(
                    sources=["upload", "microphone"],
                    type="filepath",
                    label=i18n("field.clip"),
                    elem_id="clip",
                    buttons=[],
                )
                verdict = gr.Markdown("", elem_id="verdict")
                use_best = gr.Button(
                    i18n("button.best_part"), size="sm", visible=False, elem_id="use-best"
                )
                error_place("clip")
                transcript = gr.Textbox(
                    label=i18n("field.transcript"),
                    placeholder=i18n("field.transcript_hint"),
                    lines=2,
                    elem_id="transcript",
                )
                error_place("transcript")
                with gr.Row():
                    name = gr.Textbox(
                        label=i18n("field.name"), max_lines=1, elem_id="name", scale=3, max_length=64
                    )
                    keep = gr.Button(i18n("button.keep"), elem_id="keep", scale=1, min_width=90)
                consent = gr.Checkbox(label=i18n("field.consent"), elem_id="consent")
                kept = gr.Markdown("", elem_id="kept")
        with gr.Column(scale=3, min_width=320):
            text = gr.Textbox(
                label=i18n("field.text"),
                placeholder=i18n("field.text_hint"),
                lines=5,
                max_lines=14,
                elem_id="text",
            )
            error_place("text")
            with gr.Row():
                speak = gr.Button(i18n("button.speak"), variant="primary", elem_id="speak", scale=3)
                stop = gr.Button(i18n("button.stop"), variant="stop", elem_id="stop", scale=1, min_width=90)
            gr.HTML(html_template=PLAYER_TEMPLATE, js_on_load=mount_script("mountPlayer"), elem_id="player")
            with gr.Accordion(i18n("field.advanced"), open=False):
                seed = gr.Textbox(
                    label=i18n("field.seed"), placeholder=i18n("field.seed_hint"), max_lines=1, elem_id="seed"
                )
                error_place("seed")

    async def on_load(request: gr.Request) -> tuple[Any, ...]:
        choices = voice_choices(store)
        chosen = store.all()[0] if choices else None
        shown = await on_voice(chosen.id, request) if chosen else ("", None)
        return (gr.Dropdown(choices=choices, value=chosen.id if chosen else None), *shown)

    async def on_voice(
        voice_id: str | None, request: gr.Request
    ) -> tuple[str, tuple[int, np.ndarray] | None]:
        if not voice_id:
            return "", None
        try:
            found = store.find(voice_id)
        except StudioError as error:
            return error.message(language_of(request)), None
        return describe(found, language_of(request)), as_sound(*store.clip_samples(found))

    async def on_clip(path: str | None, request: gr.Request) -> tuple[str, Any]:
        if not path:
            return "", gr.Button(visible=False)
        language = language_of(request)
        try:
            found = await asyncio.to_thread(lambda: usable_clip(Path(path).read_bytes()))
        except StudioError as error:
            return f"⚠️ {error.message(language)}", gr.Button(visible=error.key == "clip.too_long")
        return "✅ " + render(
            "page.clip_good", language, seconds=len(found.samples) / found.sample_rate_hz
        ), gr.Button(visible=False)

    async def on_best_part(path: str | None, request: gr.Request) -> Any:
        if not path:
            return None
        part = await asyncio.to_thread(lambda: best_part(decode_clip(Path(path).read_bytes())))
        return as_sound(part.samples, part.sample_rate_hz)

    async def on_keep(
        path: str | None, said: str, wanted: str, agreed: bool, request: gr.Request
    ) -> tuple[str, Any]:
        language = language_of(request)
        try:
            if not path:
                raise InvalidRequest("clip.missing", param="audio_sample")
            if not agreed:
                raise InvalidRequest("page.consent_missing", param="consent")
            found = await asyncio.to_thread(lambda: usable_clip(Path(path).read_bytes()))
            made = store.add(
                found.samples,
                found.sample_rate_hz,
                check_transcript(said),
                name=wanted,
                consent=render("field.consent", "en"),
            )
        except StudioError as error:
            return f"⚠️ {error.message(language)}", gr.skip()
        return "✅ " + render("page.kept", language, name=made.name), gr.Dropdown(
            choices=voice_choices(store), value=made.id
        )

    async def on_delete(voice_id: str | None, request: gr.Request) -> Any:
        if not voice_id:
            return gr.skip()
        try:
            prompts.forget(store.delete(voice_id))
        except StudioError as error:
            gr.Warning(error.message(language_of(request)))
            return gr.skip()
        choices = voice_choices(store)
        return gr.Dropdown(choices=choices, value=choices[0][1] if choices else None)

    quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
    context = gr.context.Context.root_block
    assert context is not None
    context.load(on_load, None, [voice, details, sample], **quiet)
    voice.change(on_voice, voice, [details, sample], **quiet)
    clip.change(on_clip, clip, [verdict, use_best], **quiet)
    use_best.click(on_best_part, clip, clip, **quiet)
    keep.click(on_keep, [clip, transcript, name, consent], [kept, voice], **quiet)
    delete.click(on_delete, voice, voice, **quiet)
    source = gr.Textbox("pick", visible="hidden", elem_id="source-value")
    pick_tab.select(None, None, source, js="() => 'pick'")
    clone_tab.select(None, None, source, js="() => 'clip'")
    wanted = [text, source, voice, clip, transcript, seed]
    play = "(...fields) => { window.studio.speak(...fields); }"
    speak.click(None, wanted, None, js=play)
    text.submit(None, wanted, None, js=play)
    stop.click(None, None, None, js="() => { window.studio.stop(); }")
