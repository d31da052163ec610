"""The Voices tab: the library, and voices designed from it. Its work is done by assets/web on the /v1 routes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

from studio.library.store import VoiceStore
from studio.ui import voices
from studio.ui.scripts import mount_script
from studio.ui.tabs.events import QUIET, language_of

WEB = Path(__file__).resolve().parents[3] / "assets" / "web"


def voices_tab(i18n: gr.I18n, store: VoiceStore, voice: gr.Dropdown) -> None:
    """Two panels of our own. voice: the Studio tab's list, which follows what happens here."""
    with gr.Tabs(elem_id="voices-tabs"):
        for name, title, mount in (
            ("voices", "tab.library", "mountVoices"),
            ("design", "tab.design", "mountDesign"),
        ):
            with gr.Tab(i18n(title), id=name, elem_id=f"tab-{name}"):
                template = (WEB / f"{name}.html").read_text(encoding="utf-8")
                script = mount_script(mount, name)
                gr.HTML(html_template=template, js_on_load=script, elem_id=name, padding=False)
    refresh = gr.Button(visible="hidden", elem_id="voices-refresh")

    async def on_refresh(picked: str | None, request: gr.Request) -> Any:
        choices = voices.choices(store, language_of(request))
        known = [voice_id for _, voice_id in choices]
        return gr.Dropdown(choices=choices, value=picked if picked in known else next(iter(known), None))

    # A voice that was chosen here for the Studio tab, else the one that is picked there.
    chosen = "(picked) => { const id = window.studioChosen ?? picked; window.studioChosen = null; return id; }"
    # Each change counts, and the last one last: a voice may be chosen while the list is still being read.
    in_order: dict[str, Any] = {"trigger_mode": "multiple", "concurrency_limit": 1}
    refresh.click(on_refresh, voice, voice, js=chosen, **QUIET, **in_order)
