"""The page: Gradio Blocks, one file a tab. Sound does not pass through Gradio events; see assets/web/player.js."""

from studio.ui.gradio_start import import_gradio

import_gradio()  # before any module of this room imports it in full
