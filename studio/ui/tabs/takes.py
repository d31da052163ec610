"""The Takes tab, and what brings a take's settings back into the Studio tab. Its list is assets/web/takes.js."""

from __future__ import annotations

from typing import Any

import gradio as gr

from studio.library.store import VoiceStore
from studio.ui.scripts import mount_script
from studio.ui.tabs.events import QUIET

TEXT_CHARS = 100_000
RESTORE_TEMPLATE = "<div class='restore' data-state='idle' role='status' aria-live='polite'></div>"
TAKES_TEMPLATE = """
<div class='takes' data-state='loading'>
  <div class='takes-tools'>
    <input type='search' data-part='search' data-say-label='takes.search' data-say-placeholder='takes.search'>
    <label><input type='checkbox' data-part='starred'> <span data-say='takes.starred'></span></label>
  </div>
  <div class='takes-empty'><h2 data-say='takes.empty_title'></h2><p data-say='takes.empty'></p></div>
  <div class='takes-files' data-own-drop>
    <label class='file-button'><span data-say='takes.file'></span>
    <input type='file' data-part='file' accept='.wav,.flac,.mp3,.opus,.ogg,.json'></label>
  </div>
  <p class='takes-usage' data-part='usage'></p>
  <section class='compare' data-part='compare' data-say-label='takes.compare_title' hidden></section>
  <p class='takes-said' data-part='said' role='status' aria-live='polite'></p>
  <ul class='takes-list' data-part='list' data-say-label='tab.takes'></ul>
  <button type='button' data-part='more' data-say='takes.more' hidden></button>
</div>
"""


def takes_tab() -> None:
    gr.HTML(
        html_template=TAKES_TEMPLATE, js_on_load=mount_script("mountTakes", "takes"), elem_id="takes", padding=False
    )


def restore_place() -> gr.HTML:
    """Hears of settings to restore, on whatever tab, and tells how it went."""
    return gr.HTML(
        html_template=RESTORE_TEMPLATE,
        js_on_load=mount_script("mountRestore", "restore", event="restored"),
        elem_id="restore",
        padding=False,
    )


def wire_restore(
    place: gr.HTML, tabs: gr.Tabs, text: gr.Textbox, voice: gr.Dropdown, store: VoiceStore
) -> None:
    """Fill the form with what was restored, as far as it is of a kind that Gradio's fields hold."""

    def restored(event: gr.EventData) -> list[Any]:
        card = event._data if isinstance(event._data, dict) else {}
        request, known = card.get("request"), restored_voice(card, store)
        said = request.get("text", "") if isinstance(request, dict) else ""
        return [gr.Tabs(selected="studio"), str(said)[:TEXT_CHARS], gr.skip() if known is None else known]

    place.restored(restored, None, [tabs, text, voice], **QUIET)


def restored_voice(card: dict[str, Any], store: VoiceStore) -> str | None:
    """The id of the card's voice, if the library has it."""
    voice = card.get("voice_here") or card.get("voice")
    wanted = voice.get("id") if isinstance(voice, dict) else None
    return wanted if wanted in {known.id for known in store.all()} else None
