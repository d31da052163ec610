"""Under the player: check the take that was heard, or make more and keep the best. The work is assets/web/checks.js."""

from __future__ import annotations

import gradio as gr

from studio.ui.scripts import mount_script

TEMPLATE = (
    "<section class='checks' data-state='idle' data-say-label='check.title' hidden>"
    "<div class='player-buttons'><button type='button' data-part='check' data-say='check.button'></button>"
    "<button type='button' data-part='best'></button></div>"
    "<p data-part='said' role='status' aria-live='polite'></p><ul data-part='list'></ul></section>"
)


def checks_part() -> None:
    gr.HTML(html_template=TEMPLATE, js_on_load=mount_script("mountChecks", "checks"), elem_id="checks", padding=False)
