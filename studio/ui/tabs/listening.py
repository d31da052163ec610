"""The Listening tests tab: design, material, links, results. It is assets/web/listening on /v1/listening."""

from __future__ import annotations

import gradio as gr

from studio.ui.scripts import mount_script

TEMPLATE = (
    "<div class='listening' data-state='loading'>"
    "<p class='listening-said' data-part='said' role='status' aria-live='polite'></p>"
    "<div data-part='place'></div></div>"
)


def listening_tab() -> None:
    gr.HTML(
        html_template=TEMPLATE,
        js_on_load=mount_script("mountListening", "listening/owner"),
        elem_id="listening",
        padding=False,
    )
