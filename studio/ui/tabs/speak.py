"""The Studio tab's right column: the text and what will be said of it, how it is spoken, and the player."""

from __future__ import annotations

import json
from dataclasses import dataclass

import gradio as gr

from studio.messages import catalogue
from studio.ui.scripts import mount_script, template
from studio.ui.tabs.checks import checks_part
from studio.ui.tabs.events import error_place

EXAMPLES = ("example.1", "example.2", "example.3", "example.4")


@dataclass(frozen=True, slots=True)
class Speech:
    """The fields that Gradio knows; how it is spoken is asked for in assets/web/options.html."""

    text: gr.Textbox
    examples: tuple[gr.Button, ...]
    speak: gr.Button
    stop: gr.Button


def own_html(name: str, mount: str, module: str, elem_id: str) -> gr.HTML:
    """A part of the page that is a template and a script of ours."""
    return gr.HTML(
        html_template=template(name), js_on_load=mount_script(mount, module), elem_id=elem_id, padding=False
    )


def speech_column(i18n: gr.I18n) -> Speech:
    text = gr.Textbox(
        label=i18n("field.text"),
        placeholder=i18n("field.text_hint"),
        lines=5,
        max_lines=14,
        elem_id="text",
    )
    error_place("text")
    own_html("tools", "mountTools", "preview", "speech-tools")
    with gr.Row(elem_id="examples"):
        # A sentence to speak is the same in every language of the page.
        examples = tuple(
            gr.Button(catalogue("en")[key], size="sm", variant="secondary", min_width=120) for key in EXAMPLES
        )
    with gr.Row():
        speak = gr.Button(i18n("button.speak"), variant="primary", elem_id="speak", scale=3)
        stop = gr.Button(i18n("button.stop"), variant="stop", elem_id="stop", scale=1, min_width=90)
    own_html("player", "mountPlayer", "studio", "player")
    checks_part()
    with gr.Accordion(i18n("field.advanced"), open=True, elem_id="advanced"):
        own_html("options", "mountOptions", "options", "speech-options")
    with gr.Accordion(i18n("words.title"), open=False, elem_id="words"):
        own_html("words", "mountWords", "words", "words-list")
    own_html("convert", "mountConvert", "convert", "convert")
    return Speech(text, examples, speak, stop)


def wire_speech(
    speech: Speech,
    pick: gr.Tab,
    own: gr.Tab,
    voice: gr.Dropdown,
    clip: gr.Audio,
    transcript: gr.Textbox,
) -> None:
    """Speaking and the preview are scripts on the /v1 routes; Gradio only hands them its fields."""
    chosen = gr.Textbox("pick", visible="hidden", elem_id="source-value")
    pick.select(None, None, chosen, js="() => 'pick'")
    own.select(None, None, chosen, js="() => 'clip'")
    for example in speech.examples:
        example.click(
            None, example, speech.text, js="(sentence) => { window.studio.forgive('text'); return sentence; }"
        )
    wanted = {
        "text": speech.text,
        "source": chosen,
        "voice": voice,
        "clip": clip,
        "transcript": transcript,
    }
    named = f"Object.fromEntries({json.dumps(list(wanted))}.map((name, n) => [name, values[n]]))"
    play = f"(...values) => {{ window.studio.speak({named}); }}"
    speech.speak.click(None, list(wanted.values()), None, js=play)
    speech.text.submit(None, list(wanted.values()), None, js=play)
    speech.stop.click(None, None, None, js="() => { window.studio.stop(); }")
    speech.text.change(None, speech.text, None, js="(text) => { window.studio?.preview(text); }")
