"""The page as a whole: theme, languages, head, engine state and tabs. Does not synthesize."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from studio.library.prompts import VoicePrompts
from studio.library.store import VoiceStore
from studio.messages import catalogue
from studio.protocols import Ears
from studio.settings import Settings
from studio.ui.client_api import Routes, client_api
from studio.ui.client_files import client_files
from studio.ui.scripts import mount_script
from studio.ui.tabs.admin import admin_tab
from studio.ui.tabs.listening import listening_tab
from studio.ui.tabs.script import script_tab
from studio.ui.tabs.studio import studio_tab
from studio.ui.tabs.takes import restore_place, takes_tab, wire_restore
from studio.ui.tabs.voices import voices_tab
from studio.ui.uploads import UploadsOnly

WEB = Path(__file__).resolve().parents[2] / "assets" / "web"
STATUS_TEMPLATE = (
    "<div class='engine-status' role='status' aria-live='polite' data-state='starting'>"
    "<span class='engine-dot' aria-hidden='true'></span><span data-part='text'></span>"
    "<progress data-part='bar' max='1' value='0' aria-label='engine'></progress></div>"
)
OPEN_TAB = "() => ({ __type__: 'update', ...(location.hash === '#admin' ? { selected: 'admin' } : {}) })"
"""The address /#admin opens that tab: the way back from signing in leads there."""


def translations() -> gr.I18n:
    """The catalogue for Gradio; a browser in Chinese sends zh-CN or zh, both get the same sentences."""
    zh = catalogue("zh")
    return gr.I18n(en=catalogue("en"), zh=zh, **{"zh-CN": zh, "zh-TW": zh})


def theme() -> gr.themes.Base:
    """The machine's own fonts, since Gradio's lack Hanzi, and shades that give letters enough contrast."""
    fonts = (
        "system-ui",
        "-apple-system",
        "Segoe UI",
        "Roboto",
        "Noto Sans",
        "Noto Sans CJK SC",
        "sans-serif",
    )
    return gr.themes.Default(
        primary_hue=gr.themes.colors.indigo,
        neutral_hue=gr.themes.colors.slate,
        font=fonts,
        font_mono=("ui-monospace", "monospace"),
        radius_size=gr.themes.sizes.radius_md,
    ).set(
        body_background_fill="*neutral_50",
        body_text_color_subdued="*neutral_600",
        body_text_color_subdued_dark="*neutral_300",
        input_placeholder_color="*neutral_500",
        input_placeholder_color_dark="*neutral_400",
        button_primary_background_fill="*primary_600",
        button_primary_background_fill_hover="*primary_700",
        button_primary_background_fill_dark="*primary_600",
        button_primary_background_fill_hover_dark="*primary_700",
        button_primary_text_color="white",
        button_primary_text_color_dark="white",
        button_cancel_background_fill="*neutral_200",
        button_cancel_background_fill_hover="*neutral_300",
        button_cancel_background_fill_dark="*neutral_700",
        button_cancel_background_fill_hover_dark="*neutral_600",
        button_cancel_text_color="*neutral_900",
        button_cancel_text_color_dark="white",
    )


@dataclass(frozen=True, slots=True)
class Page:
    """The Blocks and what mount_gradio_app wants beside them."""

    blocks: gr.Blocks
    mount: dict[str, Any]


def build_page(
    store: VoiceStore, prompts: VoicePrompts, settings: Settings, ears: Ears, routes: Routes
) -> Page:
    """All tabs; queue() limits are ours to set since Gradio's default runs one event at a time."""
    i18n = translations()
    with UploadsOnly(title="CosyVoice Studio", analytics_enabled=False, delete_cache=(3600, 86400)) as blocks:
        with gr.Row(elem_classes="studio-head"):
            gr.Markdown(i18n("page.title"), elem_id="title")
            gr.HTML(
                html_template=STATUS_TEMPLATE,
                js_on_load=mount_script("mountStatus"),
                elem_id="engine",
                padding=False,
            )
        restore = restore_place()
        with gr.Tabs() as tabs:
            with gr.Tab(i18n("tab.studio"), id="studio", elem_id="tab-studio"):
                source, speech = studio_tab(i18n, store, prompts, ears)
            with gr.Tab(i18n("tab.voices"), id="library", elem_id="tab-library"):
                voices_tab(i18n, store, source.voice)
            with gr.Tab(i18n("tab.script"), id="script"):
                script_tab()
            with gr.Tab(i18n("tab.takes"), id="takes"):
                takes_tab()
            with gr.Tab(i18n("tab.listening"), id="listening"):
                listening_tab()
            with gr.Tab(i18n("tab.admin"), id="admin", elem_id="tab-admin"):
                admin_tab(settings)
        client_api(routes)
        client_files(routes)
        blocks.load(fn=None, outputs=tabs, js=OPEN_TAB)
        wire_restore(restore, tabs, speech.text, source.voice, store)
        gr.Markdown(i18n("page.footer"), elem_id="footer")
    blocks.queue(api_open=False, default_concurrency_limit=8, max_size=64)
    mount = {
        "theme": theme(),
        "css_paths": [
            WEB / f"{name}.css"
            for name in ("studio", "speak", "voices", "takes", "script", "listening", "admin")
        ],
        "i18n": i18n,
        "show_error": False,
        "run_history": False,
        "footer_links": [],
        "max_file_size": int(settings.max_clip_mb * 1_000_000),
    }
    return Page(blocks, mount)
