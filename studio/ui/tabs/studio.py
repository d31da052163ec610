"""The Studio tab: pick or clone a voice, type, hear. Speaking itself is assets/web/studio.js on the /v1 routes."""

from __future__ import annotations

from dataclasses import dataclass

import gradio as gr

from studio.library.prompts import VoicePrompts
from studio.library.store import VoiceStore
from studio.messages import catalogue
from studio.protocols import Ears
from studio.ui.scripts import mount_script
from studio.ui.tabs.checks import checks_part
from studio.ui.tabs.clone import Clone, clone_panel, wire_clone
from studio.ui.tabs.events import QUIET, TabEvents, error_place
from studio.ui.tabs.keep import Keep, keep_part, wire_keep

EXAMPLES = ("example.1", "example.2", "example.3", "example.4")
PLAYER_TEMPLATE = (
    "<div class='player' data-state='loading'>"
    "<canvas data-part='wave' role='img' aria-label='waveform'></canvas>"
    "<p class='player-line'><span data-part='status' role='status' aria-live='polite'></span>"
    " <span data-part='figures' class='player-figures'></span></p>"
    "<div class='player-buttons'><button type='button' data-part='replay' hidden>"
    "<span aria-hidden='true'>▶</span> <span data-say='player.replay'></span></button>"
    "<a data-part='download' download='speech.wav' hidden>"
    "<span aria-hidden='true'>⬇</span> <span data-say='player.download'></span></a></div></div>"
)
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


@dataclass(frozen=True, slots=True)
class Speech:
    """The fields of the right column: what is said."""

    text: gr.Textbox
    examples: tuple[gr.Button, ...]
    speak: gr.Button
    stop: gr.Button
    seed: gr.Textbox


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
    wire_speech(source, speech)
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


def speech_column(i18n: gr.I18n) -> Speech:
    text = gr.Textbox(
        label=i18n("field.text"),
        placeholder=i18n("field.text_hint"),
        lines=5,
        max_lines=14,
        elem_id="text",
    )
    error_place("text")
    with gr.Row(elem_id="examples"):
        # A sentence to speak is the same in every language of the page.
        examples = tuple(
            gr.Button(catalogue("en")[key], size="sm", variant="secondary", min_width=120) for key in EXAMPLES
        )
    with gr.Row():
        speak = gr.Button(i18n("button.speak"), variant="primary", elem_id="speak", scale=3)
        stop = gr.Button(i18n("button.stop"), variant="stop", elem_id="stop", scale=1, min_width=90)
    gr.HTML(
        html_template=PLAYER_TEMPLATE,
        js_on_load=mount_script("mountPlayer"),
        elem_id="player",
        padding=False,
    )
    checks_part()
    with gr.Accordion(i18n("field.advanced"), open=False, elem_id="advanced"):
        seed = gr.Textbox(
            label=i18n("field.seed"), placeholder=i18n("field.seed_hint"), max_lines=1, elem_id="seed"
        )
        error_place("seed")
    return Speech(text, examples, speak, stop, seed)


def wire_source(source: Source, on: TabEvents) -> None:
    context = gr.context.Context.root_block
    assert context is not None
    context.load(on.load, None, source.voice, **QUIET)  # which changes it, and so shows the voice
    source.voice.change(on.voice, source.voice, [source.details, source.delete], **QUIET)
    # The page may have the voice before it has its script, which then looks here.
    show = "(id) => { window.studioVoice = id; window.studio?.showSample(id); }"
    source.voice.change(None, source.voice, None, js=show)
    source.delete.click(on.delete, source.voice, source.voice, **QUIET)


def wire_speech(source: Source, speech: Speech) -> None:
    chosen = gr.Textbox("pick", visible="hidden", elem_id="source-value")
    source.pick.select(None, None, chosen, js="() => 'pick'")
    source.own.select(None, None, chosen, js="() => 'clip'")
    for example in speech.examples:
        example.click(
            None, example, speech.text, js="(sentence) => { window.studio.forgive('text'); return sentence; }"
        )
    wanted = [speech.text, chosen, source.voice, source.clone.clip, source.clone.transcript, speech.seed]
    play = "(...fields) => { window.studio.speak(...fields); }"
    speech.speak.click(None, wanted, None, js=play)
    speech.text.submit(None, wanted, None, js=play)
    speech.stop.click(None, None, None, js="() => { window.studio.stop(); }")
