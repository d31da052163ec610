"""The Studio tab: pick or clone a voice, type, hear. Speaking itself is assets/web/studio.js on the /v1 routes."""

from __future__ import annotations

from dataclasses import dataclass

import gradio as gr

from studio.library.prompts import VoicePrompts
from studio.library.store import VoiceStore
from studio.protocols import Ears
from studio.ui.scripts import mount_script
from studio.ui.tabs.clone import Clone, clone_panel, wire_clone
from studio.ui.tabs.events import QUIET, TabEvents, error_place
from studio.ui.tabs.keep import Keep, keep_part, wire_keep
from studio.ui.tabs.speak import Speech, speech_column, wire_speech

# Not gr.Audio: that writes the clip to a file at each pick, under the name of its hash, while other pages may read it.
SAMPLE_TEMPLATE = (
    "<div class='sample' data-state='empty'><span id='sample-label' data-say='field.sample'></span>"
    "<audio controls preload='metadata' aria-labelledby='sample-label'></audio></div>"
)


@dataclass(frozen=True, slots=True)
class Source:
    """The fields of the left column: where the voice comes from."""

    pick: gr.Tab
    own: gr.Tab
    voice: gr.Dropdown
    details: gr.Markdown
    delete: gr.Button
    clone: Clone
    keep: Keep


def studio_tab(i18n: gr.I18n, store: VoiceStore, prompts: VoicePrompts, ears: Ears) -> tuple[Source, Speech]:
    """Lay the tab out, then wire it; gives its fields."""
    with gr.Row(equal_height=False):
        with gr.Column(scale=2, min_width=320):
            source = source_column(i18n, bool(ears.recogniser))
        with gr.Column(scale=3, min_width=320):
            speech = speech_column(i18n)
    wire_source(source, TabEvents(store, prompts))
    wire_clone(source.clone, ears)
    wire_keep(source.keep, source.clone.clip, source.clone.transcript, source.voice, store)
    clone = source.clone
    wire_speech(speech, source.pick, source.own, source.voice, clone.clip, clone.transcript)
    return source, speech


def source_column(i18n: gr.I18n, hears_words: bool) -> Source:
    with gr.Tabs(elem_id="source"):
        with gr.Tab(i18n("tab.pick"), id="pick") as pick:
            voice = gr.Dropdown([], label=i18n("field.voice"), elem_id="voice", filterable=True)
            error_place("voice")
            details = gr.Markdown("", elem_id="voice-details")
            gr.HTML(
                html_template=SAMPLE_TEMPLATE,
                js_on_load=mount_script("mountSample"),
                elem_id="voice-sample",
                padding=False,
            )
            delete = gr.Button(
                i18n("button.delete"), size="sm", variant="secondary", elem_id="delete-voice", visible=False
            )
        with gr.Tab(i18n("tab.clone"), id="clone") as own:
            clone = clone_panel(i18n, hears_words)
            keep = keep_part(i18n)
    return Source(pick, own, voice, details, delete, clone, keep)


def wire_source(source: Source, on: TabEvents) -> None:
    context = gr.context.Context.root_block
    assert context is not None
    context.load(on.load, None, source.voice, **QUIET)  # which changes it, and so shows the voice
    source.voice.change(on.voice, source.voice, [source.details, source.delete], **QUIET)
    # The page may have the voice before it has its script, which then looks here.
    show = "(id) => { window.studioVoice = id; window.studio?.showSample(id); window.studio?.previewAgain(); }"
    source.voice.change(None, source.voice, None, js=show)
    source.delete.click(on.delete, source.voice, source.voice, **QUIET)
